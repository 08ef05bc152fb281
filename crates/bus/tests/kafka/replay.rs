//! Dead letters that go back to the group that gave them up, and to no other.

use bus::kafka::{DeadLetterTopic, KafkaConsumer};
use bus::{Cause, Consumer as _, Filter, Message, Publisher as _, ReplayOptions};

use crate::world::{Site, ids, next, publish_all};

/// Consumes until `count` messages were seen; gives those up that `gives_up` names. Returns the ids in order.
async fn work(consumer: &mut KafkaConsumer, count: usize, gives_up: &[&str]) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let mut batch = next(consumer).await;
        let these = ids(&batch);
        for (at, id) in these.iter().enumerate() {
            if gives_up.contains(&id.as_str()) {
                batch.dead_letter(at, Cause::new("unit", "is not known"));
            }
        }
        batch.commit().await.unwrap();
        seen.extend(these);
    }
    seen
}

fn of(ids: &[&str]) -> ReplayOptions {
    let message_ids = Some(ids.iter().map(|id| (*id).to_owned()).collect());
    let filter = Filter { message_ids, ..Filter::default() };
    ReplayOptions { filter, dry_run: false, ..ReplayOptions::default() }
}

#[tokio::test]
async fn a_replayed_letter_comes_to_its_group_alone_and_is_shown_no_more() {
    let Some(site) = Site::shared(2).await else { return };
    let other = Site { group: format!("{}-other", site.group), ..site.clone() };
    let (mut own, mut others) = (site.consumer(), other.consumer());
    let publisher = site.publisher();
    publish_all(&publisher, (0..6).map(|n| site.message(n, 3))).await;
    work(&mut own, 6, &["id-1", "id-4", "id-5"]).await;
    work(&mut others, 6, &[]).await;

    let letters = DeadLetterTopic::new(site.cluster.clone(), &site.dlq);
    let listed = async || {
        let listing = letters.listing(&Filter::default(), 10).await.unwrap();
        assert_eq!(listing.scanned, listing.total);
        let mut shown: Vec<(String, u32)> = listing
            .letters
            .into_iter()
            .map(|letter| (letter.message.message_id, letter.replayed))
            .collect();
        shown.sort();
        shown
    };
    let shown = |rows: &[(&str, u32)]| {
        rows.iter().map(|(id, times)| ((*id).to_owned(), *times)).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, shown(&[("id-1", 0), ("id-4", 0), ("id-5", 0)]));
    let tell = |_: u64, _: &bus::Replayed| {};
    let dry = ReplayOptions { dry_run: true, ..of(&["id-1", "id-4"]) };
    let report = letters.replay(&publisher, &dry, &tell).await.unwrap();
    assert_eq!(report.replayed.len(), 2);
    assert_eq!(listed().await.len(), 3, "a dry run changes nothing");

    let report = letters.replay(&publisher, &of(&["id-1", "id-4"]), &tell).await.unwrap();
    assert_eq!((report.replayed.len(), report.kept.len()), (2, 0), "{report:?}");
    assert_eq!(listed().await, shown(&[("id-5", 0)]));
    let again = letters.replay(&publisher, &of(&["id-1", "id-4"]), &tell).await.unwrap();
    assert_eq!(again.replayed.len(), 0, "once is enough");

    // The group gets them whole, gives one up again, and the other group sees only what is new.
    let batch = next(&mut own).await;
    let first = &batch.deliveries()[0].message;
    let n: usize = first.message_id.strip_prefix("id-").unwrap().parse().unwrap();
    assert_eq!(*first, site.message(n, 3), "key, headers and body as they were");
    let had = batch.len();
    drop(batch);
    assert!(had <= 2);
    let mut seen = work(&mut own, 2, &["id-4"]).await;
    seen.sort();
    assert_eq!(seen, ["id-1", "id-4"]);
    assert_eq!(listed().await, shown(&[("id-4", 1), ("id-5", 0)]));
    publish_all(&publisher, (6..8).map(|n| site.message(n, 3))).await;
    let mut seen = work(&mut others, 2, &[]).await;
    seen.sort();
    assert_eq!(seen, ["id-6", "id-7"]);
    let filter = Filter::default();
    let limited = letters.listing(&filter, 1).await.unwrap();
    assert_eq!((limited.letters.len(), limited.scanned, limited.total), (1, 1, 2));
    own.leave().await;
    others.leave().await;
}

#[tokio::test]
async fn what_somebody_else_put_there_stays_and_is_named() {
    let Some(site) = Site::shared(1).await else { return };
    let publisher = site.publisher();
    let foreign = Message { exchange: site.dlq.clone(), ..site.message(1, 1) };
    assert!(publisher.publish(vec![foreign]).await.iter().all(Result::is_ok));
    let letters = DeadLetterTopic::new(site.cluster.clone(), &site.dlq);
    let all = ReplayOptions { dry_run: false, ..ReplayOptions::default() };
    let report = letters.replay(&publisher, &all, &|_, _| {}).await.unwrap();
    assert_eq!(report.replayed.len(), 0);
    assert_eq!(report.kept.len(), 1);
    let (id, why) = &report.kept[0];
    assert!(id == "id-1" && why.contains("is not known"), "{id}: {why}");
    assert_eq!(letters.list(&Filter::default(), 10).await.unwrap().len(), 1);
}
