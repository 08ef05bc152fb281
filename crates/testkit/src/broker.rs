//! A broker per test: it starts in some tens of milliseconds, so nothing is shared.

use std::ops::{Deref, DerefMut};

use anyhow::{Context, Result};
use rig::{Mosquitto, MosquittoOptions};
use tempfile::TempDir;

/// A private Mosquitto in a temporary folder. Both go when this is dropped.
#[derive(Debug)]
pub struct Broker {
    // Dropped in this order: the server is gone before its folder is deleted.
    mosquitto: Mosquitto,
    _folder: TempDir,
}

impl Broker {
    /// Starts a broker with these options.
    pub async fn start(options: MosquittoOptions) -> Result<Broker> {
        let folder = tempfile::Builder::new().prefix("holdfast-broker-").tempdir()?;
        let mosquitto = Mosquitto::start(folder.path(), options).await.context("start a broker")?;
        Ok(Broker { mosquitto, _folder: folder })
    }
}

impl Deref for Broker {
    type Target = Mosquitto;

    fn deref(&self) -> &Mosquitto {
        &self.mosquitto
    }
}

impl DerefMut for Broker {
    fn deref_mut(&mut self) -> &mut Mosquitto {
        &mut self.mosquitto
    }
}

/// A broker that lets anybody in.
pub async fn mosquitto() -> Result<Broker> {
    Broker::start(MosquittoOptions::default()).await
}
