# Stops a shared RabbitMQ when nobody has used it for a while. Started by testkit with
# $1 = the run's folder for it, $2 = the broker's folder, $3 = seconds of grace.
#
# A test process holds a shared lock on `users` for as long as it lives; the kernel takes it back
# however the process ends. The files stay open here, so that it works though the run's folder is
# deleted.
trap '' HUP INT
run=$1 server=$2 grace=$3 idle=0
exec 8>>"$run/lock" 9>>"$run/users"
while :; do
    if flock -n 9; then flock -u 9; idle=$((idle + 1)); else idle=0; fi
    [ -e "$run/end" ] && [ "$idle" -gt 0 ] && idle=$grace
    if [ "$idle" -ge "$grace" ]; then
        # Nobody can start to use the broker while `lock` is held; one who did just before is seen.
        flock 8
        flock -n 9 && break
        flock -u 8
        idle=0
    fi
    sleep 1
done
# Kills the process whose id is in file $1 if the word $2 is on its command line: an id alone may be another's
# by now. The data is thrown away, so nothing needs to be written down.
end() {
    pid=$(head -n 1 "$1" 2>/dev/null)
    [ -n "$pid" ] && tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "$2" && kill -KILL "$pid"
}
end "$server/pid" "$server"
end "$server/epmd.pid" "$(cut -d ' ' -f 3 "$server/ports")"
rm -rf "$server"
# The note may speak of another broker by now.
[ "$(head -n 1 "$run/server" 2>/dev/null)" = "$server" ] && rm -f "$run/server" "$run/end"
