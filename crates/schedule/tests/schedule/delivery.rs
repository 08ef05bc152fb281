//! Delivery against a real HTTP server that takes, refuses, delays and drops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease::backoff::Backoff;
use schedule::deliver::{Channel, Delivery, Settings, Telegram, Webhook, sign, table};
use settings::Secret;
use uuid::Uuid;

use crate::receiver::{Do, OK, Received, Receiver};
use crate::rota::LONG;
use crate::site::{Site, USER};

const SHORT: Duration = Duration::from_millis(400);
const SECRET: &str = "tulip";

/// A delivery that does not wait.
fn settings(name: &str, channel: Channel) -> Settings {
    let soon = Backoff::Schedule(vec![Duration::from_millis(20)]);
    Settings {
        poll: Duration::from_millis(20),
        sweep: Duration::from_millis(50),
        stop_grace: Duration::from_millis(100),
        timeout: Duration::from_secs(5),
        backoff: soon.clone(),
        breaker: soon,
        ..Settings::new(name, channel)
    }
}

fn webhook(url: &str) -> Channel {
    Channel::Webhook(Webhook { url: url.parse().unwrap(), secret: Some(Secret::new(SECRET)) })
}

fn telegram(address: impl std::fmt::Display) -> Channel {
    let url = format!("http://{address}/").parse().unwrap();
    Channel::Telegram(Telegram { url, token: Secret::new("77:secret-token") })
}

/// Puts a message as the worker does, with the documented columns alone.
async fn put(site: &Site, user: i64, id: &str) {
    let insert =
        "INSERT INTO schedule_ingest.schedule_notification (notification_id, user_id, schedule_date,
            source_session_id, status, notification_type, message, event_ids, created_at)
         VALUES ($1, $2, '2026-11-16', $3, 'pending', 'event', 'Your shift moved', '[]', now())";
    site.client.execute(insert, &[&id, &user, &Uuid::nil()]).await.unwrap();
}

