//! An upgrade while the old binary still runs: additive first, so that its SQL goes on working.
//!
//! The statements are those of the version before, as text: the code that made them has moved on.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use event::id::EventId;
use jiff::Timestamp;
use testkit::{Database, eventually};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::site::{LONG, number};

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The first migration after which these statements work; every later one is tried as a start.
const OLDEST: i32 = 17;
const HISTORY: &str = "cloud_migrations";
const BATCH: i64 = 50;

const DEDUPE: &str = "WITH new AS (
                 INSERT INTO ingest_dedupe (tenant_id, event_id)
                 SELECT * FROM unnest($1::uuid[], $2::uuid[])
                 ON CONFLICT DO NOTHING RETURNING tenant_id, event_id)
             SELECT coalesce(array_agg(tenant_id), '{}'), coalesce(array_agg(event_id), '{}')
             FROM new";
const MAKE_FRONTIER: &str = "INSERT INTO ledger_frontier (tenant_id, stream, epoch)
             SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS u (tenant_id, stream, epoch)
             WHERE NOT EXISTS (SELECT FROM ledger_frontier f
                               WHERE (f.tenant_id, f.stream, f.epoch)
                                   = (u.tenant_id, u.stream, u.epoch))
             ON CONFLICT DO NOTHING";
const LOCK_FRONTIER: &str =
    "SELECT f.id, f.received, f.lost, f.accepted_count, f.cloned_count, f.behind,
                    f.stream, f.epoch, (u.place - 1)::int
             FROM unnest($1::uuid[], $2::text[], $3::uuid[]) WITH ORDINALITY
                 AS u (tenant_id, stream, epoch, place)
             JOIN ledger_frontier f USING (tenant_id, stream, epoch)
             ORDER BY u.place FOR UPDATE OF f";
const WRITE_FRONTIER: &str =
    "UPDATE ledger_frontier f SET acked = u.acked, received = u.received::bigint[],
                 lost = u.lost::bigint[], received_count = u.received_count,
                 lost_count = u.lost_count, accepted_count = u.accepted,
                 cloned_count = u.cloned, behind = u.behind, updated_at = now()
             FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[],
                 $6::bigint[], $7::bigint[], $8::bigint[], $9::bool[])
                 AS u (id, acked, received, lost, received_count, lost_count, accepted, cloned,
                       behind)
             WHERE f.id = u.id";
const RELAY: &str = "COPY relay_outbox (tenant_id, event_id, event_type, occurred_at, trace_id,
    routing_key, ordering_key, priority, envelope, stream, epoch, seq, traceparent)
    FROM STDIN BINARY";
const RELAY_TYPES: [Type; 13] = [
    Type::UUID,
    Type::UUID,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::BYTEA,
    Type::TEXT,
    Type::UUID,
    Type::INT8,
    Type::TEXT,
];
const MEDIA: &str =
    "INSERT INTO media_object AS t (tenant_id, media_id, event_id, farm_id, barn_id,
         device_id, session_id, occurred_at, path, mime_type, size_bytes, trace_id)
     SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[],
         $7::uuid[], $8::timestamptz[], $9::text[], $10::text[], $11::bigint[], $12::text[])
     ON CONFLICT (tenant_id, media_id) DO UPDATE SET
         event_id = excluded.event_id, farm_id = excluded.farm_id, barn_id = excluded.barn_id,
         device_id = excluded.device_id, session_id = excluded.session_id,
         occurred_at = excluded.occurred_at, path = excluded.path,
         mime_type = excluded.mime_type, size_bytes = excluded.size_bytes,
         trace_id = excluded.trace_id
     WHERE (excluded.occurred_at, excluded.event_id) < (t.occurred_at, t.event_id)
         AND t.copy_status = 'pending'";
const CLAIM: &str = "UPDATE media_object t SET copy_status = 'copying', copy_lease_token = $1,
         copy_lease_until = clock_timestamp() + make_interval(secs => $2),
         copy_attempts = t.copy_attempts + (k.copy_status = 'copying')::int
     FROM (SELECT tenant_id, media_id, copy_status FROM media_object
           WHERE (copy_status = 'pending' AND copy_next_at <= clock_timestamp())
              OR (copy_status = 'copying' AND copy_lease_until < clock_timestamp())
           ORDER BY copy_next_at LIMIT $3 FOR UPDATE SKIP LOCKED) k
     WHERE t.tenant_id = k.tenant_id AND t.media_id = k.media_id
     RETURNING t.tenant_id, t.media_id, t.path, t.mime_type, t.size_bytes, t.copy_attempts";
