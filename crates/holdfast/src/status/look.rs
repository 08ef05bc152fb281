//! Asks everything that is configured, side by side, each within a limit of time.

use std::path::Path;
use std::time::Duration;

use api::tokens::Tenants;
use edge::registry::State;
use edge::sync::admin::{self, Breaker};
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::own::{Own, Said};
use super::places::{Found, Places};
use super::view::{Disk, Heard, Node, Outbox, Part, Relay, View};
use super::{letters, plant};

/// How long anything may take before it counts as away.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Rows of one kind are counted up to this: "so many or more" costs little at any backlog.
pub(super) const COUNT_LIMIT: i64 = 100_000;
/// Readiness is a few lines.
const MAX_WORDS: usize = 20;

/// Looks at everything once. Nothing is judged yet.
pub(super) async fn look(places: &Places) -> View {
    let mut view = View::new(Timestamp::now());
    view.parts.extend(places.refused.iter().map(|one| Part {
        part: format!("[{}]", one.section),
        place: one.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        problems: vec![format!("its configuration cannot be used: {}", one.why)],
        next: "mend the file; `holdfast doctor` says what would be right".to_owned(),
        ..Part::default()
    }));
    let (roles, site, cloud, plant, historian, schedules, buses, sockets) = tokio::join!(
        roles(places),
        site(places),
        cloud(places),
        plant::nodes(places),
        plant::historian(places),
        plant::schedules(places),
        letters::buses(places),
        sockets(places),
    );
    view.parts.extend(roles);
    if let Some(site) = site {
        view.parts.push(site.part);
        view.nodes = site.nodes;
        view.dead_letters.edge = site.outbox.as_ref().map(|outbox| outbox.dead_letters);
        view.outbox = site.outbox;
    }
    let (buses, at_brokers) = buses;
    if let Some((part, relay, consumers)) = cloud {
        view.parts.push(part);
        view.dead_letters.relay = relay.as_ref().map(|relay| relay.dead_letters);
        view.dead_letters.consumers = both(consumers, at_brokers.consumers);
        view.relay = relay;
    }
    if let Some((part, plant)) = plant {
        view.parts.push(part);
        view.dead_letters.plant = plant.failed;
        view.plant = Some(plant);
    }
    if let Some((part, mut historian)) = historian {
        view.parts.push(part);
        if let Some(one) = &mut historian {
            one.dead_letters = both(one.dead_letters, at_brokers.historian);
        }
        view.dead_letters.historian = historian.as_ref().and_then(|one| one.dead_letters);
        view.historian = historian;
    }
    if let Some((part, schedules)) = schedules {
        view.parts.push(part);
        view.schedules = schedules;
    }
    view.parts.extend(buses);
    join_sockets(&mut view, sockets);
    view.disks = disks(places);
    view
}

/// What a table has and what a broker has, which are not the same letters; not known when one of them is not.
fn both(table: Option<i64>, broker: Option<i64>) -> Option<i64> {
    Some(table?.saturating_add(broker?))
}

/// The roles' own word, from `/readyz`.
async fn roles(places: &Places) -> Vec<Part> {
    let mut asked: Vec<(&str, Own, String)> = Vec::new();
    let mut add = |name, own, run: &str, option: String| {
        asked.push((name, own, format!("start it: holdfast {run}{option}, or read its log")));
    };
    if let Some(found) = &places.edge {
        let own = Own::new(found.config.listen, found.config.tls.as_ref());
        add("edge", own, "edge run", found.option());
    }
    if let Some(found) = &places.cloud {
        let own = Own::new(found.config.listen, found.config.tls.as_ref());
        add("cloud", own, "cloud run", found.option());
    }
    if let Some(found) = &places.producer {
        let own = Own::new(found.config.listen, found.config.tls.as_ref());
        add("plant", own, "scada producer run", found.option());
    }
    if let Some(found) = &places.historian {
        let own = Own::new(found.config.listen, found.config.tls.as_ref());
        add("historian", own, "scada historian run", found.option());
    }
    if let Some(found) = &places.schedule {
        let own = Own::new(found.config.listen, found.config.tls.as_ref());
        add("schedule intake", own, "schedule serve", found.option());
    }
    if let Some(found) = &places.console {
        let own = Own::new(found.config.listen, found.config.tls.as_ref());
        add("console", own, "console run", found.option());
    }
    let in_up = places.folder.is_some();
    let mut set = JoinSet::new();
    for (order, (name, own, next)) in asked.into_iter().enumerate() {
        let next = match in_up {
            true => "`holdfast up` starts it again; its log is in the data folder".to_owned(),
            false => next,
        };
        let name = name.to_owned();
        set.spawn(async move { (order, ready(name, own, next).await) });
    }
    let mut parts = set.join_all().await;
    parts.sort_by_key(|(order, _)| *order);
    parts.into_iter().map(|(_, part)| part).collect()
}

