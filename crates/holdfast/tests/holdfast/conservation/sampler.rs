//! A sampler that never gives up on a reading: it sends it again, with its event id, until it has a receipt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use event::id::EventId;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// Readings sent together; they wait for their receipts together too.
const ROUND: usize = 20;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(60);
/// A node that is halted answers late; one that was killed breaks the connection at once.
const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// Which sequence each event id was given.
pub(crate) type Receipts = BTreeMap<EventId, u64>;

pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Receipts>,
}

impl Sampler {
    pub(crate) fn start(socket: &Path) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(run(socket.to_owned(), Arc::clone(&stop)));
        Sampler { stop, task }
    }

    /// Lets the round under way finish, and returns every receipt.
    pub(crate) async fn finish(self) -> Receipts {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn run(socket: PathBuf, stop: Arc<AtomicBool>) -> Receipts {
    let mut receipts = Receipts::new();
    let mut value = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let mut round: Vec<(EventId, Value)> = Vec::new();
        for _ in 0..ROUND {
            let id = EventId::mint();
            value += 0.5;
            round.push((id, json!({"event_id": id, "metric_type": "weight", "metric_value": value, "unit": "kg"})));
        }
        while !round.is_empty() {
            // An error means that the outcome is not known: what has no receipt is sent again.
            let _ =
                tokio::time::timeout(REPLY_WITHIN, hand_over(&socket, &mut round, &mut receipts))
                    .await;
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        }
    }
    receipts
}

async fn hand_over(
    socket: &Path,
    round: &mut Vec<(EventId, Value)>,
    receipts: &mut Receipts,
) -> anyhow::Result<()> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await?);
    let lines: String = round.iter().map(|(_, request)| format!("{request}\n")).collect();
    stream.write_all(lines.as_bytes()).await?;
    let sent: Vec<EventId> = round.iter().map(|(id, _)| *id).collect();
    for id in sent {
        let mut line = String::new();
        anyhow::ensure!(stream.read_line(&mut line).await? > 0, "closed");
        let reply: Value = serde_json::from_str(&line)?;
        match reply["seq"].as_u64() {
            Some(seq) => {
                assert_eq!(reply["event_id"], json!(id), "replies come in order");
                receipts.insert(id, seq);
                round.retain(|(waiting, _)| *waiting != id);
            }
            None => {
                let code = reply["error"]["code"].as_str();
                assert!(
                    matches!(code, Some("full" | "not_durable" | "stopping")),
                    "a good reading was refused: {reply}"
                );
            }
        }
    }
    Ok(())
}
