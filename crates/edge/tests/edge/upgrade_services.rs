//! An upgrade under the services of the old binary: sessions, images, results and aggregates go on, from any version.
//!
//! The statements are those of the version before, as text, prepared before the upgrade and used on both sides of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use event::id::EventId;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use testkit::eventually;
use tokio_postgres::types::Json;
use tokio_postgres::{Client, Statement, Transaction};
use uuid::Uuid;

use crate::site::{LONG, number};
use crate::upgrade::{database, versions};

/// The first migration after which all these statements work: media came last.
const OLDEST: i32 = 10;

const ADD_EVENT: &str =
    "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
    event_type, occurred_at, trace_id, payload_json, payload_size_bytes, priority)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const CREATE_SESSION: &str =
    "INSERT INTO weight_sessions (id, tenant_id, farm_id, barn_id, device_id, batch_id, start_at,
             initial_weight_kg, idempotency_key, request_sha256)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (tenant_id, idempotency_key) DO NOTHING RETURNING id, status";
const LOCK_SESSION: &str = "SELECT id, status, start_at FROM weight_sessions
         WHERE id = $1 AND ($2::uuid[] IS NULL OR tenant_id = ANY($2)) FOR UPDATE";
const GATHER: &str = "SELECT (SELECT count(*) FROM media_objects
                 WHERE tenant_id = $1 AND session_id = $2 AND status = 'stored'),
               count(*),
               (array_agg(id ORDER BY confidence DESC, occurred_at DESC, id DESC))[1],
               coalesce((array_agg(id ORDER BY id))[1:$3], '{}')
             FROM inference_results WHERE tenant_id = $1 AND session_id = $2";
const FINALIZE: &str =
    "UPDATE weight_sessions SET status = 'finalized', end_at = $2, final_weight_kg = $3,
             image_count = $4, inference_result_id = $5
         WHERE id = $1 RETURNING id, status, image_count";
const PROMISE: &str =
    "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id,
    bucket, object_key, mime_type, size_bytes, captured_at, sha256, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
const IN_PARTS: &str = "INSERT INTO media_uploads (media_id, upload_id, part_bytes, part_count)
VALUES ($1, $2, $3, $4)";
const STORE_IMAGE: &str =
    "UPDATE media_objects SET status = 'stored', etag = $2, sha256 = coalesce(sha256, $3),
             stored_at = now()
         WHERE id = $1 AND status = 'pending' RETURNING id, status, stored_at";
const ADD_JOB: &str = "INSERT INTO inference_jobs (id, tenant_id, media_id) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, media_id) DO NOTHING";
const RESULT: &str =
    "INSERT INTO inference_results (id, tenant_id, farm_id, barn_id, device_id, session_id,
             media_id, predicted_weight_kg, predicted_size, confidence, model_version, occurred_at,
             request_sha256)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         ON CONFLICT (id) DO NOTHING RETURNING id";
const ANSWERED: &str = "DELETE FROM inference_jobs
            WHERE tenant_id = $1 AND media_id = $2 AND status <> 'claimed'";
const READING: &str =
    "INSERT INTO telemetry_raw (id, tenant_id, device_id, occurred_at, metric_type,
    metric_value, unit) VALUES ($1, $2, $3, $4, 'temperature', 26.4, 'C')";
const MARK: &str =
    "INSERT INTO telemetry_dirty AS t (tenant_id, device_id, \"window\", bucket_start_at, due_at)
     SELECT k.tenant_id, k.device_id, $1, k.start_at,
         least(greatest(now(), k.start_at + make_interval(secs => $5)), now() + interval '1 minute')
     FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS k (tenant_id, device_id, start_at)
     ON CONFLICT (tenant_id, device_id, \"window\", bucket_start_at)
     DO UPDATE SET due_at = least(t.due_at, excluded.due_at)";
const CLAIM: &str = "SELECT tenant_id, device_id, bucket_start_at FROM telemetry_dirty
     WHERE \"window\" = $1 AND due_at <= clock_timestamp() - make_interval(secs => $2)
     ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED";
const COMPUTE: &str =
    "SELECT (k.place - 1)::int, r.metric_type, r.unit, count(*), sum(r.metric_value),
         min(r.metric_value), max(r.metric_value)
     FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) WITH ORDINALITY
         AS k (tenant_id, device_id, start_at, place)
     CROSS JOIN LATERAL (
         SELECT id, occurred_at, metric_type, metric_value, unit FROM telemetry_raw
         WHERE tenant_id = k.tenant_id AND device_id = k.device_id
             AND occurred_at >= k.start_at AND occurred_at < k.start_at + interval '1 minute') r
     GROUP BY 1, 2, 3";