async fn ready(name: String, own: Own, next: String) -> Part {
    let place = own.address().to_string();
    let mut part = Part { part: name, place, next, ..Part::default() };
    match own.ask("/readyz", ANSWER_WITHIN).await {
        Said::Words(ready, words) => {
            part.answers = true;
            let words = words.lines().take(MAX_WORDS).map(str::to_owned);
            match ready {
                true => part.notes = words.skip(1).collect(),
                false => part.problems = words.collect(),
            }
        }
        Said::Locked => {
            part.answers = true;
            part.notes.push("listens; it tells only clients with a certificate more".to_owned());
        }
        Said::Late => {
            part.problems.push(format!("does not answer within {} s", ANSWER_WITHIN.as_secs()));
        }
        Said::Away => part.problems.push("nothing answers there".to_owned()),
    }
    part
}

/// What a database of ours is called among the parts.
pub(super) fn database(name: &str, option: &str) -> Part {
    Part {
        part: format!("{name} database"),
        answers: true,
        next: format!(
            "check that Postgres runs and can be reached: holdfast doctor {}{option}",
            name.split(' ').next().unwrap_or(name)
        ),
        ..Part::default()
    }
}

/// An answer of a database within the limit; without one the part says why.
pub(super) async fn ask<T>(
    part: &mut Part,
    question: impl Future<Output = Result<T, pg::Error>>,
) -> Option<T> {
    let problem = match tokio::time::timeout(ANSWER_WITHIN, question).await {
        Ok(Ok(answer)) => return Some(answer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("does not answer within {} s", ANSWER_WITHIN.as_secs()),
    };
    part.answers = false;
    part.problems.push(problem);
    None
}

struct Site {
    part: Part,
    nodes: Vec<Node>,
    outbox: Option<Outbox>,
}

async fn site(places: &Places) -> Option<Site> {
    let found = places.edge.as_ref()?;
    let mut part = database("edge", &found.option());
    let now = Timestamp::now();
    let asked = async {
        let client = pg::connect(&found.config.database).await?;
        let nodes = edge::registry::list(&client, now, &found.config.liveness).await;
        let one = pg::Options { max_connections: 1, ..found.config.database.clone() };
        let stats = admin::stats(&pg::Pool::new(&one)?, &Tenants::All, false).await?;
        Ok((nodes.map_err(|error| error.to_string()), stats))
    };
    let (nodes, outbox) = match ask(&mut part, asked).await {
        Some((Ok(nodes), stats)) => (nodes, Some(outbox(found, &stats))),
        Some((Err(problem), stats)) => {
            part.problems.push(format!("the list of nodes: {problem}"));
            (Vec::new(), Some(outbox(found, &stats)))
        }
        None => (Vec::new(), None),
    };
    Some(Site { part, nodes: nodes.into_iter().map(node).collect(), outbox })
}

fn node(known: edge::registry::Node) -> Node {
    let own = |name: &str| known.status.as_ref().and_then(|status| status[name].as_i64());
    let state = match known.state {
        _ if known.disabled_at.is_some() => Heard::Disabled,
        State::Online => Heard::Live,
        State::Late => Heard::Late,
        State::Offline => Heard::Silent,
        State::Never => Heard::Never,
    };
    Node {
        backlog: own("backlog"),
        free_bytes: own("free_bytes"),
        node_id: known.node_id,
        state,
        heard_at: known.last_rx_at,
        stored: Some(known.stored),
        lost: Some(known.lost),
        quarantined: Some(known.quarantined),
        flag: known.flag_reason,
    }
}

fn outbox(found: &Found<edge::Config>, stats: &admin::Stats) -> Outbox {
    let tenants = &stats.tenants;
    let mut failures: Vec<String> =
        tenants.iter().filter_map(|one| one.last_failure.clone()).collect();
    failures.sort();
    failures.dedup();
    let dead = |one: &admin::TenantStats| one.rows.get("dlq").copied().unwrap_or_default();
    Outbox {
        waiting: tenants.iter().map(admin::TenantStats::waiting).sum(),
        oldest_at: tenants.iter().filter_map(|one| one.oldest_at).min(),
        dead_letters: tenants.iter().map(dead).sum(),
        stuck: tenants.iter().map(|one| one.stuck).sum(),
        breaker: match stats.breaker {
            Breaker::Closed => "closed",
            Breaker::HalfOpen => "half_open",
            Breaker::Open => "open",
        },
        paused_until: stats.paused_until,
        failures,
        last_acked_at: tenants.iter().filter_map(|one| one.last_acked_at).max(),
        acked_per_second: tenants.iter().map(|one| one.acked_per_second).sum(),
        drain_seconds: stats.drain_seconds,
        has_cloud: found.config.sync.is_some(),
        option: found.option(),
    }
}

async fn cloud(places: &Places) -> Option<(Part, Option<Relay>, Option<i64>)> {
    let found = places.cloud.as_ref()?;
    let mut part = database("cloud", &found.option());
    let asked = async {
        let one = pg::Options { max_connections: 1, ..found.config.database.clone() };
        let relay = cloud::relay::glance(&pg::Pool::new(&one)?).await?;
        let client = pg::connect(&found.config.database).await?;
        Ok((relay, cloud::dead_letters::count_to(&client, COUNT_LIMIT).await?))
    };
    let Some((glance, consumers)) = ask(&mut part, asked).await else {
        return Some((part, None, None));
    };
    let relay = Relay {
        waiting: glance.rows,
        dead_letters: glance.dead,
        oldest_seconds: glance.oldest.map(|(_, age)| age),
        option: found.option(),
    };
    Some((part, Some(relay), Some(consumers)))
}

/// The nodes of this machine, by their own sockets.
async fn sockets(places: &Places) -> Vec<(String, Result<node::NodeStatus, String>)> {
    let mut set = JoinSet::new();
    for found in &places.nodes {
        let name = found.config.identity.node_id.to_string();
        let socket = found.config.socket.clone();
        set.spawn(async move {
            let asked = tokio::task::spawn_blocking(move || node::socket::query_status(&socket));
            let answer = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
                Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
                _ => Err(format!("does not answer within {} s", ANSWER_WITHIN.as_secs())),
            };
            (name, answer)
        });
    }
    let mut told = set.join_all().await;
    told.sort_by(|a, b| a.0.cmp(&b.0));
    told
}

