//! Configuration files, the secrets and certificates they name, and who may read them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::check::Check;
use crate::status::places::Places;

const ROLE: &str = "all";
/// A certificate that ends sooner is worth a warning.
const SOON_DAYS: i64 = 30;
/// What the name of a key that holds a secret has in it.
const SECRET_WORDS: [&str; 4] = ["password", "secret", "token", "key"];

/// Every section parses and has no unknown key, and there is no section that nobody reads.
pub(super) fn configuration(places: &Places, only: Option<&[&str]>) -> Vec<Check> {
    let mut checks = Vec::new();
    let meant = |section: &str| only.is_none_or(|only| only.contains(&section));
    for refused in places.refused.iter().filter(|refused| meant(refused.section)) {
        let file = refused.file.as_ref().map(|file| file.display().to_string());
        checks.push(Check::fail(
            ROLE,
            format!("section [{}]", refused.section),
            format!("{}: {}", file.unwrap_or_default(), refused.why),
            "mend these keys; `holdfast config reference` lists every one, `holdfast config check` shows the rest",
        ));
    }
    for file in &places.files {
        let unknown = unknown_sections(file);
        checks.push(match unknown.is_empty() {
            true => Check::ok(ROLE, "configuration", file.display().to_string()),
            false => Check::warn(
                ROLE,
                "configuration",
                format!(
                    "{} has sections that nobody reads: [{}]",
                    file.display(),
                    unknown.join("], [")
                ),
                "a misspelt section is ignored as a whole: see `holdfast config reference`",
            ),
        });
    }
    if places.files.is_empty() {
        checks.push(Check::ok(ROLE, "configuration", "from the environment alone"));
    }
    checks
}

fn table_of(file: &Path) -> toml::Table {
    // A file that cannot be read was refused before.
    std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn unknown_sections(file: &Path) -> Vec<String> {
    let known = [
        ::node::SECTION,
        ::edge::config::SECTION,
        ::cloud::config::SECTION,
        crate::backup::config::SECTION,
        ::scada::historian::config::SECTION,
        ::scada::producer::config::SECTION,
        ::schedule::config::SECTION,
        ::console::config::SECTION,
        #[cfg(feature = "kafka")]
        crate::scada::ADMIN_SECTION,
    ];
    table_of(file).keys().filter(|name| !known.contains(&name.as_str())).cloned().collect()
}

/// The file itself, and the files that it names: secrets are private, certificates are valid.
pub(super) fn named_in(file: &Path) -> Vec<Check> {
    let table = table_of(file);
    let mut keys = Vec::new();
    flatten("", &table, &mut keys);
    let mut checks = Vec::new();
    if keys.iter().any(|(key, _)| holds_secret(key)) {
        checks.extend(private(file, "it has secrets in it"));
    }
    for (key, value) in &keys {
        let path = PathBuf::from(value);
        let names_file = ["_file", "_key", "_cert", "tls.key", "tls.client_ca"]
            .iter()
            .any(|end| key.ends_with(end));
        if !names_file || !path.is_absolute() && !path.exists() {
            continue;
        }
        let word = key.rsplit('.').next().unwrap_or(key);
        if word.contains("ca_file") || word.contains("cert") || word == "client_ca" {
            checks.push(certificate(key, &path));
        } else if SECRET_WORDS.iter().any(|secret| word.contains(secret)) {
            checks.extend(private(&path, key));
        }
    }
    checks
}

/// A value in the file is a secret: by its name, or an address with a password in it.
fn holds_secret(key: &str) -> bool {
    let word = key.rsplit('.').next().unwrap_or(key);
    let names = SECRET_WORDS.iter().any(|secret| word.contains(secret)) || word.ends_with("url");
    names && !word.ends_with("_file") && !word.ends_with("client_key") && !key.ends_with("tls.key")
}

fn flatten(prefix: &str, table: &toml::Table, keys: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(below) => flatten(&key, below, keys),
            toml::Value::String(text) => keys.push((key, text.clone())),
            _ => {}
        }
    }
}

