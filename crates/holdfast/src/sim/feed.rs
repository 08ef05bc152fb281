//! Feeds one node's sampler socket with a simulated barn, for ever or for a number of rounds.
//!
//! Behaves as a careful sampler does: every request carries its own event id, and what was not answered before the connection
//! broke is sent again with that id, so that the node may be killed at any moment without a reading being lost or doubled.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::farm::Barn;

/// While the node is away, readings wait here; beyond this new ones are skipped and counted, as a small sampler
/// would have to. Ten minutes of four readings a second.
const MAX_WAITING: usize = 2_400;

/// How long to wait before the next try to reach the node.
const RETRY: Duration = Duration::from_millis(250);

/// What a feed has done, for the log line at its end.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) skipped: u64,
}

/// One simulated barn on one socket.
#[derive(Debug)]
pub(crate) struct Feed {
    socket: PathBuf,
    every: Duration,
    rng: StdRng,
    barn: Barn,
    waiting: std::collections::VecDeque<String>,
    tally: Tally,
    /// Whether it was said that no node answers.
    missed: bool,
}

impl Feed {
    pub(crate) fn new(socket: &Path, every: Duration, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let barn = Barn::new(&mut rng);
        Self {
            socket: socket.to_owned(),
            every,
            rng,
            barn,
            waiting: Default::default(),
            tally: Tally::default(),
            missed: false,
        }
    }

    /// Runs until `rounds` rounds of readings were accepted or refused (`None`: for ever).
    pub(crate) async fn run(mut self, rounds: Option<u64>) -> anyhow::Result<Tally> {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let started = Timestamp::now();
        let mut connection = None;
        let mut round = 0;
        while rounds.is_none_or(|rounds| round < rounds) {
            ticks.tick().await;
            round += 1;
            self.take_readings(started)?;
            self.hand_over(&mut connection).await;
        }
        while !self.waiting.is_empty() {
            self.hand_over(&mut connection).await;
            if connection.is_none() {
                tokio::time::sleep(RETRY).await;
            }
        }
        Ok(self.tally)
    }

    fn take_readings(&mut self, started: Timestamp) -> anyhow::Result<()> {
        let now = Timestamp::now();
        let seconds_of_day = now.as_second().rem_euclid(86_400);
        let elapsed = now.duration_since(started).as_secs_f64() / 86_400.0;
        #[expect(clippy::cast_precision_loss, reason = "seconds of a day fit a double exactly")]
        let readings = self.barn.readings(seconds_of_day as f64, elapsed, &mut self.rng);
        for mut reading in readings {
            if self.waiting.len() == MAX_WAITING {
                self.tally.skipped += 1;
                continue;
            }
            let request = reading.as_object_mut().context("a reading is an object")?;
            request.insert("event_id".into(), event::id::EventId::mint().to_string().into());
            request.insert("occurred_at".into(), now.to_string().into());
            self.waiting.push_back(format!("{reading}\n"));
        }
        Ok(())
    }

    /// Sends what waits and takes the replies. A broken connection is dropped; what has no reply stays waiting.
    async fn hand_over(&mut self, connection: &mut Option<Connection>) {
        if connection.is_none() {
            match Connection::open(&self.socket).await {
                Ok(open) => {
                    self.missed = false;
                    *connection = Some(open);
                }
                Err(error) if !self.missed => {
                    self.missed = true;
                    tracing::warn!(socket = %self.socket.display(), %error, "no node answers there; readings wait for it");
                }
                Err(_) => {}
            }
        }
        let Some(open) = connection else { return };
        if let Err(error) = self.exchange(open).await {
            tracing::debug!(socket = %self.socket.display(), %error, "node went away, will send again");
            *connection = None;
        }
    }

    async fn exchange(&mut self, open: &mut Connection) -> anyhow::Result<()> {
        // A window keeps both sides from blocking on full socket buffers.
        const WINDOW: usize = 64;
        while !self.waiting.is_empty() {
            let window = self.waiting.len().min(WINDOW);
            let lines: String = self.waiting.iter().take(window).map(String::as_str).collect();
            open.writer.write_all(lines.as_bytes()).await?;
            for _ in 0..window {
                let reply = open.reply().await?;
                match reply["error"]["code"].as_str() {
                    None => self.tally.accepted += 1,
                    Some("full" | "not_durable" | "stopping") => {
                        anyhow::bail!("the node cannot take it now")
                    }
                    Some(_) => {
                        self.tally.refused += 1;
                        tracing::warn!(error = %reply["error"]["message"], "the node refused a reading");
                    }
                }
                self.waiting.pop_front();
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Connection {
    async fn open(socket: &Path) -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::connect(socket).await?.into_split();
        Ok(Self { reader: BufReader::new(reader), writer })
    }

    async fn reply(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        anyhow::ensure!(
            self.reader.read_line(&mut line).await? > 0,
            "the node closed the connection"
        );
        Ok(serde_json::from_str(&line)?)
    }
}
