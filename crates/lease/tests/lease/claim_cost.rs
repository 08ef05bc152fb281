//! What a claim and a completion read, in pages: the same at any backlog and with an old snapshot.
//!
//! Pages, not times: a busy machine does not change them.

use crate::outbox;
use crate::site::{Mode, Site, name, script};

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
    fill_unseen(site, rows, status).await;
    site.client.batch_execute("ANALYZE sync_outbox").await.unwrap();
}

/// Without new statistics.
async fn fill_unseen(site: &Site, rows: i64, status: &str) {
    let (columns, values) = if status == "claimed" {
        (
            ", claimed_by, claimed_at, lease_expires_at, lease_token",
            ", 'w', now(), now() + interval '1 h', md5('token')::uuid",
        )
    } else {
        ("", "")
    };
    let text = format!(
        "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at, payload_json, status{columns})
         SELECT md5('{status}' || n)::uuid, '{}', md5('d' || n % {LANES})::uuid, 'e',
           '2026-01-01'::timestamptz + n * interval '1 ms', '{{}}', '{status}'{values}
         FROM generate_series(1, {rows}) n",
        name("t")
    );
    site.client.batch_execute(&text).await.unwrap();
}

fn claim(mark: Option<i64>) -> String {
    with_values(outbox::table(Mode::Row).statements().claim, mark)
}

fn with_values(claim: String, mark: Option<i64>) -> String {
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
    values.iter().fold(claim, |text, (name, value)| text.replace(name, value))
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

/// After a quiet time the statistics say that nothing waits. Then comes a backlog.
#[tokio::test]
async fn statistics_of_a_quiet_time_slow_nothing() {
    for mode in [Mode::Row, Mode::Lane] {
        let site = Site::new(mode, "quiet").await;
        fill(&site, 20_000, "acked").await;
        fill_unseen(&site, 10_000, "pending").await;
        for (name, value) in lease::PLANNER {
            site.client.batch_execute(&format!("SET {name} = {value}")).await.unwrap();
        }
        let texts = outbox::table(mode).statements();
        let none = "'00000000-0000-0000-0000-000000000000'";
        let sweep = texts
            .sweep
            .replace("$1::text", none)
            .replace("$2::int4", "-1")
            .replace("$3::text", none)
            .replace("$4::int4", "1000")
            .replace("$5::int4", "1000");
        let swept = pages(&site, &sweep).await;
        assert!(swept < 200, "{swept} pages to find {LANES} lanes");
        let claimed = pages(&site, &with_values(texts.claim, None)).await;
        assert!(claimed < 2_000, "{claimed} pages for a claim");
    }
}

/// Who sorts has not been told how to plan.
#[tokio::test]
async fn the_engine_plans_its_statements_so() {
    let site = Site::new(Mode::Row, "planner").await;
    let noted = "CREATE TABLE noted (name text, value text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO noted SELECT name, setting FROM pg_settings WHERE name IN ('enable_sort', 'enable_incremental_sort', 'jit');
          RETURN NEW; END $$;
        CREATE TRIGGER note BEFORE UPDATE ON sync_outbox FOR EACH ROW EXECUTE FUNCTION note()";
    site.client.batch_execute(noted).await.unwrap();
    site.add("t", "d", 0..1).await;
    let done = script(async |batch| lease::Verdict::all_done(&batch));
    let worker = site.start(done, site.options("w"));
    site.until_acked(1).await;
    worker.stop().await;
    let settings = "SELECT string_agg(DISTINCT name || ' ' || value, ', ') FROM noted";
    let settings: String = site.client.query_one(settings, &[]).await.unwrap().get(0);
    assert_eq!(settings, "enable_incremental_sort off, enable_sort off, jit off");
}