/// What a node says itself is newer than what the edge heard of it. One that does not answer is a part that is away.
fn join_sockets(view: &mut View, told: Vec<(String, Result<node::NodeStatus, String>)>) {
    for (name, answer) in told {
        let index = match view.nodes.iter().position(|node| node.node_id == name) {
            Some(index) => index,
            None => {
                view.nodes.push(Node {
                    node_id: name.clone(),
                    state: Heard::Unknown,
                    heard_at: None,
                    backlog: None,
                    stored: None,
                    lost: None,
                    quarantined: None,
                    free_bytes: None,
                    flag: None,
                });
                view.nodes.len() - 1
            }
        };
        let node = &mut view.nodes[index];
        match answer {
            Ok(status) => {
                node.backlog = i64::try_from(status.report.backlog).ok();
                node.free_bytes = status.report.free_bytes.and_then(|it| i64::try_from(it).ok());
            }
            Err(problem) => view.parts.push(Part {
                part: format!("node {name}"),
                problems: vec![problem],
                away_since: node.heard_at,
                next: "start it: holdfast-node run, or read its log; what it has is in its spool"
                    .to_owned(),
                ..Part::default()
            }),
        }
    }
}

fn disks(places: &Places) -> Vec<Disk> {
    let mut paths: Vec<(String, &Path)> = Vec::new();
    if let Some(folder) = &places.folder {
        paths.push(("data folder".to_owned(), folder));
    } else {
        for found in &places.nodes {
            paths.push(("spool".to_owned(), &found.config.spool.dir));
        }
        if let Some(found) = &places.producer {
            paths.push(("plant's spool".to_owned(), &found.config.spool.dir));
        }
        let kept = places.edge.as_ref().and_then(|found| found.config.retention.min_free.as_ref());
        paths.extend(kept.map(|kept| ("edge".to_owned(), kept.path.as_path())));
    }
    let disk = |(what, path): (String, &Path)| {
        let seen = rustix::fs::statvfs(path).ok()?;
        Some(Disk {
            what,
            path: path.display().to_string(),
            free_bytes: free_bytes(path)?,
            total_bytes: seen.f_blocks.saturating_mul(seen.f_frsize),
        })
    };
    paths.into_iter().filter_map(disk).collect()
}

/// What a user who is not root may still write there.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let seen = rustix::fs::statvfs(path).ok()?;
    Some(seen.f_bavail.saturating_mul(seen.f_frsize))
}
