//! One connection: connecting, reading, waiting. docs/spec/scada-inputs.md has the states.

use std::time::Duration;

use jiff::Timestamp;
use lease::backoff::Backoff;
use rand::RngExt;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::counts::InputCounts;
use super::modbus::ModbusDevice;
use super::series::{Series, Taken};
use super::{Connection, Cycle, Device, Endpoint, Lost, Seen};

/// Half of the first pause: it is doubled at the first failure already.
const PAUSE_BASE: Duration = Duration::from_millis(500);
const PAUSE_CAP: Duration = Duration::from_secs(60);
const PAUSE_JITTER: Duration = Duration::from_secs(1);

/// Reads a device until `stop`, or until nobody takes the cycles any more.
pub(super) async fn run(
    connection: Connection,
    counts: InputCounts,
    sender: mpsc::Sender<Cycle>,
    stop: CancellationToken,
) {
    let Connection { name, every, timeout, max_silence, endpoint, points } = connection;
    let series = points.into_iter().map(|point| Series::new(point, max_silence)).collect();
    let poll = Poll { name, every, series, link: Link::default(), counts, sender };
    match endpoint {
        Endpoint::Modbus(modbus) => poll.run(ModbusDevice::new(modbus, timeout), &stop).await,
        #[cfg(feature = "opcua")]
        Endpoint::OpcUa(server) => {
            let device = super::opcua::OpcUaDevice::new(server, timeout, every);
            Box::pin(poll.run(device, &stop)).await;
        }
        // The mapping was refused.
        #[cfg(not(feature = "opcua"))]
        Endpoint::OpcUa(_) => drop((poll, timeout)),
    }
}

struct Poll {
    name: String,
    every: Duration,
    series: Vec<Series>,
    link: Link,
    counts: InputCounts,
    sender: mpsc::Sender<Cycle>,
}

impl Poll {
    async fn run(mut self, mut device: impl Device, stop: &CancellationToken) {
        stop.run_until_cancelled(self.read_on(&mut device)).await;
        device.disconnect().await;
    }

    /// Reads until nobody takes the cycles.
    async fn read_on(&mut self, device: &mut impl Device) {
        loop {
            let began = Instant::now();
            let seen = self.read(device).await;
            let cycle = self.take(&seen, Timestamp::now());
            let has_something = !cycle.envelopes.is_empty() || !cycle.left_out.is_empty();
            if has_something && self.sender.send(cycle).await.is_err() {
                return;
            }
            let next = began + self.every;
            tokio::time::sleep_until(self.link.wakes_at.map_or(next, |at| at.min(next))).await;
        }
    }

    /// What the device says of every tag; when it is away, that of every tag.
    async fn read(&mut self, device: &mut impl Device) -> Vec<Seen> {
        if self.link.wakes_at.is_some_and(|at| Instant::now() < at) {
            return Seen::lost(self.series.len(), &self.link.trouble);
        }
        match self.link.read(device).await {
            Ok(seen) => {
                self.counts.read();
                if self.link.failures > 0 {
                    tracing::info!(connection = self.name, "an input can be read again");
                }
                self.link = Link { is_connected: true, ..Link::default() };
                seen
            }
            Err(Lost(trouble)) => {
                self.counts.failed();
                device.disconnect().await;
                if self.link.failures == 0 {
                    tracing::warn!(connection = self.name, trouble, "an input cannot be read");
                }
                let seen = Seen::lost(self.series.len(), &trouble);
                self.link.fail(trouble);
                seen
            }
        }
    }

    fn take(&mut self, seen: &[Seen], now: Timestamp) -> Cycle {
        let mut cycle = Cycle::default();
        for one in seen {
            let Some(series) = self.series.get_mut(one.tag) else { continue };
            let taken = match one.is_new {
                true => series.take(&one.raw, now),
                false => series.again(&one.raw, now),
            };
            match taken {
                Taken::Sent(reading) => cycle.envelopes.push(reading),
                Taken::LeftOut(reading) => cycle.left_out.read(&reading),
                Taken::Nothing => {}
            }
        }
        cycle
    }
}

/// How it stands with the device.
#[derive(Debug, Default)]
struct Link {
    is_connected: bool,
    failures: u32,
    trouble: String,
    /// When connecting is tried again, after a failure.
    wakes_at: Option<Instant>,
}

impl Link {
    async fn read(&mut self, device: &mut impl Device) -> Result<Vec<Seen>, Lost> {
        if !self.is_connected {
            device.connect().await?;
            self.is_connected = true;
        }
        device.read().await
    }

    fn fail(&mut self, trouble: String) {
        let pause = Backoff::Exponential { base: PAUSE_BASE, cap: PAUSE_CAP, jitter: PAUSE_JITTER };
        let failures = self.failures.saturating_add(1);
        let wakes_at = Instant::now() + pause.delay(failures, rand::rng().random_range(0.0..=1.0));
        *self = Link { is_connected: false, failures, trouble, wakes_at: Some(wakes_at) };
    }
}
