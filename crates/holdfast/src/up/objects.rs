//! The object store of `up`, and the scale whose pictures it keeps.

use std::time::Duration;

use anyhow::Context;
use api::tokens::{NewToken, Role as TokenRole, Tenants};
use event::id::{BarnId, DeviceId};
use objects::server::Credentials;
use objects::{Address, Bucket};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::site::Site;
use crate::sim::scale::{Place, Scale};

/// Time from one animal to the next.
const AN_ANIMAL_EVERY: Duration = Duration::from_secs(15);

/// What is chosen once for the store and the scale of a data folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Minted {
    port: u16,
    access_key: String,
    secret_key: String,
    barn_id: BarnId,
    scale_id: DeviceId,
    token: String,
}

impl Minted {
    /// The edge's keys for this store, and the model that weighs the pictures.
    pub(super) fn edge_keys(&self) -> anyhow::Result<String> {
        let program = std::env::current_exe()?;
        Ok(format!(
            "media.s3_endpoint = \"http://127.0.0.1:{}\"\nmedia.s3_access_key = {:?}\n\
             media.s3_secret_key = {:?}\ninference.command = [{program:?}, \"sim\", \"model\"]\n",
            self.port, self.access_key, self.secret_key,
        ))
    }
}

impl Minted {
    /// The keys of schedules for the same store, in a bucket of their own.
    pub(super) fn schedule_keys(&self) -> String {
        format!(
            "store.s3_endpoint = \"http://127.0.0.1:{}\"\nstore.s3_access_key = {:?}\nstore.s3_secret_key = {:?}\n",
            self.port, self.access_key, self.secret_key,
        )
    }
}

/// The store while it runs.
pub(super) struct Objects {
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Objects {
    /// Ends it; what was answered with 200 is on the disk.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.serving.await??)
    }
}

impl Site {
    /// What was minted for the store and the scale, and is minted the first time.
    pub(super) async fn mint_objects(&self, edge: &pg::Options) -> anyhow::Result<Minted> {
        if let Some(minted) = self.minted_objects()? {
            return Ok(minted);
        }
        let new = NewToken {
            name: "the scale of up".to_owned(),
            role: TokenRole::Operator,
            tenants: Tenants::Only(vec![self.tenant()?]),
            expires_at: None,
        };
        let client = pg::connect(edge).await?;
        let (_, token) = api::tokens::create(&client, &new).await?;
        let secret = || uuid::Uuid::new_v4().simple().to_string();
        let minted = Minted {
            port: rig::free_port()?,
            access_key: secret(),
            secret_key: secret(),
            barn_id: BarnId::mint(),
            scale_id: DeviceId::mint(),
            token: token.expose().to_owned(),
        };
        self.remember_objects(&minted)?;
        Ok(minted)
    }

    /// Serves the folder's objects, and makes the edge's bucket.
    pub(super) async fn start_objects(&self, edge: &edge::Config) -> anyhow::Result<Objects> {
        let minted = self.minted_objects()?.context("the object store is not prepared")?;
        let address: Address =
            edge.media.as_ref().context("the edge has no object store")?.store.clone();
        let listener = TcpListener::bind(("127.0.0.1", minted.port)).await?;
        let credentials = Credentials {
            access_key: minted.access_key.clone(),
            secret_key: minted.secret_key.clone(),
        };
        let stop = CancellationToken::new();
        let (folder, until) = (self.folder().join("objects"), stop.clone());
        let serving = tokio::spawn(async move {
            objects::server::serve(&folder, listener, credentials, until).await
        });
        Bucket::new(&address)?.ensure().await.context("the bucket cannot be made")?;
        Ok(Objects { stop, serving })
    }

    /// The simulated scale.
    pub(super) fn scale(&self, edge: &edge::Config) -> anyhow::Result<Scale> {
        let minted = self.minted_objects()?.context("the object store is not prepared")?;
        let place = Place {
            edge: format!("http://{}", edge.listen),
            token: minted.token,
            tenant_id: self.tenant()?,
            farm_id: self.farm()?,
            barn_id: minted.barn_id,
            device_id: minted.scale_id,
        };
        Scale::new(place, AN_ANIMAL_EVERY, 1)
    }
}
