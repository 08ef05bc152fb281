//! What `up` shows: a line for each node, from the node's own socket and from the edge's database.
//!
//! On a terminal the table is drawn again in place every second; elsewhere one line of totals is printed now and then, so
//! that a log stays readable.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use event::id::NodeId;
use event::wire::Report;
use jiff::Timestamp;
use tokio_postgres::Client;

use super::links::{DEFAULT_DATA, Links};
use super::site::Site;
use crate::table;

/// What a new user can try, with the words they would type.
pub(super) fn hint(site: &Site) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let short = |path: &Path| path.strip_prefix(&here).unwrap_or(path).display().to_string();
    let program =
        std::env::current_exe().map_or_else(|_| "holdfast".to_owned(), |path| short(&path));
    let data = match short(site.folder()) {
        folder if folder == DEFAULT_DATA => String::new(),
        folder => format!(" --data {folder}"),
    };
    let config = short(&site.edge_config());
    format!(
        "
In a second terminal:
  {program} link cut barn-1{data}        pull a plug, and watch its line
  {program} link restore barn-1{data}    put it back
  {program} edge nodes --config {config}
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
    gaps: Option<i64>,
}

/// Gathers and shows.
#[derive(Debug)]
pub(super) struct Summary {
    sockets: Vec<(NodeId, PathBuf)>,
    links: Arc<Links>,
    database: pg::Options,
    liveness: edge::config::Liveness,
}

impl Summary {
    pub(super) fn new(site: &Site, config: &edge::Config, links: Arc<Links>) -> Summary {
        Summary {
            sockets: links
                .nodes()
                .iter()
                .map(|node| (node.clone(), site.sampler_socket(node)))
                .collect(),
            links,
            database: config.database.clone(),
            liveness: config.liveness,
        }
    }

    /// Shows until dropped.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let terminal = std::io::stdout().is_terminal();
        let mut ticks = tokio::time::interval(if terminal { REDRAW_EVERY } else { REPORT_EVERY });
        let mut client = None;
        let mut drawn = 0;
        loop {
            ticks.tick().await;
            if client.as_ref().is_none_or(Client::is_closed) {
                client = pg::connect(&self.database).await.ok();
            }
            let lines = self.gather(client.as_ref()).await;
            let text = if terminal { draw(&lines, drawn) } else { report(&lines) };
            drawn = lines.len() + 3;
            let mut out = std::io::stdout();
            // Whoever closed our output still wants the system to run.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }

    async fn gather(&self, client: Option<&Client>) -> Vec<Line> {
        let known = match client {
            Some(client) => {
                let listing = edge::registry::list(client, Timestamp::now(), &self.liveness);
                tokio::time::timeout(ANSWER_WITHIN, listing)
                    .await
                    .ok()
                    .and_then(Result::ok)
                    .unwrap_or_default()
            }
            None => Vec::new(),
        };
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
                gaps: stored.map(|stored| stored.lost),
            });
        }
        lines
    }
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
fn draw(lines: &[Line], drawn: usize) -> String {
    let headings = ["node", "link", "edge sees", "produced", "spooled", "acked", "stored", "gaps"];
    let mut rows = table::new(&headings, &[3, 4, 5, 6, 7]);
    for line in lines {
        rows.add_row([
            line.node.clone(),
            line.link.to_owned(),
            line.state.clone(),
            shown(line.produced),
            shown(line.held),
            shown(line.acked),
            shown(line.stored),
            shown(line.gaps),
        ]);
    }
    let mut text = String::new();
    if drawn > 0 {
        // Up to the first line of the old table, and clear from there to the end of the screen.
        let _ = write!(text, "\x1b[{drawn}A\x1b[J");
    }
    let _ = writeln!(text, "{rows}\n\n{}", report(lines).trim_end());
    text
}

fn report(lines: &[Line]) -> String {
    let sum = |number: fn(&Line) -> Option<i64>| shown(lines.iter().map(number).sum());
    format!(
        "{} nodes: produced {}, spooled {}, acked {}, stored {}, gaps {}\n",
        lines.len(),
        sum(|line| line.produced),
        sum(|line| line.held),
        sum(|line| line.acked),
        sum(|line| line.stored),
        sum(|line| line.gaps),
    )
}
