//! Counts by tenant. Each stops at a limit, so that a look costs little at any backlog.

use std::collections::BTreeMap;

use api::tokens::Tenants;
use bus::CauseGroup;
use bus::letterbox::Look;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

/// Counting of rows stops here.
const COUNT_LIMIT: i64 = 100_000;
/// The most groups that are shown, the largest first.
const MAX_GROUPS: i64 = 500;

/// How the cloud stands with one tenant.
#[derive(Debug, Default, Serialize)]
pub(super) struct TenantTally {
    tenant_id: Uuid,
    streams: i64,
    received: i64,
    lost: i64,
    accepted: i64,
    relay: RelayTally,
    bus_dead: i64,
    media_failed: i64,
}

/// What waits for the bus, and what was given up.
#[derive(Debug, Default, Serialize)]
struct RelayTally {
    waiting: i64,
    oldest_at: Option<Timestamp>,
    dead: i64,
}

/// Where the number of the consumers' dead letters is from.
#[derive(Debug, Clone, Copy)]
pub(super) enum BusDead<'a> {
    /// The table.
    Rows,
    /// The broker, a while ago.
    Looked(&'a Looked),
    /// A broker that nobody has looked at.
    Unknown,
}

/// Dead letters of one cause.
#[derive(Debug, Serialize)]
pub(super) struct CauseTally {
    tenant_id: Option<Uuid>,
    queue: Option<String>,
    cause: String,
    event_type: Option<String>,
    count: i64,
    first_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    sample_id: Option<String>,
    sample_message: Option<String>,
}

const FRONTIERS: &str =
    "SELECT tenant_id, count(*), sum(received_count)::int8, sum(lost_count)::int8,
    sum(accepted_count)::int8
FROM ledger_frontier WHERE $1::uuid[] IS NULL OR tenant_id = ANY($1) GROUP BY tenant_id";

const WAITING: &str = "SELECT tenant_id, count(*), min(created_at) FROM (
    SELECT tenant_id, created_at FROM relay_outbox
    WHERE NOT finished AND ($1::uuid[] IS NULL OR tenant_id = ANY($1)) LIMIT $2) AS few GROUP BY tenant_id";

const DEAD: &str = "SELECT tenant_id, count(*) FROM (
    SELECT tenant_id FROM relay_outbox WHERE finished AND status = 'dlq'
        AND ($1::uuid[] IS NULL OR tenant_id = ANY($1)) LIMIT $2) AS few GROUP BY tenant_id";

const BUS_DEAD: &str = "SELECT tenant_id, count(*) FROM (
    SELECT tenant_id FROM bus_dead_letter
    WHERE tenant_id IS NOT NULL AND ($1::uuid[] IS NULL OR tenant_id = ANY($1)) LIMIT $2) AS few GROUP BY tenant_id";

const MEDIA_FAILED: &str = "SELECT tenant_id, count(*) FROM (
    SELECT tenant_id FROM media_object
    WHERE copy_status = 'failed' AND ($1::uuid[] IS NULL OR tenant_id = ANY($1)) LIMIT $2) AS few GROUP BY tenant_id";

const RELAY_GROUPS: &str = "SELECT tenant_id, NULL::text, dlq_reason, event_type, count(*), min(failed_at), max(failed_at),
    (array_agg(event_id::text ORDER BY id DESC))[1], (array_agg(last_error_message ORDER BY id DESC))[1]
FROM relay_outbox WHERE finished AND status = 'dlq' AND ($1::uuid[] IS NULL OR tenant_id = ANY($1))
GROUP BY tenant_id, dlq_reason, event_type ORDER BY 5 DESC, 1, 3, 4 LIMIT $2";

const BUS_GROUPS: &str = "SELECT tenant_id, nullif(queue, ''), cause_code, routing_key, count(*), min(dead_lettered_at),
    max(dead_lettered_at), (array_agg(message_id ORDER BY id DESC))[1], (array_agg(cause_message ORDER BY id DESC))[1]
FROM bus_dead_letter WHERE $1::uuid[] IS NULL OR tenant_id = ANY($1)
GROUP BY tenant_id, queue, cause_code, routing_key ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT $2";

pub(super) fn scope(tenants: &Tenants) -> Option<Vec<Uuid>> {
    match tenants {
        Tenants::All => None,
        Tenants::Only(list) => Some(list.iter().map(|tenant| tenant.uuid()).collect()),
    }
}

/// What a look at a broker has found.
pub(super) type Looked = Look<Option<Uuid>>;

