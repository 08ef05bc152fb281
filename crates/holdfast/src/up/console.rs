//! The console of `up`: tokens by which it asks the others, tokens for people to sign in with, and its process.

use std::path::{Path, PathBuf};

use anyhow::Context;
use api::tokens::{NewToken, Role as TokenRole, Tenants};
use rig::Postgres;
use serde::{Deserialize, Serialize};

use super::children::Role;
use super::scada::Plant;
use super::site::{Site, write_private};

/// What the site of `up` is called on the page.
const SITE: &str = "up";
/// And its SCADA nodes, which are one process.
const PLANT: &str = "plant";
const OPERATOR: &str = "operator.token";
const VIEWER: &str = "viewer.token";

/// What is chosen once for the console of a data folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Minted {
    port: u16,
}

/// What is said about the console.
#[derive(Debug)]
pub(super) struct Door {
    /// The address of the page.
    pub(super) address: String,
    /// The file with a token that may act.
    pub(super) operator: PathBuf,
    /// The file with a token that may look.
    pub(super) viewer: PathBuf,
}

impl Site {
    /// Makes the tokens that are not there yet, and the configuration for this run.
    pub(super) async fn prepare_console(
        &self,
        postgres: &Postgres,
        edge: &edge::Config,
        cloud: &cloud::Config,
        plant: &Plant,
        rota: &::schedule::Config,
    ) -> anyhow::Result<Door> {
        let folder = self.folder().join("console");
        std::fs::create_dir_all(&folder)?;
        let minted = match self.minted_console()? {
            Some(minted) => minted,
            None => {
                let minted = Minted { port: rig::free_port()? };
                self.remember_console(&minted)?;
                minted
            }
        };
        let [by_edge, by_cloud, by_historian, by_schedule] =
            ["edge", "cloud", "historian", "schedule"].map(|of| folder.join(format!("{of}.token")));
        let (operator, viewer) = (folder.join(OPERATOR), folder.join(VIEWER));
        for (database, file, name, role) in [
            (&edge.database, &by_edge, "the console of up", TokenRole::Operator),
            (&cloud.database, &by_cloud, "the console of up", TokenRole::Operator),
            (&plant.historian.database, &by_historian, "the console of up", TokenRole::Operator),
            (&rota.database, &by_schedule, "the console of up", TokenRole::Viewer),
            (&cloud.database, &operator, "operator of up", TokenRole::Operator),
            (&cloud.database, &viewer, "viewer of up", TokenRole::Viewer),
        ] {
            make_token(database, file, name, role).await?;
        }
        let text = format!(
            "[console]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{}\"\nsites = [{:?}]\n\
             cloud.url = \"http://{}\"\ncloud.token_file = {:?}\n\
             historian.url = \"http://{}\"\nhistorian.token_file = {:?}\nproducers = [{:?}]\n\
             schedule.url = \"http://{}\"\nschedule.token_file = {:?}\nup_control = {:?}\n",
            postgres.url(super::cloud::DATABASE),
            minted.port,
            format!("{SITE}=http://{}={}", edge.listen, by_edge.display()),
            cloud.listen,
            by_cloud,
            plant.historian.listen,
            by_historian,
            // On this machine its metrics want no token.
            format!("{PLANT}=http://{}", plant.producer.listen),
            rota.listen,
            by_schedule,
            self.control_socket(),
        );
        let file = self.console_config();
        write_private(&file, &text)?;
        let config = ::console::Config::load(Some(&file), |_| None)
            .with_context(|| format!("{} cannot be used", file.display()))?;
        Ok(Door { address: format!("http://{}/", config.listen), operator, viewer })
    }

    fn console_config(&self) -> PathBuf {
        self.folder().join("console/console.toml")
    }

    pub(super) fn console_role(&self) -> anyhow::Result<Role> {
        let config = self.console_config();
        Ok(Role {
            name: "console".to_owned(),
            program: std::env::current_exe()?,
            arguments: vec![
                "console".into(),
                "run".into(),
                "--config".into(),
                config.clone().into(),
            ],
            log: self.folder().join("console/log"),
            pid_file: self.folder().join("console/pid"),
            mark: config,
        })
    }
}

/// Makes a token unless its file is there already: a token is shown only once.
async fn make_token(
    database: &pg::Options,
    file: &Path,
    name: &str,
    role: TokenRole,
) -> anyhow::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let new = NewToken { name: name.to_owned(), role, tenants: Tenants::All, expires_at: None };
    let client = pg::connect(database).await?;
    let (_, secret) = api::tokens::create(&client, &new).await?;
    write_private(file, &format!("{}\n", secret.expose()))
}