const STORE_AGGREGATE: &str = "INSERT INTO telemetry_agg AS t (id, tenant_id, device_id, \"window\", bucket_start_at,
         bucket_end_at, metric_type, unit, readings, count, sum_value, avg_value, min_value, max_value)
     SELECT k.id, k.tenant_id, k.device_id, $1, k.start_at, k.start_at + make_interval(secs => $2),
         k.metric_type, k.unit, k.readings, k.n, k.total, k.total / k.n, k.lowest, k.highest
     FROM unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::timestamptz[], $7::text[], $8::text[],
         $9::bigint[], $10::bigint[], $11::float8[], $12::float8[], $13::float8[])
         AS k (id, tenant_id, device_id, start_at, metric_type, unit, readings, n, total, lowest, highest)
     ON CONFLICT (tenant_id, device_id, \"window\", bucket_start_at, metric_type) DO UPDATE SET
         unit = excluded.unit, readings = excluded.readings, count = excluded.count,
         sum_value = excluded.sum_value, avg_value = excluded.avg_value,
         min_value = excluded.min_value, max_value = excluded.max_value, updated_at = now(),
         version = t.version + 1
     WHERE excluded.readings > t.readings
     RETURNING tenant_id, device_id, bucket_start_at";
const CLEAR: &str = "DELETE FROM telemetry_dirty t
     USING unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS k (tenant_id, device_id, start_at)
     WHERE t.tenant_id = k.tenant_id AND t.device_id = k.device_id AND t.\"window\" = $1
         AND t.bucket_start_at = k.start_at";

const ALL: [&str; 16] = [
    ADD_EVENT,
    CREATE_SESSION,
    LOCK_SESSION,
    GATHER,
    FINALIZE,
    PROMISE,
    IN_PARTS,
    STORE_IMAGE,
    ADD_JOB,
    RESULT,
    ANSWERED,
    READING,
    MARK,
    CLAIM,
    COMPUTE,
    STORE_AGGREGATE,
];

/// The old binary: prepared once, as one that runs for weeks has it.
struct Old {
    client: Client,
    statements: Vec<(&'static str, Statement)>,
    tenant: Uuid,
    barn: Uuid,
}

impl Old {
    async fn new(client: Client) -> Old {
        let mut statements = Vec::new();
        for text in ALL.into_iter().chain([CLEAR]) {
            statements.push((text, client.prepare(text).await.unwrap()));
        }
        Old { client, statements, tenant: id(), barn: id() }
    }

    /// One weighing from its beginning to its end, with an image in parts and a result.
    async fn weigh(&mut self) {
        let (tenant, barn, none) = (self.tenant, self.barn, None::<Uuid>);
        let (session, media, job, now) = (id(), id(), id(), Timestamp::now());
        let hash: &[u8] = &[7; 32];
        let Old { client, statements, .. } = self;
        let by = |text: &str| &statements.iter().find(|one| one.0 == text).unwrap().1;
        let tell = async |transaction: &Transaction<'_>, kind: &str| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 12] = [
                &id(),
                &tenant,
                &barn,
                &barn,
                &barn,
                &session,
                &kind,
                &now,
                &None::<String>,
                &Json(json!({})),
                &2i32,
                &10i32,
            ];
            transaction.execute(by(ADD_EVENT), &values).await.unwrap();
        };

        let transaction = client.transaction().await.unwrap();
        let key = session.to_string();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 10] =
            [&session, &tenant, &barn, &barn, &barn, &none, &now, &1.5f64, &key, &hash];
        transaction.query_one(by(CREATE_SESSION), &values).await.unwrap();
        tell(&transaction, "weighvision.session.created").await;
        transaction.commit().await.unwrap();

        let transaction = client.transaction().await.unwrap();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
            &media,
            &tenant,
            &barn,
            &barn,
            &barn,
            &session,
            &"media",
            &format!("tenants/{tenant}/{media}.jpg"),
            &"image/jpeg",
            &10i64,
            &now,
            &None::<Vec<u8>>,
            &now,
        ];
        transaction.execute(by(PROMISE), &values).await.unwrap();
        transaction.execute(by(IN_PARTS), &[&media, &"u", &10i64, &1i32]).await.unwrap();
        transaction.commit().await.unwrap();

        let transaction = client.transaction().await.unwrap();
        transaction.query_one(by(STORE_IMAGE), &[&media, &"e", &hash]).await.unwrap();
        tell(&transaction, "media.stored").await;
        transaction.execute(by(ADD_JOB), &[&job, &tenant, &media]).await.unwrap();
        let parts = "DELETE FROM media_uploads WHERE media_id = $1";
        assert_eq!(transaction.execute(parts, &[&media]).await.unwrap(), 1);
        transaction.commit().await.unwrap();

        let transaction = client.transaction().await.unwrap();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
            &job,
            &tenant,
            &barn,
            &barn,
            &barn,
            &session,
            &media,
            &80.5f64,
            &None::<String>,
            &0.9f64,
            &"m1",
            &now,
            &hash,
        ];
        transaction.query_one(by(RESULT), &values).await.unwrap();
        assert_eq!(transaction.execute(by(ANSWERED), &[&tenant, &media]).await.unwrap(), 1);
        tell(&transaction, "inference.completed").await;
        transaction.commit().await.unwrap();

        let transaction = client.transaction().await.unwrap();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&session, &None::<Vec<Uuid>>];
        let locked = transaction.query_one(by(LOCK_SESSION), &values).await.unwrap();
        assert_eq!(locked.get::<_, &str>(1), "created");
        let found = transaction.query_one(by(GATHER), &[&tenant, &session, &100i32]).await.unwrap();
        let (images, best): (i64, Option<Uuid>) = (found.get(0), found.get(2));
        assert_eq!((images, best), (1, Some(job)));
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&session, &now, &80.5f64, &images, &best];
        transaction.query_one(by(FINALIZE), &values).await.unwrap();
        tell(&transaction, "weighvision.session.finalized").await;
        transaction.commit().await.unwrap();
    }

    /// A reading with its mark, and the minute that is made of it.
    async fn aggregate(&mut self) {
        let (tenant, device) = (self.tenant, id());
        let start = Timestamp::from_second(Timestamp::now().as_second() / 60 * 60).unwrap()
            - SignedDuration::from_mins(5);
        let Old { client, statements, .. } = self;
        let by = |text: &str| &statements.iter().find(|one| one.0 == text).unwrap().1;
        let (tenants, devices, starts) = (vec![tenant], vec![device], vec![start]);
        let transaction = client.transaction().await.unwrap();
        transaction.execute(by(READING), &[&id(), &tenant, &device, &start]).await.unwrap();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&"1m", &tenants, &devices, &starts, &60.0f64];
        transaction.execute(by(MARK), &values).await.unwrap();
        transaction.commit().await.unwrap();

        let transaction = client.transaction().await.unwrap();
        let claimed = transaction.query(by(CLAIM), &[&"1m", &0.0f64, &500i64]).await.unwrap();
        assert_eq!(claimed.len(), 1);
        let held =
            transaction.query_one(by(COMPUTE), &[&tenants, &devices, &starts]).await.unwrap();
        assert_eq!(held.get::<_, i64>(3), 1);
        let (metrics, units) = (vec!["temperature"], vec!["C"]);
        let (counts, sums) = (vec![1i64], vec![held.get::<_, f64>(4)]);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
            &"1m",
            &60.0f64,
            &vec![id()],
            &tenants,
            &devices,
            &starts,
            &metrics,
            &units,
            &counts,
            &counts,
            &sums,
            &sums,
            &sums,
        ];
        assert_eq!(transaction.query(by(STORE_AGGREGATE), &values).await.unwrap().len(), 1);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&"1m", &tenants, &devices, &starts];
        assert_eq!(transaction.execute(by(CLEAR), &values).await.unwrap(), 1);
        transaction.commit().await.unwrap();
    }
}

