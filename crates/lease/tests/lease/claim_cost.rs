//! What a claim and a completion read, in pages: the same at any backlog and with an old snapshot.
//!
//! Pages, not times: a busy machine does not change them.

use crate::outbox;
use crate::site::{Mode, Site, name};

const LANES: i32 = 10;

async fn pages(site: &Site, query: &str) -> i64 {
    site.client.batch_execute("BEGIN").await.unwrap();
    let explained = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}");
    let row = site.client.query_one(&explained, &[]).await.unwrap();
    site.client.batch_execute("ROLLBACK").await.unwrap();
    let plan: serde_json::Value = row.get(0);
    let count = |key: &str| plan[0]["Plan"][key].as_i64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

async fn fill(site: &Site, rows: i64, status: &str) {
    let held = if status == "claimed" {
        ("'w'", "now()", "md5('token')::uuid")
    } else {
        ("NULL", "NULL::timestamptz", "NULL::uuid")
    };
    let text = format!(
        "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at, payload_json,
           status, claimed_by, claimed_at, lease_expires_at, lease_token)
         SELECT md5('{status}' || n)::uuid, '{}', md5('d' || n % {LANES})::uuid, 'e',
           '2026-01-01'::timestamptz + n * interval '1 ms', '{{}}', '{status}', {}, {}, {} + interval '1 h', {}
         FROM generate_series(1, {rows}) n",
        name("t"), held.0, held.1, held.1, held.2
    );
    site.client.batch_execute(&text).await.unwrap();
    site.client.batch_execute("ANALYZE sync_outbox").await.unwrap();
}

fn claim(mark: Option<i64>) -> String {
    let list = |entry: String| vec![entry; usize::try_from(LANES).unwrap()].join(",");
    let keys =
        format!("(ARRAY(SELECT md5('d' || n)::uuid::text FROM generate_series(0, {LANES} - 1) n))");
    let at = mark.map_or("NULL".to_owned(), |n| {
        format!("'2026-01-01'::timestamptz + {n} * interval '1 ms'")
    });
    let values = [
        ("$10::int4[]", format!("ARRAY[{}]", list("5".to_owned()))),
        ("$5::text[]", format!("ARRAY[{}]", list(format!("'{}'", name("t"))))),
        ("$6::int4[]", format!("ARRAY[{}]", list("0".to_owned()))),
        ("$7::text[]", keys),
        ("$8::timestamptz[]", format!("ARRAY[{}]::timestamptz[]", list(at))),
        ("$9::uuid[]", format!("ARRAY[{}]::uuid[]", list("NULL".to_owned()))),
        ("$1::text", "'w'".to_owned()),
        ("$2::uuid", "md5('token')::uuid".to_owned()),
        ("$3::int8", "60000".to_owned()),
        ("$4", "10".to_owned()),
    ];
    values.iter().fold(outbox::table(Mode::Row).statements().claim, |text, (name, value)| {
        text.replace(name, value)
    })
}

#[tokio::test]
async fn a_claim_reads_the_same_at_any_backlog() {
    let site = Site::new(Mode::Row, "flat").await;
    fill(&site, 1_000, "pending").await;
    let small = pages(&site, &claim(None)).await;
    site.client.batch_execute("TRUNCATE sync_outbox").await.unwrap();
    fill(&site, 60_000, "pending").await;
    let large = pages(&site, &claim(None)).await;
    assert!(large < small * 2, "{small} pages at 1,000 rows, {large} at 60,000");
    // Keys in backoff cost one look each: here all but one are.
    let later = "UPDATE sync_outbox SET next_attempt_at = now() + interval '1 h'
        WHERE device_id <> md5('d0')::uuid";
    site.client.batch_execute(later).await.unwrap();
    let blocked = pages(&site, &claim(None)).await;
    assert!(blocked < small * 2, "{small} pages, {blocked} with keys in backoff");
}

#[tokio::test]
async fn a_completion_reads_its_rows_and_not_its_state() {
    let site = Site::new(Mode::Row, "settle").await;
    fill(&site, 20_000, "claimed").await;
    // What the planner believes when the queue was empty at the last ANALYZE: few rows are held.
    let lease::HoldStatements::Row(texts) = outbox::table(Mode::Row).statements().hold else {
        panic!("no row has a lease")
    };
    let text = texts
        .complete
        .replace(
            "$1::uuid[]",
            "ARRAY(SELECT md5('claimed' || n)::uuid FROM generate_series(1, 50) n)",
        )
        .replace("$2::uuid", "md5('token')::uuid");
    let read = pages(&site, &text).await;
    assert!(read < 50 * 60, "{read} pages for 50 rows");
}

#[tokio::test]
async fn an_old_snapshot_does_not_slow_a_claim_that_knows_its_place() {
    let site = Site::new(Mode::Row, "snapshot").await;
    fill(&site, 40_000, "pending").await;
    let fresh = pages(&site, &claim(None)).await;
    let old = pg::connect(&site.address).await.unwrap();
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sync_outbox")
        .await
        .unwrap();
    // Most of the backlog leaves; its index entries cannot.
    let acked = "UPDATE sync_outbox SET status = 'acked'
        WHERE occurred_at <= '2026-01-01'::timestamptz + 30000 * interval '1 ms'";
    site.client.batch_execute(acked).await.unwrap();
    site.client.batch_execute("VACUUM sync_outbox").await.unwrap();
    let marked = pages(&site, &claim(Some(30_000))).await;
    let unmarked = pages(&site, &claim(None)).await;
    assert!(marked < fresh * 2, "{fresh} pages before, {marked} with the snapshot");
    assert!(
        unmarked > fresh * 3,
        "the snapshot held nothing up ({unmarked} pages): this test proves nothing"
    );
    old.batch_execute("COMMIT").await.unwrap();
}
