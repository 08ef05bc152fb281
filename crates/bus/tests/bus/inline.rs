//! What is the inline bus's own: time limits, consumers that are gone, a sink that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bus::inline::{Bus, GroupConsumer, Options};
use bus::{
    Binding, Cause, ConsumeError, Consumer, DeadLetter, DeadLetters, PublishError, Publisher,
};
use futures_util::future::BoxFuture;

use crate::world::{Kept, LONG, TELEMETRY, drain, message, next, retry};

fn bus(options: Options, sink: Arc<dyn DeadLetters>) -> (Bus, GroupConsumer, GroupConsumer) {
    let mut bus = Bus::new(Options { retry: retry(), ..options }, sink);
    let all = || vec![Binding::new(TELEMETRY, "#")];
    let (first, second) = (bus.group("first", all()), bus.group("second", all()));
    (bus, first, second)
}

#[tokio::test]
async fn one_group_that_does_not_settle_holds_the_confirm() {
    let options = Options { settle_within: Duration::from_millis(300), ..Options::default() };
    let (bus, first, mut second) = bus(options, Arc::new(Kept::default()));
    let mut first: Box<dyn Consumer> = Box::new(first);
    let publishing = bus.publish((0..3).map(message).collect());
    let (results, _) = tokio::join!(publishing, drain(&mut first, 3, |_, _| {}));
    assert!(
        results.iter().all(|result| matches!(result, Err(PublishError::Unconfirmed(_)))),
        "{results:?}"
    );
    // What was published in vain is not delivered late: the relay publishes it again.
    let publishing = bus.publish(vec![message(7)]);
    let seen = async {
        let batch = second.next().await.unwrap();
        let ids: Vec<String> =
            batch.deliveries().iter().map(|one| one.message.message_id.clone()).collect();
        batch.commit().await.unwrap();
        ids
    };
    let (results, ids, _) = tokio::join!(publishing, seen, drain(&mut first, 1, |_, _| {}));
    assert_eq!((results, ids), (vec![Ok(())], vec!["id-7".to_owned()]));
}

#[tokio::test]
async fn a_group_whose_consumer_is_gone_is_reported() {
    let (bus, mut first, second) = bus(Options::default(), Arc::new(Kept::default()));
    drop(second);
    let publishing = bus.publish(vec![message(0)]);
    let handling = async { first.next().await.unwrap().commit().await };
    let (results, handled) = tokio::join!(publishing, handling);
    assert_eq!(handled.unwrap().done, 1);
    assert!(matches!(results[..], [Err(PublishError::Unreachable(_))]), "{results:?}");
    drop(bus);
    assert_eq!(first.next().await.unwrap_err(), ConsumeError::Closed);
}

/// Fails a few times first.
#[derive(Default)]
struct Reluctant {
    asked: AtomicU32,
    kept: Kept,
}

impl DeadLetters for Reluctant {
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>> {
        if self.asked.fetch_add(1, Ordering::Relaxed) < 3 {
            return Box::pin(std::future::ready(Err("the table is away".to_owned())));
        }
        self.kept.store(letter)
    }
}

#[tokio::test]
async fn publish_waits_until_the_dead_letter_is_kept() {
    let sink = Arc::new(Reluctant::default());
    let (bus, first, second) = bus(Options::default(), Arc::clone(&sink) as Arc<dyn DeadLetters>);
    let (mut first, mut second): (Box<dyn Consumer>, Box<dyn Consumer>) =
        (Box::new(first), Box::new(second));
    let publishing = tokio::time::timeout(LONG, bus.publish(vec![message(0)]));
    let give_up = drain(&mut first, 1, |batch, at| {
        batch.dead_letter(at, Cause::new("invalid", "no unit"));
    });
    let (results, given_up, _) =
        tokio::join!(publishing, give_up, drain(&mut second, 1, |_, _| {}));
    assert_eq!(results.unwrap(), [Ok(())]);
    assert_eq!((given_up.returned, given_up.dead_lettered), (3, 1));
    let kept = sink.kept.0.lock().unwrap();
    assert_eq!((kept.len(), kept[0].attempts), (1, 1), "a failing sink costs no attempt");
}

#[tokio::test]
async fn a_full_group_holds_the_publisher_back() {
    let options = Options {
        capacity: 5,
        settle_within: Duration::from_millis(300),
        batch: 3,
        ..Options::default()
    };
    let (bus, first, second) = bus(options, Arc::new(Kept::default()));
    let results = bus.publish((0..50).map(message).collect()).await;
    assert!(results.iter().all(Result::is_err), "nobody consumes");
    let (mut first, mut second): (Box<dyn Consumer>, Box<dyn Consumer>) =
        (Box::new(first), Box::new(second));
    let publishing = bus.publish((0..50).map(message).collect());
    let handling = async {
        let mut largest = 0;
        let mut seen = 0;
        while seen < 50 {
            let batch = next(&mut first).await;
            largest = largest.max(batch.len());
            seen += usize::try_from(batch.commit().await.unwrap().done).unwrap();
        }
        largest
    };
    let (results, largest, _) =
        tokio::join!(publishing, handling, drain(&mut second, 50, |_, _| {}));
    assert!(results.iter().all(Result::is_ok));
    assert!(largest <= 3);
}
