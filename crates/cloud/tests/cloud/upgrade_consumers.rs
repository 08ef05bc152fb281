//! An upgrade under the consumers of the old binary: readings, sessions and results go on, from any version.
//!
//! The statements are those of the version before, as text, prepared before the upgrade and used on both sides of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use event::id::EventId;
use jiff::Timestamp;
use testkit::eventually;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::site::{LONG, number};
use crate::upgrade::{database, versions};

/// The first migration after which all these statements work.
const OLDEST: i32 = 17;

const READINGS: &str = "WITH new AS (
         INSERT INTO telemetry_reading (tenant_id, occurred_at, event_id, farm_id, barn_id, device_id,
             session_id, metric_type, metric_value, unit, quality, clock_unset, trace_id, stream,
             epoch, seq)
         SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::uuid[], $8::text[], $9::float8[], $10::text[], $11::text[],
             $12::boolean[], $13::text[], $14::text[], $15::uuid[], $16::bigint[])
         ON CONFLICT DO NOTHING
         RETURNING tenant_id, device_id, metric_type, unit, occurred_at)
     INSERT INTO telemetry_mark AS t (level, tenant_id, device_id, metric_type, unit, bucket_start)
     SELECT DISTINCT '1m', tenant_id, device_id, metric_type, unit,
         date_bin('1 minute', occurred_at, '2000-01-01 00:00:00+00')
     FROM new ORDER BY 2, 3, 4, 5, 6
     ON CONFLICT (level, tenant_id, device_id, metric_type, unit, bucket_start)
     DO UPDATE SET marked_at = t.marked_at";
const CREATED: &str =
    "INSERT INTO weighvision_session AS t (tenant_id, session_id, farm_id, barn_id, device_id,
             created_event_id, created_at, batch_id, initial_weight_kg)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::timestamptz[], $8::uuid[], $9::float8[])
         ON CONFLICT (tenant_id, session_id) DO UPDATE SET
             farm_id = excluded.farm_id, barn_id = excluded.barn_id,
             device_id = excluded.device_id, created_event_id = excluded.created_event_id,
             created_at = excluded.created_at, batch_id = excluded.batch_id,
             initial_weight_kg = excluded.initial_weight_kg, updated_at = now()
         WHERE t.created_at IS NULL OR (excluded.created_at, excluded.created_event_id)
             < (t.created_at, t.created_event_id)";
const FINALIZED: &str =
    "INSERT INTO weighvision_session AS t (tenant_id, session_id, farm_id, barn_id, device_id,
             finalized_event_id, finalized_at, final_weight_kg, image_count, inference_result_id)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::timestamptz[], $8::float8[], $9::bigint[], $10::uuid[])
         ON CONFLICT (tenant_id, session_id) DO UPDATE SET
             finalized_event_id = excluded.finalized_event_id,
             finalized_at = excluded.finalized_at, final_weight_kg = excluded.final_weight_kg,
             image_count = excluded.image_count,
             inference_result_id = excluded.inference_result_id, updated_at = now()
         WHERE t.finalized_at IS NULL OR (excluded.finalized_at, excluded.finalized_event_id)
             > (t.finalized_at, t.finalized_event_id)";
const RESULTS: &str =
    "INSERT INTO inference_result AS t (tenant_id, inference_result_id, event_id, farm_id, barn_id,
             device_id, session_id, occurred_at, predicted_weight_kg, confidence, model_version,
             trace_id)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::uuid[], $8::timestamptz[], $9::float8[], $10::float8[], $11::text[],
             $12::text[])
         ON CONFLICT (tenant_id, inference_result_id) DO UPDATE SET
             event_id = excluded.event_id, occurred_at = excluded.occurred_at,
             predicted_weight_kg = excluded.predicted_weight_kg
         WHERE (excluded.occurred_at, excluded.event_id) > (t.occurred_at, t.event_id)";

/// The consumers of the old binary: prepared once, as one that runs for weeks has it.
struct Old {
    client: Client,
    readings: Statement,
    created: Statement,
    finalized: Statement,
    results: Statement,
    tenant: Uuid,
}

impl Old {
    async fn new(client: Client) -> Old {
        Old {
            readings: client.prepare(READINGS).await.unwrap(),
            created: client.prepare(CREATED).await.unwrap(),
            finalized: client.prepare(FINALIZED).await.unwrap(),
            results: client.prepare(RESULTS).await.unwrap(),
            client,
            tenant: id(),
        }
    }

    /// A reading, and a session that ends before it is known to have begun, with a result.
    async fn take(&mut self) {
        let (tenant, none, at) = (vec![self.tenant], vec![None::<Uuid>], vec![Timestamp::now()]);
        let (session, result, event) = (vec![id()], vec![id()], vec![id()]);
        let no_text = vec![None::<String>];
        let transaction = self.client.transaction().await.unwrap();
        let values: [&(dyn ToSql + Sync); 16] = [
            &tenant,
            &at,
            &event,
            &none,
            &none,
            &tenant,
            &none,
            &vec!["temperature"],
            &vec![26.4f64],
            &vec!["C"],
            &no_text,
            &vec![false],
            &no_text,
            &no_text,
            &none,
            &vec![None::<i64>],
        ];
        transaction.execute(&self.readings, &values).await.unwrap();
        let weight = vec![80.5f64];
        let values: [&(dyn ToSql + Sync); 10] = [
            &tenant,
            &session,
            &tenant,
            &tenant,
            &tenant,
            &event,
            &at,
            &weight,
            &vec![1i64],
            &result,
        ];
        assert_eq!(transaction.execute(&self.finalized, &values).await.unwrap(), 1);
        let values: [&(dyn ToSql + Sync); 9] =
            [&tenant, &session, &tenant, &tenant, &tenant, &event, &at, &none, &weight];
        assert_eq!(transaction.execute(&self.created, &values).await.unwrap(), 1);
        let values: [&(dyn ToSql + Sync); 12] = [
            &tenant,
            &result,
            &event,
            &tenant,
            &tenant,
            &tenant,
            &session,
            &at,
            &weight,
            &vec![0.9f64],
            &vec!["m1"],
            &no_text,
        ];
        assert_eq!(transaction.execute(&self.results, &values).await.unwrap(), 1);
        transaction.commit().await.unwrap();
    }
}

fn id() -> Uuid {
    EventId::mint().uuid()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consumers_of_the_old_binary_go_on_while_the_database_is_upgraded() {
    for version in versions(OLDEST) {
        let database = database(version).await;
        let mut old = Old::new(database.connect().await.unwrap()).await;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let working = tokio::spawn({
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            async move {
                while !stop.load(Ordering::SeqCst) {
                    old.take().await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let moved = async |what: &str| {
            let before = done.load(Ordering::SeqCst);
            eventually(LONG, what, async || {
                done.load(Ordering::SeqCst) >= before + 20 || working.is_finished()
            })
            .await
            .unwrap();
        };
        moved("the old binary works before").await;
        cloud::migrate(&pg::Options::new(database.url())).await.unwrap();
        moved("the old binary works after").await;
        stop.store(true, Ordering::SeqCst);
        working.await.unwrap();

        let client = database.connect().await.unwrap();
        let done = done.load(Ordering::SeqCst);
        for what in [
            "telemetry_reading",
            "weighvision_session WHERE created_at IS NOT NULL AND finalized_at IS NOT NULL",
            "inference_result",
        ] {
            let count = format!("SELECT count(*) FROM {what}");
            assert_eq!(number(&client, &count).await, done, "{version}: {what}");
        }
    }
}
