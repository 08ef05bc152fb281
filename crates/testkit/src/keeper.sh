# Stops a shared server when nobody has used it for a while. Started by testkit with
# $1 = the run's folder for it, $2 = the server's folder, $3 = seconds of grace.
#
# A test process holds a shared lock on `users` for as long as it lives; the kernel takes it back
# however the process ends. The files stay open here, so that it works though the run's folder is
# deleted. A lock on `keeper` tells that this server has its keeper.
trap '' HUP INT
run=$1 server=$2 grace=$3 idle=0
exec 7>>"$server/keeper" 8>>"$run/lock" 9>>"$run/users"
# Whoever started this looks at the lock too, for an instant.
flock -w 5 7 || exit 0
while :; do
    if flock -n 9; then flock -u 9; idle=$((idle + 1)); else idle=0; fi
    [ -e "$run/end" ] && [ "$idle" -gt 0 ] && idle=$grace
    if [ "$idle" -ge "$grace" ]; then
        # Nobody can start to use the server while `lock` is held; one who did just before is seen.
        flock 8
        flock -n 9 && break
        flock -u 8
        idle=0
    fi
    sleep 1
done
# True when the process whose id is $1 has the word $2 on its command line: an id alone may be another's by now.
lives() { tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | grep -qxF -- "$2"; }
# Each line of `processes`: signal, file with the id, word. The data is thrown away, so nothing needs to be written down.
while read -r signal file word; do
    pid=$(head -n 1 "$file" 2>/dev/null)
    [ -n "$pid" ] && lives "$pid" "$word" || continue
    kill "-$signal" "$pid"
    tries=0
    while lives "$pid" "$word" && [ "$tries" -lt 100 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
done <"$server/processes"
rm -rf "$server"
# The note may speak of another server by now.
[ "$(head -n 1 "$run/server" 2>/dev/null)" = "$server" ] && rm -f "$run/server" "$run/end"
