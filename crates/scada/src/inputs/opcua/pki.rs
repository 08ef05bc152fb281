//! The folder with our certificate and those that are trusted, as async-opcua reads it:
//!
//! | | |
//! |---|---|
//! | `own/cert.der` | our certificate; servers must be told to trust it |
//! | `private/private.pem` | its RSA key, readable by us alone |
//! | `trusted/` | certificates of servers that are trusted, each as the library names it |
//! | `rejected/` | those that were met and are not; an operator moves the right one to `trusted` |

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ::opcua::crypto::{CertificateStore, X509Data};

use super::super::{CertificateError, Lost};
use super::{APPLICATION_NAME, APPLICATION_URI};

const OWN: &str = "own/cert.der";
const KEY: &str = "private/private.pem";
const KEY_BITS: u32 = 2_048;

/// Sees that what we need is there: the library would only log that it is not.
pub(super) fn check(folder: &Path) -> Result<(), Lost> {
    for file in [OWN, KEY] {
        let path = folder.join(file);
        if let Err(error) = std::fs::metadata(&path) {
            let make = "`holdfast scada inputs certificate` makes one";
            return Err(Lost(format!("our certificate: {}: {error}; {make}", path.display())));
        }
    }
    Ok(())
}

/// Makes a certificate that signs itself, for this application on `hosts`.
pub(crate) fn make(folder: &Path, hosts: &[String], days: u32) -> Result<(), CertificateError> {
    let there = [OWN, KEY].map(|file| folder.join(file));
    if let Some(path) = there.iter().find(|path| path.exists()) {
        return Err(CertificateError::IsThere(path.clone()));
    }
    let data = X509Data {
        key_size: KEY_BITS,
        common_name: APPLICATION_NAME.to_owned(),
        organization: APPLICATION_NAME.to_owned(),
        organizational_unit: "SCADA inputs".to_owned(),
        country: "XX".to_owned(),
        state: "-".to_owned(),
        alt_host_names: X509Data::alt_host_names(
            APPLICATION_URI,
            Some(hosts.to_vec()),
            false,
            false,
            false,
        ),
        certificate_duration_days: days,
    };
    let store = CertificateStore::new(folder);
    store.ensure_pki_path().map_err(CertificateError::Failed)?;
    // The key must never be readable by others, not even for a moment: its folder is not.
    let [_, key] = &there;
    let private = key.parent().unwrap_or(folder);
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::create_dir_all(private)
        .and_then(|()| std::fs::set_permissions(private, closed))
        .map_err(|error| CertificateError::Failed(format!("{}: {error}", private.display())))?;
    store
        .create_and_store_application_instance_cert(&data, false)
        .map_err(CertificateError::Failed)?;
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600))
        .map_err(|error| CertificateError::Failed(format!("{}: {error}", key.display())))
}
