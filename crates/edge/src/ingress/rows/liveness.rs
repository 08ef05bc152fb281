//! `nodes`, `devices`: when each was last heard. Both times only grow.

use std::collections::BTreeMap;

use event::id::{DeviceId, NodeId, TenantId};
use event::wire::State;
use jiff::Timestamp;
use pg::{Error, Transaction};
use uuid::Uuid;

use crate::ingress::plan::{DeviceChange, NodeChange, StatusChange};

/// Writes what changed for nodes. A node that sent under a taken sequence is flagged; only a person
/// takes the flag off.
pub(crate) async fn write_nodes(
    transaction: &Transaction<'_>,
    changes: &BTreeMap<&NodeId, NodeChange>,
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let lock = transaction
        .prepare_cached(
            "SELECT FROM nodes WHERE node_id = ANY($1::text[]) ORDER BY node_id FOR NO KEY UPDATE",
        )
        .await?;
    let statement = transaction
        .prepare_cached(
            "UPDATE nodes n SET
                 last_rx_at = greatest(n.last_rx_at, u.rx),
                 last_sample_ts = greatest(n.last_sample_ts, u.sample),
                 stored_count = n.stored_count + u.stored,
                 recovered_count = n.recovered_count + u.recovered,
                 cloned_count = n.cloned_count + u.cloned,
                 flagged_at = CASE WHEN u.cloned > 0 THEN coalesce(n.flagged_at, now())
                                   ELSE n.flagged_at END,
                 flag_reason = CASE WHEN u.cloned > 0 THEN coalesce(n.flag_reason, 'cloned')
                                    ELSE n.flag_reason END
             FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::bigint[],
                 $5::bigint[], $6::bigint[]) AS u (node_id, rx, sample, stored, recovered, cloned)
             WHERE n.node_id = u.node_id",
        )
        .await?;
    let nodes: Vec<&str> = changes.keys().map(|node| node.as_str()).collect();
    let rx: Vec<Option<Timestamp>> = changes.values().map(|change| change.last_rx_at).collect();
    let sample: Vec<_> = changes.values().map(|change| change.last_sample_ts).collect();
    let stored: Vec<i64> = changes.values().map(|change| change.stored).collect();
    let recovered: Vec<i64> = changes.values().map(|change| change.recovered).collect();
    let cloned: Vec<i64> = changes.values().map(|change| change.cloned).collect();
    transaction.execute(&lock, &[&nodes]).await?;
    transaction.execute(&statement, &[&nodes, &rx, &sample, &stored, &recovered, &cloned]).await?;
    Ok(())
}

/// Writes what changed for devices.
pub(crate) async fn write_devices(
    transaction: &Transaction<'_>,
    changes: &BTreeMap<(TenantId, DeviceId), DeviceChange<'_>>,
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO devices (tenant_id, device_id, node_id, last_rx_at, last_sample_ts)
             SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[],
                 $5::timestamptz[])
             ON CONFLICT (tenant_id, device_id) DO UPDATE SET
                 node_id = CASE WHEN excluded.last_rx_at > devices.last_rx_at
                                THEN excluded.node_id ELSE devices.node_id END,
                 last_rx_at = greatest(devices.last_rx_at, excluded.last_rx_at),
                 last_sample_ts = greatest(devices.last_sample_ts, excluded.last_sample_ts)",
        )
        .await?;
    let tenants: Vec<Uuid> = changes.keys().map(|(tenant, _)| tenant.uuid()).collect();
    let devices: Vec<Uuid> = changes.keys().map(|(_, device)| device.uuid()).collect();
    let nodes: Vec<&str> = changes.values().map(|change| change.node.as_str()).collect();
    let rx: Vec<Timestamp> = changes.values().map(|change| change.last_rx_at).collect();
    let sample: Vec<_> = changes.values().map(|change| change.last_sample_ts).collect();
    transaction.execute(&statement, &[&tenants, &devices, &nodes, &rx, &sample]).await?;
    Ok(())
}

/// Writes what nodes say of themselves. A last will changes the state alone, and not when the rest was heard; a status that the
/// broker had kept does not replace a later one.
pub(crate) async fn write_statuses(
    transaction: &Transaction<'_>,
    changes: &BTreeMap<&NodeId, StatusChange<'_>>,
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let statement = transaction
        .prepare_cached(
            "UPDATE nodes n SET
                 status = CASE WHEN u.said_at IS NULL THEN coalesce(n.status, '{}') || u.status
                               ELSE u.status END,
                 status_at = CASE WHEN u.said_at IS NULL THEN coalesce(n.status_at, u.rx)
                                  ELSE greatest(n.status_at, u.rx) END
             FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bool[])
                 AS s (node_id, text, rx, said_at, retained)
             CROSS JOIN LATERAL (SELECT s.node_id, s.text::jsonb AS status, s.rx, s.said_at,
                                        s.retained) u
             WHERE n.node_id = u.node_id
               AND NOT (u.retained AND u.said_at IS NOT NULL
                        AND coalesce((n.status->>'at')::timestamptz >= u.said_at, false))",
        )
        .await?;
    let nodes: Vec<&str> = changes.keys().map(|node| node.as_str()).collect();
    let texts: Vec<String> = changes
        .values()
        .map(|change| match change.status.state {
            State::Online => change.status.to_json(),
            State::Offline => r#"{"state":"offline"}"#.to_owned(),
        })
        .collect();
    let rx: Vec<Timestamp> = changes.values().map(|change| change.received_at).collect();
    let said: Vec<Option<Timestamp>> =
        changes.values().map(|change| change.status.report.as_ref().map(|r| r.at)).collect();
    let retained: Vec<bool> = changes.values().map(|change| change.retained).collect();
    transaction.execute(&statement, &[&nodes, &texts, &rx, &said, &retained]).await?;
    Ok(())
}
