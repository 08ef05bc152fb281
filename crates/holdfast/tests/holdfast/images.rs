//! A site's database and object store with some images, and the commands that an operator runs on them.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use event::id::{BarnId, DeviceId, FarmId, MediaId, TenantId};
use event::names::s3::{Ext, object_key};
use jiff::Timestamp;
use objects::{Address, Bucket};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use testkit::{Database, EmbeddedStore};
use tokio_postgres::Client;

pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) struct Site {
    database: Database,
    pub(crate) client: Client,
    pub(crate) bucket: Bucket,
    pub(crate) tenant: TenantId,
    pub(crate) folder: tempfile::TempDir,
    config: String,
    _store: EmbeddedStore,
}

impl Site {
    pub(crate) async fn new(name: &str) -> Site {
        let migrate = |url| async move { edge::migrate(&pg::Options::new(url)).await };
        let database = testkit::database(name, "edge", migrate).await.unwrap();
        let store = EmbeddedStore::start().await.unwrap();
        let address = store.address().clone();
        let folder = tempfile::tempdir().unwrap();
        let mut config = format!("[edge]\ndatabase.url = {:?}\n", database.url());
        config.push_str("media.orphan_grace = \"0s\"\n");
        config.push_str(&keys("media.", &address));
        let site = Site {
            client: database.connect().await.unwrap(),
            bucket: Bucket::new(&address).unwrap(),
            tenant: TenantId::mint(),
            database,
            folder,
            config,
            _store: store,
        };
        site.write_config("");
        site
    }

    /// One more connection.
    pub(crate) async fn connect(&self) -> Client {
        self.database.connect().await.unwrap()
    }

    pub(crate) fn write_config(&self, more: &str) {
        std::fs::write(self.config(), format!("{}{more}", self.config)).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("edge.toml")
    }

    /// A connection to another database of the same server.
    pub(crate) async fn connect_to(&self, name: &str) -> Client {
        let options = pg::Options::new(self.database.url()).on_database(name).unwrap();
        pg::connect(&options).await.unwrap()
    }

    /// The section for backups in a bucket.
    pub(crate) fn back_up_to(&self, address: &Address) {
        let scratch = self.folder.path().join("scratch");
        let section = format!("[backup]\ns3_prefix = \"sites/north\"\nscratch = {scratch:?}\n");
        self.write_config(&format!("{section}{}", keys("", address)));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).env("HOLDFAST_CONFIG", self.config());
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        self.started(arguments).await
    }

    /// A command that can be waited for elsewhere.
    pub(crate) fn started(
        &self,
        arguments: &[&str],
    ) -> impl Future<Output = Output> + Send + use<> {
        let mut command = tokio::process::Command::from(self.command(arguments));
        let output = command.kill_on_drop(true).output();
        async move { tokio::time::timeout(LONG, output).await.unwrap().unwrap() }
    }

    /// What a command answers, and whether it succeeds as it must.
    pub(crate) async fn json(&self, succeeds: bool, arguments: &[&str]) -> Value {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), succeeds, "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command says that must fail.
    pub(crate) async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// A key of our form.
    pub(crate) fn key(&self, media: MediaId) -> String {
        let (farm, barn, device) = (FarmId::mint(), BarnId::mint(), DeviceId::mint());
        object_key(self.tenant, farm, barn, device, Timestamp::now(), media, Ext::Jpg)
    }

    /// A stored image of some bytes, without its object.
    pub(crate) async fn row(&self, bytes: &[u8]) -> String {
        let media = MediaId::mint();
        let key = self.key(media);
        let part = |n: usize| key.split('/').nth(n).unwrap().parse::<uuid::Uuid>().unwrap();
        let sql = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket,
                object_key, mime_type, size_bytes, captured_at, status, sha256, stored_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 'image/jpeg', $8, now(), 'stored', $9, now())";
        let (size, hash) = (i64::try_from(bytes.len()).unwrap(), Sha256::digest(bytes).to_vec());
        let ids = (media.uuid(), self.tenant.uuid(), part(3), part(5), part(7));
        let name = self.bucket.name();
        self.client
            .execute(sql, &[&ids.0, &ids.1, &ids.2, &ids.3, &ids.4, &name, &key, &size, &hash])
            .await
            .unwrap();
        key
    }

    /// A stored image.
    pub(crate) async fn image(&self, bytes: &[u8]) -> String {
        let key = self.row(bytes).await;
        self.bucket.put(&key, "image/jpeg", bytes.to_vec().into()).await.unwrap();
        key
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn keys(prefix: &str, address: &Address) -> String {
    format!(
        "{prefix}s3_endpoint = {:?}\n{prefix}s3_bucket = {:?}\n{prefix}s3_access_key = {:?}\n\
         {prefix}s3_secret_key = {:?}\n",
        address.url.as_str(),
        address.bucket,
        address.access_key,
        address.secret_key
    )
}
