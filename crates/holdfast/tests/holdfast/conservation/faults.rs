//! What can go wrong, each for a moment.

use std::io::Write;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rig::Mode;

use super::site::Site;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    KillNode(usize),
    KillEdge(usize),
    KillBroker,
    KillPostgres,
    HaltNode(usize),
    HaltEdge(usize),
    HaltBroker,
    KillCloud(usize),
    HaltCloud(usize),
    Link(usize, Mode),
    Uplink(usize, Mode),
    FillDisk(usize),
}

impl Fault {
    /// Draws one; those that cost little time are more frequent.
    pub(crate) fn draw(site: &Site, rng: &mut StdRng) -> Fault {
        let node = rng.random_range(0..site.nodes.len());
        let edge = rng.random_range(0..site.edges.len());
        let small_disk = site.nodes.iter().position(|node| node.tmpfs.is_some());
        match rng.random_range(0..25) {
            0..4 => Fault::KillNode(node),
            4..7 => Fault::KillEdge(edge),
            7 => Fault::KillBroker,
            8 => Fault::KillPostgres,
            9 => Fault::HaltNode(node),
            10 => Fault::HaltEdge(edge),
            11 => Fault::HaltBroker,
            12 => Fault::Link(node, Mode::Stall),
            13 => Fault::Link(node, Mode::Delay(Duration::from_millis(100))),
            14 | 15 => Fault::Link(node, Mode::DropUp),
            16 => Fault::Link(node, Mode::DropDown),
            17 | 18 if small_disk.is_some() => Fault::FillDisk(small_disk.unwrap()),
            19 => Fault::KillCloud(edge),
            20 => Fault::HaltCloud(edge),
            21 => Fault::Uplink(edge, Mode::DropUp),
            22 => Fault::Uplink(edge, Mode::DropDown),
            23 => Fault::Uplink(edge, Mode::Cut),
            _ => Fault::Link(node, Mode::Cut),
        }
    }

    /// Lets it last for a moment, and puts it right again.
    pub(crate) async fn inflict(self, site: &mut Site, rng: &mut impl Rng) -> anyhow::Result<()> {
        let moment = Duration::from_millis(rng.random_range(20..600));
        match self {
            Fault::KillNode(index) => {
                site.nodes[index].role.kill().await?;
                tokio::time::sleep(moment / 4).await;
                site.nodes[index].role.launch()?;
            }
            Fault::KillEdge(index) => {
                site.edges[index].kill().await?;
                tokio::time::sleep(moment).await;
                site.edges[index].launch()?;
            }
            Fault::KillBroker => {
                site.broker.kill().await?;
                tokio::time::sleep(moment).await;
                site.broker.restart().await?;
            }
            Fault::KillPostgres => {
                site.postgres.kill().await?;
                tokio::time::sleep(moment).await;
                site.postgres.restart().await?;
            }
            Fault::HaltNode(index) => {
                site.nodes[index].role.halt();
                tokio::time::sleep(moment * 3).await;
                site.nodes[index].role.go_on();
            }
            Fault::HaltEdge(index) => {
                site.edges[index].halt();
                tokio::time::sleep(moment * 3).await;
                site.edges[index].go_on();
            }
            Fault::HaltBroker => {
                site.broker.process().unwrap().stop();
                tokio::time::sleep(moment).await;
                site.broker.process().unwrap().cont();
            }
            Fault::KillCloud(index) => {
                site.cloud.uplinks[index].cloud.kill().await?;
                tokio::time::sleep(moment).await;
                site.cloud.uplinks[index].cloud.launch()?;
            }
            Fault::HaltCloud(index) => {
                site.cloud.uplinks[index].cloud.halt();
                tokio::time::sleep(moment * 3).await;
                site.cloud.uplinks[index].cloud.go_on();
            }
            Fault::Uplink(index, mode) => {
                site.cloud.uplinks[index].link.set(mode);
                tokio::time::sleep(moment).await;
                site.cloud.uplinks[index].link.set(Mode::Pass);
            }
            Fault::Link(index, mode) => {
                site.nodes[index].link.set(mode);
                tokio::time::sleep(moment).await;
                site.nodes[index].link.set(Mode::Pass);
            }
            Fault::FillDisk(index) => {
                // Without its link, so that there is something on the disk that nobody else has.
                site.nodes[index].link.set(Mode::Cut);
                tokio::time::sleep(moment * 3).await;
                let path = site.nodes[index].tmpfs.as_ref().unwrap().path().join("filler");
                fill(&path);
                tokio::time::sleep(moment * 3).await;
                std::fs::remove_file(&path)?;
                site.nodes[index].link.set(Mode::Pass);
            }
        }
        // Time for something to flow between two faults, so that each hits work under way.
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..300))).await;
        Ok(())
    }
}

/// Fills the small disk of a node without a link until the node has to give something up. Drawn faults may or may not
/// come to that; this makes sure that gaps are part of every run.
pub(crate) async fn force_a_gap(site: &mut Site) -> anyhow::Result<()> {
    let Some(node) = site.nodes.iter().find(|node| node.tmpfs.is_some()) else { return Ok(()) };
    node.link.set(Mode::Cut);
    node.wait_for_status("several segments wait", |status| status.local.segments >= 3).await?;
    let path = node.tmpfs.as_ref().unwrap().path().join("filler");
    fill(&path);
    let dropped =
        node.wait_for_status("the oldest are dropped", |status| status.report.drops > 0).await;
    std::fs::remove_file(&path)?;
    node.link.set(Mode::Pass);
    dropped
}

/// Writes until the disk takes no more.
fn fill(path: &std::path::Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let block = [7u8; 4096];
    while file.write_all(&block).is_ok() {}
}