/// Status, attempts and the code of the last error.
async fn row(site: &Site, id: &str) -> (String, i32, Option<String>) {
    let select =
        "SELECT status, attempts, last_error_code FROM schedule_ingest.schedule_notification
        WHERE notification_id = $1 AND (sent_at IS NOT NULL) = (status = 'sent')";
    let row = site.client.query_one(select, &[&id]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

async fn becomes(site: &Site, id: &str, status: &str) {
    testkit::eventually(LONG, status, async || {
        let now = row(site, id).await;
        if now.0 == status { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
}

fn keys(receiver: &Receiver) -> Vec<String> {
    receiver.received().iter().map(|request| request.key().to_owned()).collect()
}

#[tokio::test]
async fn a_webhook_gets_the_message_signed_and_with_its_key() {
    let site = Site::new("deliver_webhook").await;
    let receiver = Receiver::start(|_, _| OK).await;
    put(&site, USER, "event:1").await;
    let delivery =
        Delivery::start(&site.address, &settings("one", webhook(&receiver.url()))).unwrap();
    becomes(&site, "event:1", "sent").await;
    delivery.stop().await;
    assert_eq!(row(&site, "event:1").await, ("sent".to_owned(), 0, None));
    let [request] = &receiver.received()[..] else { panic!("{:?}", receiver.received()) };
    assert_eq!((request.path.as_str(), request.key()), ("/hook", "event:1"));
    let body = request.json();
    assert_eq!((&body["user_id"], &body["message"]), (&USER.into(), &"Your shift moved".into()));
    assert_eq!(
        (&body["schedule_date"], &body["event_ids"]),
        (&"2026-11-16".into(), &serde_json::json!([]))
    );
    let signature = &request.headers["holdfast-signature"];
    let seconds = signature.strip_prefix("t=").unwrap().split_once(',').unwrap().0;
    assert_eq!(*signature, sign(&Secret::new(SECRET), seconds.parse().unwrap(), &request.body));
}

#[tokio::test]
async fn a_refused_message_fails_alone_and_an_outage_costs_nothing() {
    let site = Site::new("deliver_refused").await;
    // The first calls find the destination away in every way that there is.
    let receiver = Receiver::start(|request: &Received, before| match (before, request.key()) {
        (0, _) => Do::Drop,
        (1, _) => Do::Say(503, "retry-after: 0\r\n", ""),
        (2, _) => Do::Say(401, "", ""),
        (3, _) => Do::Say(302, "location: http://127.0.0.1:1/\r\n", ""),
        (4, _) => Do::Say(429, "retry-after: 0\r\n", "slow down"),
        (5, _) => Do::Hang,
        (_, "bad") => Do::Say(422, "", ""),
        (_, "odd") => Do::Say(409, "", ""),
        _ => OK,
    })
    .await;
    for id in ["good", "bad", "odd", "last"] {
        put(&site, USER, id).await;
    }
    let settings =
        Settings { max_attempts: 3, timeout: SHORT, ..settings("one", webhook(&receiver.url())) };
    let delivery = Delivery::start(&site.address, &settings).unwrap();
    becomes(&site, "last", "sent").await;
    delivery.stop().await;
    assert_eq!(row(&site, "good").await, ("sent".to_owned(), 0, None), "an outage costs nothing");
    assert_eq!(row(&site, "bad").await, ("failed".to_owned(), 1, Some("HTTP_422".to_owned())));
    assert_eq!(row(&site, "odd").await, ("failed".to_owned(), 3, Some("HTTP_409".to_owned())));
    let sent = keys(&receiver);
    assert_eq!(sent[..7], ["good"; 7], "nothing overtakes the first: {sent:?}");
    assert_eq!(
        sent[7..],
        ["bad", "odd", "odd", "odd", "last"],
        "in order, each as often as it must"
    );
}

#[tokio::test]
async fn a_destination_that_is_not_there_is_waited_for() {
    let site = Site::new("deliver_away").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    put(&site, USER, "event:1").await;
    let url = format!("http://{address}/hook");
    let delivery = Delivery::start(&site.address, &settings("one", webhook(&url))).unwrap();
    testkit::eventually(LONG, "tries", async || delivery.counts().released >= 3).await.unwrap();
    assert_eq!(row(&site, "event:1").await, ("pending".to_owned(), 0, None));
    let receiver = Receiver::on(tokio::net::TcpListener::bind(address).await.unwrap(), |_, _| OK);
    becomes(&site, "event:1", "sent").await;
    delivery.stop().await;
    assert_eq!(keys(&receiver), ["event:1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_deliver_each_message_once_and_in_order() {
    const USERS: i64 = 8;
    const EACH: usize = 12;
    let site = Site::new("deliver_two").await;
    let receiver = Receiver::start(|_, _| OK).await;
    let start = |name: &str| {
        let settings = Settings { batch: 3, ..settings(name, webhook(&receiver.url())) };
        Delivery::start(&site.address, &settings).unwrap()
    };
    let (one, two) = (start("one"), start("two"));
    for number in 0..EACH {
        for user in 1..=USERS {
            put(&site, user, &format!("{user}/{number:02}")).await;
        }
    }
    let wanted = usize::try_from(USERS).unwrap() * EACH;
    let sent = "SELECT count(*) FROM schedule_ingest.schedule_notification WHERE status = 'sent'";
    testkit::eventually(LONG, "all are sent", async || {
        let sent = site.number(sent).await;
        if sent == i64::try_from(wanted).unwrap() { Ok(()) } else { Err(sent) }
    })
    .await
    .unwrap();
    one.stop().await;
    two.stop().await;
    assert_eq!(receiver.received().len(), wanted, "each once");
    let mut by_user: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for request in receiver.received() {
        let user = request.json()["user_id"].as_i64().unwrap();
        by_user.entry(user).or_default().push(request.key().to_owned());
    }
    for (user, keys) in by_user {
        let expected: Vec<String> = (0..EACH).map(|number| format!("{user}/{number:02}")).collect();
        assert_eq!(keys, expected);
    }
}

#[tokio::test]
async fn a_death_between_sending_and_writing_sends_again_under_the_same_key() {
    let site = Site::new("deliver_death").await;
    let receiver = Receiver::start(|_, _| OK).await;
    // Whoever writes that it was sent waits at this door, and is cut off there.
    site.run(
        "CREATE FUNCTION door() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END';
         CREATE TRIGGER zz_door BEFORE UPDATE ON schedule_ingest.schedule_notification
            FOR EACH ROW WHEN (NEW.status = 'sent') EXECUTE FUNCTION door();
         SELECT pg_advisory_lock(42)",
    )
    .await
    .unwrap();
    put(&site, USER, "event:1").await;
    put(&site, USER, "event:2").await;
    let victim =
        Settings { lease: SHORT, batch: 1, ..settings("victim", webhook(&receiver.url())) };
    let victim = Delivery::start(&site.address, &victim).unwrap();
    let waits =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    testkit::eventually(LONG, "at the door", async || site.number(waits).await == 1).await.unwrap();
    assert_eq!(keys(&receiver), ["event:1"]);
    drop(victim);
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks
        WHERE locktype = 'advisory' AND objid = 42 AND NOT granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(site.number(cut).await, 1);
    site.run("SELECT pg_advisory_unlock(42); DROP TRIGGER zz_door ON schedule_ingest.schedule_notification")
        .await
        .unwrap();
    assert_eq!(row(&site, "event:1").await.0, "pending");
    let heir = Delivery::start(&site.address, &settings("heir", webhook(&receiver.url()))).unwrap();
    becomes(&site, "event:2", "sent").await;
    heir.stop().await;
    assert_eq!(keys(&receiver), ["event:1", "event:1", "event:2"], "again, and in order");
    assert_eq!(
        row(&site, "event:1").await,
        ("sent".to_owned(), 1, Some("LEASE_EXPIRED".to_owned()))
    );
    let bodies: Vec<Vec<u8>> =
        receiver.received().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies[0], bodies[1], "what is sent again is the same");
}

#[tokio::test]
async fn what_a_bot_has_marked_is_left_alone() {
    let site = Site::new("deliver_bot").await;
    let away = Arc::new(AtomicBool::new(true));
    let gate = away.clone();
    let receiver =
        Receiver::start(
            move |_, _| {
                if gate.load(Ordering::SeqCst) { Do::Say(503, "", "") } else { OK }
            },
        )
        .await;
    for id in ["mine", "theirs", "lost", "mine too"] {
        put(&site, USER, id).await;
    }
    let delivery =
        Delivery::start(&site.address, &settings("one", webhook(&receiver.url()))).unwrap();
    testkit::eventually(LONG, "a try", async || !receiver.received().is_empty()).await.unwrap();
    // A bot that knows the documented columns alone.
    for (id, set) in [("theirs", "status = 'sent', sent_at = now()"), ("lost", "status = 'failed'")]
    {
        let mark = format!(
            "UPDATE schedule_ingest.schedule_notification SET {set} WHERE status = 'pending' AND notification_id = '{id}'"
        );
        site.run(&mark).await.unwrap();
    }
    away.store(false, Ordering::SeqCst);
    becomes(&site, "mine too", "sent").await;
    delivery.stop().await;
    let sent = keys(&receiver);
    assert!(!sent.iter().any(|key| key == "theirs" || key == "lost"), "{sent:?}");
    assert_eq!(row(&site, "theirs").await, ("sent".to_owned(), 0, None));
    assert_eq!(row(&site, "lost").await, ("failed".to_owned(), 0, None));
}

#[tokio::test]
async fn telegram_is_asked_in_its_own_way() {
    let site = Site::new("deliver_telegram").await;
    let receiver = Receiver::start(|request: &Received, before| {
        match (before, request.json()["chat_id"].as_i64().unwrap()) {
            (0, _) => Do::Say(
                429,
                "",
                r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1}}"#,
            ),
            (_, 2) => Do::Say(
                403,
                "",
                r#"{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}"#,
            ),
            _ => OK,
        }
    })
    .await;
    site.run(
        "INSERT INTO schedule_ingest.user_setting (user_id, telegram_chat_id) VALUES (3, -1003)",
    )
    .await
    .unwrap();
    for user in [1, 2, 3] {
        put(&site, user, &format!("event:{user}")).await;
    }
    let one = Settings { slots: 1, ..settings("one", telegram(receiver.address)) };
    let delivery = Delivery::start(&site.address, &one).unwrap();
    for (id, status) in [("event:1", "sent"), ("event:2", "failed"), ("event:3", "sent")] {
        becomes(&site, id, status).await;
    }
    delivery.stop().await;
    assert_eq!(row(&site, "event:1").await, ("sent".to_owned(), 0, None), "429 costs nothing");
    assert_eq!(
        row(&site, "event:2").await,
        ("failed".to_owned(), 1, Some("TELEGRAM_403".to_owned()))
    );
    let why = "SELECT count(*) FROM schedule_ingest.schedule_notification WHERE failed_reason = 'blocked'
        AND failed_at IS NOT NULL AND last_error_message = 'Forbidden: bot was blocked by the user'";
    assert_eq!(site.number(why).await, 1);
    let received = receiver.received();
    assert!(received.iter().all(|request| request.path == "/bot77:secret-token/sendMessage"));
    assert_eq!(received[0].json()["text"], "Your shift moved");
    let mut chats: Vec<i64> =
        received[1..].iter().map(|request| request.json()["chat_id"].as_i64().unwrap()).collect();
    chats.sort_unstable();
    assert_eq!(chats, [-1003, 1, 2]);
}

#[tokio::test]
async fn index_and_lanes_are_those_the_engine_asks_for() {
    let site = Site::new("deliver_index").await;
    site.run(&table().lane_index("of_the_engine")).await.unwrap();
    let same =
        "SELECT count(DISTINCT regexp_replace(indexdef, 'INDEX \\S+', 'INDEX')) FROM pg_indexes
        WHERE indexname IN ('of_the_engine', 'schedule_notification_lanes')";
    let both = "SELECT count(*) FROM pg_indexes WHERE indexname IN ('of_the_engine', 'schedule_notification_lanes')";
    assert_eq!((site.number(same).await, site.number(both).await), (1, 2));
    site.run(&table().lane_table("schedule_ingest.of_the_engine_lanes")).await.unwrap();
    let columns = "SELECT count(DISTINCT columns) FROM (
        SELECT array_agg((column_name, udt_name, is_nullable)::text ORDER BY ordinal_position) AS columns
        FROM information_schema.columns WHERE table_name IN ('of_the_engine_lanes', 'notification_lane')
        GROUP BY table_name) t";
    assert_eq!(site.number(columns).await, 1);
}
