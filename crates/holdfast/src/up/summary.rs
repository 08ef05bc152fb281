//! What `up` shows: a line for each node, from the node's own socket, the edge's database and the cloud's; and one for the plant.
//!
//! On a terminal the table is drawn again in place every second; elsewhere one line of totals is printed now and then, so
//! that a log stays readable.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use event::id::NodeId;
use event::wire::Report;
use jiff::Timestamp;
use tokio_postgres::Client;

use super::console::Door;
use super::links::{DEFAULT_DATA, Links};
use super::scada::{self, Plant, Stored};
use super::schedule::{self, Heard, Standing};
use super::site::Site;
use crate::table;

/// What a new user can try, with the words they would type.
pub(super) fn hint(site: &Site, plant: &Plant, rota: &::schedule::Config, door: &Door) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let short = |path: &Path| path.strip_prefix(&here).unwrap_or(path).display().to_string();
    let program =
        std::env::current_exe().map_or_else(|_| "holdfast".to_owned(), |path| short(&path));
    let data = match short(site.folder()) {
        folder if folder == DEFAULT_DATA => String::new(),
        folder => format!(" --data {folder}"),
    };
    let config = short(&site.edge_config());
    let scada = short(&site.scada_config());
    let (historian, intake) = (plant.historian.listen, rota.listen);
    let week = short(&site.schedule_config());
    let somebody = crate::sim::people::PEOPLE[0].0;
    let Door { address, operator, viewer } = door;
    let (operator, viewer) = (short(operator), short(viewer));
    format!(
        "
The console: {address}
  sign in with the token in {operator}, or in {viewer} to look only
The plant's historian: http://{historian}/api/docs; intake of schedules: http://{intake}/api/docs
In a second terminal:
  {program} link cut barn-1{data}        pull a plug, and watch its line
  {program} link restore barn-1{data}    put it back
  {program} link cut cloud{data}         the site's own link
  {program} edge nodes --config {config}
  {program} outbox stats --config {config}
  {program} edge retain --dry-run --config {config}
  {program} scada producer status --config {scada}
  {program} scada alarms list --config {scada}
  {program} schedule show --user {somebody} --config {week}
  {program} token create me --historian --role viewer --all-tenants --config {scada}
Ctrl-C stops everything; nothing is lost.
"
    )
}

const REDRAW_EVERY: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How long the node's socket and the database may take before their numbers show as unknown.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// One node's numbers. `None` means that whoever knows did not answer.
#[derive(Debug)]
struct Line {
    node: String,
    link: &'static str,
    state: String,
    produced: Option<i64>,
    held: Option<i64>,
    acked: Option<i64>,
    stored: Option<i64>,
    in_cloud: Option<i64>,
    gaps: Option<i64>,
}

/// What is seen in one look.
#[derive(Debug)]
struct View {
    lines: Vec<Line>,
    uplink: &'static str,
    /// Events that are in the cloud and not yet in its stores.
    on_the_bus: Option<i64>,
    /// Animals that were weighed at the site, and those of them that the cloud knows of.
    weighed: Option<i64>,
    weighed_in_cloud: Option<i64>,
    /// What waits in the plant's outbox, and what its historian has.
    in_outbox: Option<i64>,
    historian: Option<Stored>,
    /// How schedules stand, and what somebody was told last.
    schedules: Option<Standing>,
    told: Option<String>,
}

/// Gathers and shows.
#[derive(Debug)]
pub(super) struct Summary {
    sockets: Vec<(NodeId, PathBuf)>,
    links: Arc<Links>,
    database: pg::Options,
    cloud_database: pg::Options,
    plant_database: pg::Options,
    historian_database: pg::Options,
    schedule_database: pg::Options,
    heard: Heard,
    liveness: edge::config::Liveness,
}

