//! Who runs this command, for the audits.

const ACCOUNTS: &str = "/etc/passwd";

/// The user that this process runs as, by the machine's own list: the environment can say anything. What `sudo` says of the person
/// behind it is added, since only root could have made it up.
pub(crate) fn this_user() -> String {
    let uid = rustix::process::getuid().as_raw();
    let accounts = std::fs::read_to_string(ACCOUNTS).unwrap_or_default();
    let name = name_of(uid, &accounts).unwrap_or_else(|| "unknown".to_owned());
    let sudo = crate::config::environment("SUDO_USER").filter(|_| uid == 0);
    let behind = sudo.map(|user| format!(", sudo by {user}")).unwrap_or_default();
    format!("{name} (uid {uid}{behind})")
}

fn name_of(uid: u32, accounts: &str) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse::<u32>().ok()? == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_the_machine() {
        let accounts = "root:x:0:0::/root:/bin/sh\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(1000, accounts).as_deref(), Some("ada"));
        assert_eq!(name_of(7, accounts), None);
    }
}
