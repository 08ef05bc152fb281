//! The two outboxes as the benchmark drains them: `relay_outbox` of the cloud, which deletes what it has delivered, and
//! `sync_outbox` of a site, which keeps it.

use lease::{Kind, Lease, Queue, RowLease, Table};

/// An outbox, how it is filled and how a bare loop would empty it.
pub(crate) struct Outbox {
    pub(crate) name: &'static str,
    /// The rows that wait or are held.
    pub(crate) waiting: &'static str,
    /// `$1` rows of ten tenants and a hundred devices, with the size of a real reading.
    pub(crate) fill: &'static str,
    /// Statements that take the next `$1` rows and return them: a name, the text, and the ratio that is wanted beside it.
    pub(crate) bare: &'static [(&'static str, &'static str, Option<f64>)],
    table: fn() -> Table,
}

impl Outbox {
    /// The outbox on the engine. A row is its payload.
    pub(crate) fn queue(&self) -> Queue<Vec<u8>> {
        Queue::new(self.name, (self.table)(), |row| {
            row.try_get("payload").map_err(|error| error.to_string())
        })
    }
}

/// In the order of arrival, which is the order of its primary key.
pub(crate) const RELAY: Outbox = Outbox {
    name: "relay_outbox",
    waiting: "SELECT count(*) FROM relay_outbox",
    fill: "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, trace_id, routing_key, ordering_key, envelope,
        stream, epoch, seq, traceparent)
      SELECT md5('t' || n % 10)::uuid, gen_random_uuid(), 'telemetry.reading', now(), repeat('a', 32), 'telemetry.reading',
        'telemetry/' || md5('d' || n % 100)::uuid, convert_to(repeat('e', 450), 'UTF8'),
        'barn-' || n % 100, md5('e' || n % 100)::uuid, n / 100, '00-' || repeat('a', 32) || '-' || repeat('b', 16) || '-01'
      FROM generate_series(1, $1::int8) n",
    bare: &[(
        "delete",
        "DELETE FROM relay_outbox WHERE id = ANY (ARRAY(
            SELECT id FROM relay_outbox ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
        RETURNING id, tenant_id, ordering_key, envelope AS payload",
        Some(0.5),
    )],
    table: relay,
};

/// In the order of an index that is there: the documented one (by priority, then by time) has none any more, and sorting would not be a
/// bare loop.
pub(crate) const SYNC: Outbox = Outbox {
    name: "sync_outbox",
    waiting: "SELECT count(*) FROM sync_outbox WHERE NOT finished",
    fill: "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type, occurred_at, trace_id, payload_json,
        payload_size_bytes, stream, epoch, seq)
      SELECT gen_random_uuid(), md5('t' || n % 10)::uuid, md5('f' || n % 10)::uuid, md5('b' || n % 20)::uuid,
        md5('d' || n % 100)::uuid, 'telemetry.reading', now() - ($1 - n) * interval '1 ms', repeat('a', 32),
        jsonb_build_object('metric_type', 'temperature', 'metric_value', n, 'unit', 'celsius', 'note', repeat('x', 150)), 220,
        'barn-' || n % 100, md5('e' || n % 100)::uuid, n / 100
      FROM generate_series(1, $1::int8) n",
    bare: &[
        (
            "delete",
            "DELETE FROM sync_outbox WHERE id = ANY (ARRAY(
                SELECT id FROM sync_outbox WHERE NOT finished
                ORDER BY next_attempt_at, occurred_at LIMIT $1 FOR UPDATE SKIP LOCKED))
            RETURNING id, tenant_id, device_id, convert_to(payload_json::text, 'UTF8') AS payload",
            None,
        ),
        (
            "update",
            "UPDATE sync_outbox SET status = 'acked', updated_at = now() WHERE id = ANY (ARRAY(
                SELECT id FROM sync_outbox WHERE NOT finished
                ORDER BY next_attempt_at, occurred_at LIMIT $1 FOR UPDATE SKIP LOCKED))
            RETURNING id, tenant_id, device_id, convert_to(payload_json::text, 'UTF8') AS payload",
            Some(0.5),
        ),
    ],
    table: sync,
};

fn relay() -> Table {
    Table { payload: "envelope AS payload", ..cloud::relay::table() }
}

fn sync() -> Table {
    Table {
        name: "sync_outbox",
        id: "id",
        id_kind: Kind::Uuid,
        tenant: "tenant_id",
        tenant_kind: Kind::Uuid,
        rank: "(-priority)",
        key: "coalesce(device_id, id)",
        key_kind: Kind::Uuid,
        at: Some("coalesce(occurred_at, created_at)"),
        status: "status",
        pending: "pending",
        done: Some("acked"),
        buried: "dlq",
        unfinished: Some("NOT finished AND priority <= 0"),
        lease: Lease::Row(RowLease {
            claimed: "claimed",
            sending: Some("sending"),
            token: "lease_token",
            holder: "claimed_by",
            held_since: "claimed_at",
            expires: "lease_expires_at",
        }),
        attempts: "attempt_count",
        due: "next_attempt_at",
        last_attempt: Some("last_attempt_at"),
        error_code: "last_error_code",
        error_message: "last_error_message",
        done_at: None,
        buried_at: Some("failed_at"),
        buried_reason: Some("dlq_reason"),
        touched: Some("updated_at"),
        payload: "convert_to(payload_json::text, 'UTF8') AS payload",
    }
}