fn id() -> Uuid {
    EventId::mint().uuid()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_services_of_the_old_binary_go_on_while_the_database_is_upgraded() {
    for version in versions(OLDEST) {
        let database = database(version).await;
        // The old binary made its months when it started. One that is made under it could hide a reading from its statements, which
        // do not hold what is held today (`pg::partitions::hold`).
        let (mut client, now) = (database.connect().await.unwrap(), Timestamp::now());
        let (from, to) =
            (now - SignedDuration::from_hours(24), now + SignedDuration::from_hours(24));
        for (table, column) in
            [("telemetry_raw", "occurred_at"), ("telemetry_agg", "bucket_start_at")]
        {
            pg::partitions::ensure_months(&mut client, table, column, from, to).await.unwrap();
        }
        let mut old = Old::new(client).await;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let working = tokio::spawn({
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            async move {
                while !stop.load(Ordering::SeqCst) {
                    old.weigh().await;
                    old.aggregate().await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let moved = async |what: &str| {
            let before = done.load(Ordering::SeqCst);
            eventually(LONG, what, async || {
                done.load(Ordering::SeqCst) >= before + 10 || working.is_finished()
            })
            .await
            .unwrap();
        };
        moved("the old binary works before").await;
        edge::migrate(&pg::Options::new(database.url())).await.unwrap();
        moved("the old binary works after").await;
        stop.store(true, Ordering::SeqCst);
        working.await.unwrap();

        let client = database.connect().await.unwrap();
        let done = done.load(Ordering::SeqCst);
        for (what, each) in [
            ("weight_sessions WHERE status = 'finalized' AND image_count = 1", 1),
            ("media_objects WHERE status = 'stored'", 1),
            ("inference_results", 1),
            ("inference_jobs", 0),
            ("media_uploads", 0),
            ("sync_outbox WHERE status = 'pending'", 4),
            ("telemetry_agg WHERE \"window\" = '1m'", 1),
            ("telemetry_dirty", 0),
        ] {
            let count = format!("SELECT count(*) FROM {what}");
            assert_eq!(number(&client, &count).await, each * done, "{version}: {what}");
        }
    }
}