/// Every tenant of whom something is here. Dead letters of the consumers are rows, or what was found at a broker.
pub(super) async fn tenants(
    client: &pg::Client,
    tenants: &Tenants,
    bus_dead: BusDead<'_>,
) -> Result<Vec<TenantTally>, pg::Error> {
    let scope = scope(tenants);
    let mut all: BTreeMap<Uuid, TenantTally> = BTreeMap::new();
    let mut entry = |tenant: Uuid, change: &mut dyn FnMut(&mut TenantTally)| {
        let new = || TenantTally { tenant_id: tenant, ..TenantTally::default() };
        change(all.entry(tenant).or_insert_with(new));
    };
    for row in client.query(FRONTIERS, &[&scope]).await? {
        entry(row.get(0), &mut |one| {
            (one.streams, one.received) = (row.get(1), row.get(2));
            (one.lost, one.accepted) = (row.get(3), row.get(4));
        });
    }
    for row in client.query(WAITING, &[&scope, &COUNT_LIMIT]).await? {
        entry(row.get(0), &mut |one| {
            (one.relay.waiting, one.relay.oldest_at) = (row.get(1), row.get(2));
        });
    }
    for row in client.query(DEAD, &[&scope, &COUNT_LIMIT]).await? {
        entry(row.get(0), &mut |one| one.relay.dead = row.get(1));
    }
    match bus_dead {
        BusDead::Rows => {
            for row in client.query(BUS_DEAD, &[&scope, &COUNT_LIMIT]).await? {
                entry(row.get(0), &mut |one| one.bus_dead = row.get(1));
            }
        }
        BusDead::Looked(look) => {
            for (tenant, group) in seen_by(look, scope.as_ref()) {
                let Some(tenant) = tenant else { continue };
                let count = i64::try_from(group.count).unwrap_or(i64::MAX);
                entry(*tenant, &mut |one| one.bus_dead = one.bus_dead.saturating_add(count));
            }
        }
        BusDead::Unknown => {}
    }
    for row in client.query(MEDIA_FAILED, &[&scope, &COUNT_LIMIT]).await? {
        entry(row.get(0), &mut |one| one.media_failed = row.get(1));
    }
    Ok(all.into_values().collect())
}

/// Dead letters of the relay.
pub(super) async fn relay_groups(
    client: &pg::Client,
    tenants: &Tenants,
) -> Result<Vec<CauseTally>, pg::Error> {
    let rows = client.query(RELAY_GROUPS, &[&scope(tenants), &MAX_GROUPS]).await?;
    Ok(rows.iter().map(group).collect())
}

/// Dead letters of the consumers.
pub(super) async fn bus_groups(
    client: &pg::Client,
    tenants: &Tenants,
) -> Result<Vec<CauseTally>, pg::Error> {
    let rows = client.query(BUS_GROUPS, &[&scope(tenants), &MAX_GROUPS]).await?;
    Ok(rows.iter().map(group).collect())
}

/// The same where a broker keeps them.
pub(super) fn looked_groups(look: &Looked, tenants: &Tenants) -> Vec<CauseTally> {
    let (scope, most) = (scope(tenants), usize::try_from(MAX_GROUPS).unwrap_or(usize::MAX));
    let tally = |(tenant, group): &(Option<Uuid>, CauseGroup)| CauseTally {
        tenant_id: *tenant,
        queue: group.queue.clone(),
        cause: group.cause_code.clone(),
        event_type: Some(group.routing_key.clone()),
        count: i64::try_from(group.count).unwrap_or(i64::MAX),
        first_at: group.first_at,
        last_at: group.last_at,
        sample_id: Some(group.sample_id.clone()),
        sample_message: Some(group.sample_message.clone()),
    };
    seen_by(look, scope.as_ref()).take(most).map(tally).collect()
}

/// What is of these tenants; of whom a letter is cannot always be read, and then it is for those who see everything.
fn seen_by<'a>(
    look: &'a Looked,
    scope: Option<&'a Vec<Uuid>>,
) -> impl Iterator<Item = &'a (Option<Uuid>, CauseGroup)> {
    look.groups.iter().filter(move |(tenant, _)| {
        scope.is_none_or(|list| tenant.is_some_and(|tenant| list.contains(&tenant)))
    })
}

fn group(row: &Row) -> CauseTally {
    CauseTally {
        tenant_id: row.get(0),
        queue: row.get(1),
        cause: row.get(2),
        event_type: row.get(3),
        count: row.get(4),
        first_at: row.get(5),
        last_at: row.get(6),
        sample_id: row.get(7),
        sample_message: row.get(8),
    }
}
