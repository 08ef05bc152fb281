//! Readings as nodes send them: farm envelopes of `telemetry.ingested`, and batches of them.

use anyhow::Result;
use bytes::Bytes;
use event::id::{BarnId, DeviceId, Epoch, EventId, FarmId, NodeId, TenantId};
use event::wire;
use jiff::{SignedDuration, Timestamp};

/// What the node uses.
const COMPRESSION_LEVEL: i32 = 1;

/// One device in its barn, whose readings are a second apart.
pub(crate) struct Device {
    tenant: TenantId,
    farm: FarmId,
    barn: BarnId,
    device: DeviceId,
    start: Timestamp,
}

impl Device {
    /// A new device of this tenant, whose readings began three hours ago.
    pub(crate) fn new(tenant: TenantId) -> Device {
        Device {
            tenant,
            farm: FarmId::mint(),
            barn: BarnId::mint(),
            device: DeviceId::mint(),
            start: Timestamp::now() - SignedDuration::from_hours(3),
        }
    }

    /// Its reading number `index`, as JSON.
    pub(crate) fn reading(&self, index: u64) -> String {
        let Device { tenant, farm, barn, device, start } = self;
        let event = EventId::mint();
        // A day's worth of times, over and over, keeps them in this month and the next.
        let at = *start + SignedDuration::from_secs(i64::try_from(index % 86_400).unwrap_or(0));
        let (metric, unit, base) = match index % 3 {
            0 => ("temperature", "C", 24.0),
            1 => ("humidity", "%", 61.0),
            _ => ("ammonia", "ppm", 7.0),
        };
        let value = base + (index * 7_919 % 1_000) as f64 / 100.0;
        format!(
            r#"{{"event_id":"{event}","event_type":"telemetry.ingested","tenant_id":"{tenant}","farm_id":"{farm}","barn_id":"{barn}","device_id":"{device}","session_id":null,"occurred_at":"{at}","trace_id":null,"payload":{{"metric_type":"{metric}","metric_value":{value},"unit":"{unit}","quality":"GOOD"}}}}"#
        )
    }
}

/// A batch of one node, ready to be sent.
pub(crate) struct Message {
    /// Whose it is.
    pub(crate) node: NodeId,
    /// The compressed batch.
    pub(crate) body: Bytes,
}

/// `count` messages of `records` readings each, from `nodes` nodes in turns.
pub(crate) fn messages(
    tenant: TenantId,
    nodes: usize,
    count: usize,
    records: usize,
) -> Result<Vec<Message>> {
    let senders =
        (0..nodes).map(|n| Ok((format!("bench-{n}").parse()?, Epoch::mint(), Device::new(tenant))));
    let senders: Vec<(NodeId, Epoch, Device)> = senders.collect::<Result<_>>()?;
    let made = (0..count).map(|index| {
        let (node, epoch, device) = &senders[index % nodes];
        let first = (index / nodes * records) as u64 + 1;
        let batch = (first..first + records as u64).map(|seq| (seq, device.reading(seq)));
        let json = wire::encode(*epoch, batch, &[]);
        let body = wire::compress(&json, COMPRESSION_LEVEL)?.into();
        Ok(Message { node: node.clone(), body })
    });
    made.collect()
}