const COPIED: &str =
    "UPDATE media_object SET copy_status = 'copied', copied_at = clock_timestamp(),
         copied_bytes = size_bytes, copied_sha256 = $4, copy_lease_token = NULL,
         copy_lease_until = NULL, copy_error_code = NULL, copy_error_message = NULL
     WHERE tenant_id = $1 AND media_id = $2 AND copy_lease_token = $3";
const FAILED: &str = "UPDATE media_object SET
         copy_status = CASE WHEN copy_attempts + 1 >= $6 THEN 'failed' ELSE 'pending' END,
         copy_attempts = copy_attempts + 1,
         copy_next_at = clock_timestamp()
             + make_interval(secs => least($7, 5 * 2 ^ least(copy_attempts, 20))),
         copy_lease_token = NULL, copy_lease_until = NULL, copy_error_code = $4,
         copy_error_message = $5
     WHERE tenant_id = $1 AND media_id = $2 AND copy_lease_token = $3";

/// The stream that the old binary takes in.
#[derive(Clone, Copy)]
struct Stream {
    tenant: Uuid,
    epoch: Uuid,
}

/// One ingestion of the old binary, and what its media consumer stores of it.
async fn ingest(client: &mut Client, stream: Stream, first: i64) {
    let (name, none, seqs) = ("barn-1", None::<Uuid>, first..first + BATCH);
    let ids: Vec<Uuid> = seqs.clone().map(|_| EventId::mint().uuid()).collect();
    let tenants = vec![stream.tenant; ids.len()];
    let transaction = client.transaction().await.unwrap();
    let (tenant, names, epoch) = (vec![stream.tenant], vec![name], vec![stream.epoch]);
    transaction.execute(MAKE_FRONTIER, &[&tenant, &names, &epoch]).await.unwrap();
    let before = transaction.query_one(LOCK_FRONTIER, &[&tenant, &names, &epoch]).await.unwrap();
    assert_eq!(before.get::<_, i64>(3), first - 1, "the frontier is as the last one left it");
    let new: Vec<Uuid> = transaction.query_one(DEDUPE, &[&tenants, &ids]).await.unwrap().get(1);
    assert_eq!(new.len(), ids.len());
    let at = Timestamp::now();
    let sink = transaction.copy_in(RELAY).await.unwrap();
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &RELAY_TYPES));
    for (id, seq) in ids.iter().zip(seqs) {
        writer
            .as_mut()
            .write(&[
                &stream.tenant,
                id,
                &"media.stored",
                &at,
                &"trace-1",
                &"media.stored",
                &"device",
                &10i32,
                &b"{}".to_vec(),
                &name,
                &stream.epoch,
                &seq,
                &None::<String>,
            ])
            .await
            .unwrap();
    }
    writer.finish().await.unwrap();
    let last = first + BATCH - 1;
    let (ranges, empty) = (format!("{{1,{last}}}"), "{}".to_owned());
    transaction
        .execute(
            WRITE_FRONTIER,
            &[
                &vec![before.get::<_, i64>(0)],
                &vec![last],
                &vec![ranges],
                &vec![empty],
                &vec![last],
                &vec![0i64],
                &vec![last],
                &vec![0i64],
                &vec![false],
            ],
        )
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    let all = ids.len();
    client
        .execute(
            MEDIA,
            &[
                &tenants,
                &ids,
                &ids,
                &tenants,
                &tenants,
                &tenants,
                &vec![none; all],
                &vec![at; all],
                &vec!["tenants/t/a.jpg"; all],
                &vec!["image/jpeg"; all],
                &vec![7i64; all],
                &vec![None::<String>; all],
            ],
        )
        .await
        .unwrap();
}

/// One turn of the old copier: every tenth image fails for good; returns how many it settled.
async fn copy(client: &Client, [claim, copied, failed]: [&Statement; 3]) -> i64 {
    let token = Uuid::new_v4();
    let rows = client.query(claim, &[&token, &2_400.0f64, &8i64]).await.unwrap();
    for row in &rows {
        let (tenant, media): (Uuid, Uuid) = (row.get(0), row.get(1));
        let changed = if media.as_u128() % 10 == 0 {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [&tenant, &media, &token, &"not_found", &"it is gone", &1i32, &3_600.0f64];
            client.execute(failed, &values).await.unwrap()
        } else {
            client.execute(copied, &[&tenant, &media, &token, &&[7u8; 32][..]]).await.unwrap()
        };
        assert_eq!(changed, 1);
    }
    i64::try_from(rows.len()).unwrap()
}

