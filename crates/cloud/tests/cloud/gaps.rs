//! Known gaps: what of the declared ranges is lost, and when it was.

use cloud::tokens::{Role, Tenants};
use event::id::Epoch;
use serde_json::{Value, json};

use crate::query::Asked;
use crate::site::{batch, placed, tombstone};

/// First, last, lost and reason of each, in the order of their declaration.
fn told(items: &[Value]) -> Vec<(u64, u64, u64, &str)> {
    let number = |item: &Value, name: &str| item[name].as_u64().unwrap();
    let told = items.iter().map(|item| {
        let reason = item["reason"].as_str().unwrap();
        (number(item, "from_seq"), number(item, "to_seq"), number(item, "lost"), reason)
    });
    told.collect()
}

async fn declare(asked: &Asked, epoch: Epoch, ranges: &[(u64, u64, &str)]) {
    // One batch each: the list is in the order in which they were recorded.
    for (from, to, reason) in ranges {
        let mut body = batch(vec![]);
        let mut one = tombstone(asked.site.tenant, epoch, *from, *to);
        one["reason"] = json!(reason);
        body["tombstones"] = json!([one]);
        assert_eq!(asked.site.send(&body).await.status(), 200);
    }
}

#[tokio::test]
async fn what_was_kept_and_what_came_after_all_is_not_lost() {
    let asked = Asked::new("losses", |_| Vec::new()).await;
    let epoch = Epoch::mint();
    let ranges = [
        (1, 5, "kept_at_site"),
        (6, 6, "quarantined"),
        (7, 8, "duplicate"),
        (11, 20, "drop_oldest"),
        // It grew, and was declared again.
        (11, 25, "drop_oldest"),
        (31, 32, "corrupt"),
        (41, 50, "expired"),
        (60, 60, "disk_full"),
        (61, 61, "lost"),
    ];
    declare(&asked, epoch, &ranges).await;
    let came: Vec<Value> =
        [31, 32, 43, 47, 48].map(|seq| placed(asked.site.reading(), "barn-7", epoch, seq)).to_vec();
    assert!(asked.site.statuses(&batch(came)).await.iter().all(|status| status == "accepted"));
    let losses = asked.items("/ledger/tombstones?loss=true&order=asc").await;
    let lost = [
        (11, 20, 10, "drop_oldest"),
        (11, 25, 15, "drop_oldest"),
        (41, 50, 7, "expired"),
        (60, 60, 1, "disk_full"),
        (61, 61, 1, "lost"),
    ];
    assert_eq!(told(&losses), lost);
    let none = asked.items("/ledger/tombstones?loss=false&order=asc").await;
    let kept = [
        (1, 5, 0, "kept_at_site"),
        (6, 6, 0, "quarantined"),
        (7, 8, 0, "duplicate"),
        (31, 32, 0, "corrupt"),
    ];
    assert_eq!(told(&none), kept);
    assert_eq!(asked.items("/ledger/tombstones").await.len(), ranges.len(), "all of them");
    // What the ranges lost together is what the ledger counts; the first is within the second.
    let counted = asked.site.number("SELECT lost_count FROM ledger_frontier").await;
    let lost: u64 = told(&losses).iter().skip(1).map(|range| range.2).sum();
    assert_eq!(counted, i64::try_from(lost).unwrap());
    // Page by page, as one.
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/ledger/tombstones?loss=true&order=asc&limit=2{cursor}");
        let page = asked.get(&path).await;
        pages.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, losses);
    assert_eq!(asked.ask("/ledger/tombstones?loss=some").await.status(), 400);
    asked.site.cloud.stop().await;
}