impl Summary {
    pub(super) fn new(
        site: &Site,
        config: &edge::Config,
        cloud: &cloud::Config,
        plant: &Plant,
        rota: &::schedule::Config,
        heard: Heard,
        links: Arc<Links>,
    ) -> Summary {
        Summary {
            sockets: links
                .nodes()
                .iter()
                .map(|node| (node.clone(), site.sampler_socket(node)))
                .collect(),
            links,
            database: config.database.clone(),
            cloud_database: cloud.database.clone(),
            plant_database: plant.producer.database.clone(),
            historian_database: plant.historian.database.clone(),
            schedule_database: rota.database.clone(),
            heard,
            liveness: config.liveness,
        }
    }

    /// Shows until dropped.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let terminal = std::io::stdout().is_terminal();
        let mut ticks = tokio::time::interval(if terminal { REDRAW_EVERY } else { REPORT_EVERY });
        let mut clients = Clients::default();
        let mut drawn = 0;
        loop {
            ticks.tick().await;
            for (client, database) in [
                (&mut clients.edge, &self.database),
                (&mut clients.cloud, &self.cloud_database),
                (&mut clients.plant, &self.plant_database),
                (&mut clients.historian, &self.historian_database),
                (&mut clients.schedules, &self.schedule_database),
            ] {
                if client.as_ref().is_none_or(Client::is_closed) {
                    *client = pg::connect(database).await.ok();
                }
            }
            let view = self.gather(&clients).await;
            let text = if terminal { draw(&view, drawn) } else { report(&view) };
            drawn = view.lines.len() + 5;
            let mut out = std::io::stdout();
            // Whoever closed our output still wants the system to run.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }

    async fn gather(&self, clients: &Clients) -> View {
        let now = Timestamp::now();
        let listing = async |edge| edge::registry::list(edge, now, &self.liveness).await;
        let known = ask(&clients.edge, listing).await.unwrap_or_default();
        let weighed = ask(&clients.edge, async |edge| {
            let query = "SELECT count(*) FROM weight_sessions WHERE status = 'finalized'";
            edge.query_one(query, &[]).await.map(|row| row.get(0))
        });
        let weighed = weighed.await;
        let arrived = ask(&clients.cloud, arrived).await;
        let mut lines = Vec::with_capacity(self.sockets.len());
        for (node, socket) in &self.sockets {
            let status = status_of(socket.clone()).await;
            let stored = known.iter().find(|known| known.node_id == node.as_str());
            let number = |of: fn(&Report) -> u64| i64::try_from(of(status.as_ref()?)).ok();
            lines.push(Line {
                node: node.to_string(),
                link: self.links.state(node),
                state: stored
                    .map_or_else(|| "?".to_owned(), |stored| stored.state.as_str().to_owned()),
                produced: number(|report| report.head),
                held: number(|report| report.backlog),
                acked: number(|report| report.acked),
                stored: stored.map(|stored| stored.stored),
                in_cloud: arrived
                    .as_ref()
                    .map(|arrived| arrived.by_stream.get(node.as_str()).copied().unwrap_or(0)),
                gaps: stored.map(|stored| stored.lost),
            });
        }
        View {
            lines,
            uplink: self.links.uplink_state(),
            weighed,
            weighed_in_cloud: arrived.as_ref().map(|arrived| arrived.weighed),
            on_the_bus: arrived.map(|arrived| arrived.on_the_bus),
            in_outbox: ask(&clients.plant, scada::waiting).await,
            historian: ask(&clients.historian, scada::stored).await,
            schedules: ask(&clients.schedules, schedule::standing).await,
            told: self.heard.last(),
        }
    }
}

/// Connections to what is looked at.
#[derive(Debug, Default)]
struct Clients {
    edge: Option<Client>,
    cloud: Option<Client>,
    plant: Option<Client>,
    historian: Option<Client>,
    schedules: Option<Client>,
}

/// An answer, if there is a connection and it comes in time.
async fn ask<'a, T, E>(
    client: &'a Option<Client>,
    question: impl AsyncFnOnce(&'a Client) -> Result<T, E>,
) -> Option<T> {
    let asked = question(client.as_ref()?);
    tokio::time::timeout(ANSWER_WITHIN, asked).await.ok()?.ok()
}

/// What the cloud has taken in.
struct Arrived {
    by_stream: HashMap<String, i64>,
    on_the_bus: i64,
    weighed: i64,
}

async fn arrived(client: &Client) -> Result<Arrived, tokio_postgres::Error> {
    let streams = "SELECT stream, sum(accepted_count)::int8 FROM ledger_frontier GROUP BY stream";
    let rows = client.query(streams, &[]).await?;
    let waiting = client.query_one("SELECT count(*) FROM relay_outbox", &[]).await?;
    let weighed = "SELECT count(*) FROM weighvision_session WHERE status = 'finalized'";
    let weighed = client.query_one(weighed, &[]).await?;
    Ok(Arrived {
        by_stream: rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
        on_the_bus: waiting.get(0),
        weighed: weighed.get(0),
    })
}

/// The node's own report; nothing when it does not answer in time.
async fn status_of(socket: PathBuf) -> Option<Report> {
    let asked = tokio::task::spawn_blocking(move || node::socket::query_status(&socket));
    Some(tokio::time::timeout(ANSWER_WITHIN, asked).await.ok()?.ok()?.ok()?.report)
}

fn shown(number: Option<i64>) -> String {
    number.map_or_else(|| "?".to_owned(), table::grouped)
}

/// The table, over the `drawn` lines of the one before it.
fn draw(view: &View, drawn: usize) -> String {
    let headings =
        ["node", "link", "edge sees", "produced", "spooled", "acked", "stored", "in cloud", "gaps"];
    let mut rows = table::new(&headings, &[3, 4, 5, 6, 7, 8]);
    for line in &view.lines {
        rows.add_row([
            line.node.clone(),
            line.link.to_owned(),
            line.state.clone(),
            shown(line.produced),
            shown(line.held),
            shown(line.acked),
            shown(line.stored),
            shown(line.in_cloud),
            shown(line.gaps),
        ]);
    }
    let mut text = String::new();
    if drawn > 0 {
        // Up to the first line of the old table, and clear from there to the end of the screen.
        let _ = write!(text, "\x1b[{drawn}A\x1b[J");
    }
    let _ = writeln!(text, "{rows}\n\n{}", report(view).trim_end());
    text
}

fn report(view: &View) -> String {
    let lines = &view.lines;
    let sum = |number: fn(&Line) -> Option<i64>| shown(lines.iter().map(number).sum());
    format!(
        "{} nodes: produced {}, spooled {}, acked {}, stored {}, gaps {}; cloud link {}, in cloud {}, on the bus {}; animals weighed {}, in cloud {}\n{}\n{}\n",
        lines.len(),
        sum(|line| line.produced),
        sum(|line| line.held),
        sum(|line| line.acked),
        sum(|line| line.stored),
        sum(|line| line.gaps),
        view.uplink,
        sum(|line| line.in_cloud),
        shown(view.on_the_bus),
        shown(view.weighed),
        shown(view.weighed_in_cloud),
        plant(view),
        people(view),
    )
}

fn people(view: &View) -> String {
    let stands = |number: fn(&Standing) -> i64| shown(view.schedules.as_ref().map(number));
    format!(
        "schedules of {} people: days {}, versions {}, events {}; messages sent {}, waiting {}; {}",
        crate::sim::people::PEOPLE.len(),
        stands(|stands| stands.days),
        stands(|stands| stands.versions),
        stands(|stands| stands.events),
        stands(|stands| stands.sent),
        stands(|stands| stands.waiting),
        view.told.as_deref().unwrap_or("nobody was told anything yet"),
    )
}

fn plant(view: &View) -> String {
    let stored = |number: fn(&Stored) -> i64| shown(view.historian.as_ref().map(number));
    format!(
        "plant of {} nodes: in the outbox {}; historian: telemetry {}, events {}, alarms {}",
        scada::NODES,
        shown(view.in_outbox),
        stored(|stored| stored.telemetry),
        stored(|stored| stored.events),
        stored(|stored| stored.alarms),
    )
}
