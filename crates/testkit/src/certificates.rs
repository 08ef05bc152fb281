//! Certificates of a server and its clients in files that can be renewed, and what a listener that serves them owes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use reqwest::{Certificate, Client, Identity};
use rig::certificates::{Authority, Issued};
use tempfile::TempDir;

use crate::eventually;

const LAST: Duration = Duration::from_secs(2 * 24 * 3600);
/// A listener looks at its files every few seconds.
const SOON: Duration = Duration::from_secs(60);

/// What one authority has made.
#[derive(Debug, Clone)]
pub struct Paper {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// For a server at `localhost` and 127.0.0.1.
    pub server: Issued,
    /// For a client.
    pub client: Issued,
}

/// Files that a server and its clients are configured with, and what can take their place.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
    authorities: usize,
    /// The files in use.
    pub used: Paper,
    /// What they held first, in files that stay as they are.
    pub first: Paper,
}

impl Certificates {
    /// Of a new authority.
    pub fn make() -> Result<Certificates> {
        let folder = tempfile::tempdir()?;
        // Servers with a user of their own must get at the files.
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        let issued = |name: &str| Issued {
            certificate: folder.path().join(format!("{name}.pem")),
            key: folder.path().join(format!("{name}.key")),
        };
        let used = Paper {
            ca: folder.path().join("ca.pem"),
            server: issued("server"),
            client: issued("client"),
        };
        let first = paper(&folder.path().join("0"))?;
        let made = Certificates { folder, authorities: 1, used, first };
        made.put(&made.first)?;
        Ok(made)
    }

    /// Of another authority of the same name, in files of their own.
    pub fn another(&mut self) -> Result<Paper> {
        self.authorities += 1;
        paper(&self.folder.path().join(self.authorities.to_string()))
    }

    /// Puts others in the place of those in use, as an operator would: written beside, then renamed.
    pub fn put(&self, paper: &Paper) -> Result<()> {
        replace(&paper.ca, &self.used.ca)?;
        for (from, to) in [(&paper.server, &self.used.server), (&paper.client, &self.used.client)] {
            replace(&from.certificate, &to.certificate)?;
            replace(&from.key, &to.key)?;
        }
        Ok(())
    }

    /// What a role that listens is configured with, after its prefix, to show those in use and to ask for one of the same authority.
    pub fn settings(&self) -> [(&'static str, &str); 3] {
        let Paper { ca, server, .. } = &self.used;
        let text = |path| Path::to_str(path).unwrap_or_default();
        [
            ("TLS_CERT", text(&server.certificate)),
            ("TLS_KEY", text(&server.key)),
            ("TLS_CLIENT_CA", text(ca)),
        ]
    }

    /// Whether a listener with [`Certificates::used`], which asks clients for a certificate of the same authority, does what it should: it lets in who
    /// trusts it and shows a certificate, and nobody else, and changes to another authority's while it runs.
    pub async fn are_asked_for(&mut self, listener: SocketAddr, path: &str) -> Result<()> {
        let [http, https] = ["http", "https"].map(|scheme| format!("{scheme}://{listener}{path}"));
        let (old, new) = (self.first.clone(), self.another()?);
        let known = client(&old.ca, Some(&old.client))?;
        answers(&known, &https).await.context("who shows a certificate")?;
        ensure!(answers(&known, &http).await.is_err(), "plain HTTP is answered");
        for (who, client) in [
            ("who trusts another authority", client(&new.ca, Some(&old.client))?),
            ("who shows nothing", client(&old.ca, None)?),
            ("who shows another authority's certificate", client(&old.ca, Some(&new.client))?),
        ] {
            ensure!(answers(&client, &https).await.is_err(), "{who} is let in");
        }
        self.put(&new)?;
        eventually(SOON, "the new certificate", async || {
            answers(&client(&new.ca, Some(&new.client))?, &https).await
        })
        .await?;
        let anew = client(&old.ca, Some(&old.client))?;
        ensure!(answers(&anew, &https).await.is_err(), "the old certificate is still shown");
        answers(&known, &https).await.context("on the connection from before")
    }
}

/// A client of HTTP that trusts an authority alone, and shows a certificate if it has one.
pub fn client(trusts: &Path, shows: Option<&Issued>) -> Result<Client> {
    // An error only says that a provider is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = Certificate::from_pem(&std::fs::read(trusts)?)?;
    let mut builder = Client::builder().timeout(SOON).no_proxy().tls_certs_only([trusted]);
    if let Some(Issued { certificate, key }) = shows {
        let pem = [std::fs::read(certificate)?, std::fs::read(key)?].concat();
        builder = builder.identity(Identity::from_pem(&pem)?);
    }
    Ok(builder.build()?)
}

async fn answers(client: &Client, url: &str) -> Result<()> {
    client.get(url).send().await?.error_for_status()?.bytes().await?;
    Ok(())
}

fn paper(folder: &Path) -> Result<Paper> {
    let authority = Authority::make(folder, "authority")?;
    let until = SystemTime::now() + LAST;
    Ok(Paper {
        ca: authority.certificate(),
        server: authority.issue("server", &[], until)?,
        client: authority.issue("client", &[], until)?,
    })
}

#[expect(clippy::disallowed_methods, reason = "a file of a test need not survive a power cut")]
fn replace(from: &Path, to: &Path) -> Result<()> {
    let beside = to.with_extension("new");
    std::fs::copy(from, &beside)?;
    Ok(std::fs::rename(beside, to)?)
}
