//! Certificates for development and for tests: an authority, and what it signs.
//!
//! They protect nothing that matters: the authority's key lies in a file. An operator's certificates come from the
//! operator's own authority.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

use crate::Error;

const AUTHORITY_LASTS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Clocks differ a little; what was made just now is valid everywhere.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);

/// Signs certificates. Its own is `{name}.pem` in its folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    name: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as files in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key (PKCS #8), readable by us alone.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority and writes its certificate and its key to `folder`.
    pub fn make(folder: &Path, name: &str) -> Result<Authority, Error> {
        std::fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let mut params = params(name, SystemTime::now() + AUTHORITY_LASTS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = KeyPair::generate()
            .and_then(|key| CertifiedIssuer::self_signed(params, key))
            .map_err(failed)?;
        write(&folder.join(format!("{name}.pem")), &issuer.pem(), 0o644)?;
        write(&folder.join(format!("{name}.key")), &issuer.key().serialize_pem(), 0o600)?;
        Ok(Authority { folder: folder.to_owned(), name: name.to_owned(), issuer })
    }

    /// The file with its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// Signs a certificate for `name` at `localhost`, at 127.0.0.1 and at `hosts`, for servers and clients, valid until
    /// `until`. The files are `{name}.pem` and `{name}.key`.
    pub fn issue(&self, name: &str, hosts: &[&str], until: SystemTime) -> Result<Issued, Error> {
        let mut params = params(name, until);
        let mut names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        for host in ["localhost"].iter().chain(hosts) {
            names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*host).try_into().map_err(failed)?),
            });
        }
        params.subject_alt_names = names;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let issued = Issued {
            certificate: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        };
        write(&issued.certificate, &signed.pem(), 0o644)?;
        write(&issued.key, &key.serialize_pem(), 0o600)?;
        Ok(issued)
    }
}

fn params(name: &str, until: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::from(until.min(SystemTime::now()) - CLOCKS_DIFFER);
    params.not_after = OffsetDateTime::from(until);
    params
}

fn failed(error: rcgen::Error) -> Error {
    Error::Failed {
        program: "making a certificate".to_owned(),
        status: "refused".to_owned(),
        output: error.to_string(),
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    use std::io::Write as _;
    let _ = std::fs::remove_file(path);
    std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::file("write", path))
}