/// A database of an earlier version, migrated once for all tests that ask for it.
pub(crate) async fn database(version: i32) -> Database {
    let migrate = |url: String| async move {
        let runner = embedded::migrations::runner().set_target(refinery::Target::Version(version));
        pg::migrate(&pg::Options::new(url), HISTORY, runner).await.map(drop)
    };
    let name = format!("upgrade_{version}");
    testkit::database(&name, &format!("cloud_{version}"), migrate).await.unwrap()
}

/// The versions that an upgrade may begin at, from one on.
pub(crate) fn versions(from: i32) -> impl Iterator<Item = i32> {
    let migrations = embedded::migrations::runner();
    let all = migrations.get_migrations().iter();
    let mut all: Vec<i32> = all.map(|one| one.version()).collect();
    all.sort_unstable();
    all.pop();
    all.into_iter().filter(move |version| *version >= from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_old_binary_goes_on_while_the_database_is_upgraded() {
    for version in versions(OLDEST) {
        upgraded(version).await;
    }
}

async fn upgraded(version: i32) {
    let database = database(version).await;
    let options = pg::Options::new(database.url());
    let stream = Stream { tenant: EventId::mint().uuid(), epoch: EventId::mint().uuid() };

    let stop = Arc::new(AtomicBool::new(false));
    let (written, settled) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut client = database.connect().await.unwrap();
    let writing = tokio::spawn({
        let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
        async move {
            while !stop.load(Ordering::SeqCst) {
                ingest(&mut client, stream, written.load(Ordering::SeqCst) + 1).await;
                written.fetch_add(BATCH, Ordering::SeqCst);
            }
        }
    });
    let client = database.connect().await.unwrap();
    let copying = tokio::spawn({
        let (stop, settled) = (Arc::clone(&stop), Arc::clone(&settled));
        async move {
            // Prepared once, as a binary that runs for weeks has them.
            let claim = client.prepare(CLAIM).await.unwrap();
            let copied = client.prepare(COPIED).await.unwrap();
            let failed = client.prepare(FAILED).await.unwrap();
            while !stop.load(Ordering::SeqCst) {
                let done = copy(&client, [&claim, &copied, &failed]).await;
                settled.fetch_add(done, Ordering::SeqCst);
            }
        }
    });
    let moved = async |what: &str| {
        let before = (written.load(Ordering::SeqCst), settled.load(Ordering::SeqCst));
        eventually(LONG, what, async || {
            written.load(Ordering::SeqCst) >= before.0 + 5 * BATCH
                && settled.load(Ordering::SeqCst) >= before.1 + BATCH
                || writing.is_finished()
                || copying.is_finished()
        })
        .await
        .unwrap();
    };
    moved("the old binary works before").await;
    cloud::migrate(&options).await.unwrap();
    moved("the old binary works after").await;
    stop.store(true, Ordering::SeqCst);
    writing.await.unwrap();
    copying.await.unwrap();

    let client = database.connect().await.unwrap();
    let (written, settled) = (written.load(Ordering::SeqCst), settled.load(Ordering::SeqCst));
    for table in ["ingest_dedupe", "relay_outbox", "media_object"] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(number(&client, &count).await, written, "{version}: {table}");
    }
    assert_eq!(number(&client, "SELECT accepted_count FROM ledger_frontier").await, written);
    let done = "SELECT count(*) FROM media_object WHERE copy_status IN ('copied', 'failed')";
    assert_eq!(number(&client, done).await, settled);
    // What the old binary gave up after the upgrade is found by the new one as well.
    let failed = "SELECT count(*) FROM media_object WHERE copy_status = 'failed'";
    let failed = number(&client, failed).await;
    let listed = cloud::copies::failed(&client, &cloud::copies::Selection::default(), 1_000).await;
    assert_eq!(i64::try_from(listed.unwrap().len()).unwrap(), failed.min(1_000));
    let newest = "SELECT max(version)::int8 FROM cloud_migrations";
    assert!(number(&client, newest).await > i64::from(version), "something was upgraded");
}