/// Ranges beside, across, within and around each other, against the plain arithmetic.
#[tokio::test]
async fn what_is_lost_of_a_range_is_what_the_frontier_has_of_it() {
    let asked = Asked::new("lost_of_a_range", |_| Vec::new()).await;
    let epoch = Epoch::mint();
    let holes = [(2, 2), (4, 6), (8, 8), (9, 9), (12, 15)];
    let client = asked.site.client().await;
    let frontier = "INSERT INTO ledger_frontier (tenant_id, stream, epoch, lost) VALUES ($1, 'barn-7', $2, $3)";
    let flat: Vec<i64> = holes.iter().flat_map(|(first, last)| [*first, *last]).collect();
    let tenant = asked.site.tenant.uuid();
    client.execute(frontier, &[&tenant, &epoch.uuid(), &flat]).await.unwrap();
    let every = "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count, reason, origin)
        SELECT $1, 'barn-7', $2, a, b, b - a + 1, 'lost', 'edge'
        FROM generate_series(1, 17) a, generate_series(1, 17) b WHERE a <= b";
    client.execute(every, &[&tenant, &epoch.uuid()]).await.unwrap();
    let all = asked.items("/ledger/tombstones?limit=1000").await;
    assert_eq!(all.len(), 17 * 18 / 2);
    for (from, to, lost, _) in told(&all) {
        let within = (from..=to).filter(|seq| {
            let seq = i64::try_from(*seq).unwrap();
            holes.iter().any(|(first, last)| (*first..=*last).contains(&seq))
        });
        assert_eq!(lost, within.count() as u64, "{from} to {to}");
    }
    // A stream of which nothing else is known hides no gap.
    client.batch_execute("DELETE FROM ledger_frontier").await.unwrap();
    let all = asked.items("/ledger/tombstones?limit=1000&loss=true").await;
    assert!(told(&all).iter().all(|(from, to, lost, _)| *lost == to - from + 1));
    client.batch_execute("DELETE FROM ledger_tombstone").await.unwrap();
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn a_gap_is_found_by_the_time_of_what_was_lost() {
    let asked = Asked::new("gap_times", |_| Vec::new()).await;
    let epoch = Epoch::mint();
    let mut body = batch(vec![]);
    let times = [
        (1, Some("2026-02-01T10:00:00Z"), Some("2026-02-01T11:00:00Z")),
        (2, Some("2026-02-01T12:00:00Z"), None),
        (3, None, Some("2026-02-01T13:00:00Z")),
        (4, None, None),
    ];
    let declared = times.map(|(seq, first, last)| {
        let mut one = tombstone(asked.site.tenant, epoch, seq, seq);
        one["first_at"] = json!(first);
        one["last_at"] = json!(last);
        one
    });
    body["tombstones"] = json!(declared);
    assert_eq!(asked.site.send(&body).await.status(), 200);
    let now = jiff::Timestamp::now();
    let (before, after) =
        (now - jiff::SignedDuration::from_mins(1), now + jiff::SignedDuration::from_mins(1));
    for (from, to, found) in [
        ("2026-02-01T09:00:00Z", "2026-02-01T10:00:00Z", vec![]),
        ("2026-02-01T09:00:00Z", "2026-02-01T10:00:01Z", vec![1]),
        ("2026-02-01T10:20:00Z", "2026-02-01T10:40:00Z", vec![1]),
        ("2026-02-01T11:00:00Z", "2026-02-01T12:00:01Z", vec![1, 2]),
        ("2026-02-01T12:30:00Z", "2026-02-01T13:30:00Z", vec![3]),
        (&before.to_string(), &after.to_string(), vec![4]),
    ] {
        let items = asked.items(&format!("/ledger/tombstones?order=asc&from={from}&to={to}")).await;
        let seqs: Vec<u64> = told(&items).iter().map(|range| range.0).collect();
        assert_eq!(seqs, found, "{from} to {to}");
    }
    asked.site.cloud.stop().await;
}

/// A site that keeps its readings declares very many ranges: losses are found without reading those.
#[tokio::test]
async fn losses_have_an_index_of_their_own() {
    let asked = Asked::new("loss_index", |_| Vec::new()).await;
    let client = asked.site.client().await;
    client
        .batch_execute(
            "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count, reason, origin)
             SELECT '00000000-0000-7000-8000-000000000001', 'barn-7', '00000000-0000-7000-8000-000000000002', n, n, 1,
                 CASE WHEN n % 1000 = 0 THEN 'lost' ELSE 'kept_at_site' END, 'edge'
             FROM generate_series(1, 20000) n;
             ANALYZE ledger_tombstone",
        )
        .await
        .unwrap();
    let (_, token) = crate::site::token(&client, Role::Viewer, Tenants::All).await;
    let used = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = 'ledger_tombstone_loss'";
    let tenant = "00000000-0000-7000-8000-000000000001";
    let url = format!(
        "http://{}/api/v1/ledger/tombstones?tenant_id={tenant}&loss=true&from=2026-02-01T00:00:00Z",
        asked.site.cloud.http()
    );
    let answer = crate::site::http().get(url).bearer_auth(token).send().await.unwrap();
    let page: Value = answer.json().await.unwrap();
    assert_eq!(page["items"].as_array().unwrap().len(), 20, "{page}");
    testkit::eventually(crate::site::LONG, "the index was used", async || {
        (asked.site.number(used).await > 0).then_some(())
    })
    .await
    .unwrap();
    asked.site.cloud.stop().await;
}