/// A file with a secret is there, and nobody but its owner and its group may read it.
fn private(file: &Path, why: &str) -> Vec<Check> {
    let name = format!("private {}", file.file_name().unwrap_or_default().to_string_lossy());
    let mode = match std::fs::metadata(file) {
        Ok(found) => found.permissions().mode() & 0o777,
        Err(error) => {
            let said = format!("{} ({why}): {error}", file.display());
            return vec![Check::fail(ROLE, name, said, "make the file, or mend the path")];
        }
    };
    let found = format!("{} has mode {mode:03o} ({why})", file.display());
    vec![match mode & 0o007 {
        0 => Check::ok(ROLE, name, format!("{} has mode {mode:03o}", file.display())),
        _ => Check::fail(ROLE, name, found, format!("chmod 640 {}, or 600", file.display())),
    }]
}

/// The certificate of a role's listener: its files are there, fit together, and hold for a while.
pub(super) fn listener(role: &'static str, tls: &api::serve::Tls) -> Vec<Check> {
    let name = "certificate";
    let file = tls.cert.display();
    let until = match tls.examine() {
        Ok(until) => until.as_second(),
        Err(error) => {
            let advice = "put a certificate and its own key there, both in PEM; \
                          a role that runs goes on with those it has";
            return vec![Check::fail(role, name, error.to_string(), advice)];
        }
    };
    let days = (until - Timestamp::now().as_second()).div_euclid(86_400);
    let renew = "put a new one there: a role that runs takes it within seconds";
    vec![match days {
        ..0 => Check::fail(role, name, format!("{file} ended {} days ago", -days), renew),
        0..SOON_DAYS => Check::warn(role, name, format!("{file} ends in {days} days"), renew),
        _ => Check::ok(role, name, format!("{file} fits its key and is valid for {days} days")),
    }]
}

/// The certificates of a file are valid, and for how long.
fn certificate(key: &str, file: &Path) -> Check {
    let name = format!("certificate {key}");
    let unusable = |why: String| {
        let said = format!("{}: {why}", file.display());
        Check::fail(ROLE, &name, said, "put a PEM file with the certificate there")
    };
    let all: Vec<CertificateDer<'_>> =
        match CertificateDer::pem_file_iter(file).and_then(Iterator::collect) {
            Ok(all) => all,
            Err(error) => return unusable(error.to_string()),
        };
    let mut soonest: Option<i64> = None;
    let now = Timestamp::now().as_second();
    for one in &all {
        let (from, until) = match x509_parser::parse_x509_certificate(one) {
            Ok((_, parsed)) => {
                (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp())
            }
            Err(error) => return unusable(error.to_string()),
        };
        if from > now {
            return unusable("it is not valid yet; is the clock right?".to_owned());
        }
        soonest = Some(soonest.map_or(until, |other| other.min(until)));
    }
    let Some(until) = soonest else { return unusable("it holds no certificate".to_owned()) };
    let days = (until - now).div_euclid(86_400);
    let found = format!("{} is valid for {days} more days", file.display());
    match days {
        ..0 => Check::fail(
            ROLE,
            &name,
            format!("{} ended {} days ago", file.display(), -days),
            "get a new certificate",
        ),
        0..SOON_DAYS => Check::warn(ROLE, &name, found, "get a new certificate in time"),
        _ => Check::ok(ROLE, &name, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_hold_secrets_are_told_from_those_that_name_files() {
        for key in ["edge.mqtt.password", "edge.sync.token", "cloud.database.url", "a.secret"] {
            assert!(holds_secret(key), "{key}");
        }
        for key in [
            "edge.mqtt.password_file",
            "node.mqtt.client_key",
            "edge.tls.key",
            "edge.replica",
            "a.ca_file",
        ] {
            assert!(!holds_secret(key), "{key}");
        }
    }
}
