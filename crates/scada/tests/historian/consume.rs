//! What comes to be stored, once, whatever happens on the way.

use bus::{Message, Publisher as _};
use scada::historian::{INCOMPATIBLE, INVALID};
use testkit::eventually;

use crate::station::{LONG, Station, config, events, expected, message, start, stored};

#[tokio::test]
async fn columns_partitions_and_indexes_are_the_documented_ones() {
    let station = Station::new("hist_schema").await;
    let client = station.client().await;
    let made = events(7, 60);
    station.publish(made.iter().map(message).collect()).await;
    for table in ["telemetry", "events", "alarms"] {
        let query = "SELECT column_name::text || ' ' || udt_name || coalesce('(' || character_maximum_length || ')', '')
            FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position";
        let rows = client.query(query, &[&table]).await.unwrap();
        let mut columns: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        if table == "alarms" {
            assert_eq!(columns.pop().unwrap(), "severity varchar(16)");
        }
        let documented = "event_id uuid,timestamp timestamptz,plant varchar(64),area varchar(64),unit_name varchar(64),tag varchar(128),value float8,unit varchar(32),quality varchar(16),node_id int4,created_at timestamptz,extra jsonb";
        assert_eq!(columns.join(","), documented, "{table}");
        let query = "SELECT string_agg(pg_get_indexdef(indexrelid), ';') FROM pg_index WHERE indrelid = $1::text::regclass";
        let indexes: String = client.query_one(query, &[&table]).await.unwrap().get(0);
        let mut wanted = vec![
            "(event_id, \"timestamp\")",
            "(plant, \"timestamp\")",
            "(tag, \"timestamp\")",
            "(node_id, \"timestamp\")",
        ];
        if table == "alarms" {
            wanted.push("(severity, \"timestamp\")");
        }
        for columns in wanted {
            assert!(indexes.contains(columns), "{table} {columns}");
        }
        assert_eq!(station.count(&format!("{table}_default")).await, 0, "{table} has its month");
    }
    assert_eq!(station.stored().await, expected(&made));
}

#[tokio::test]
async fn duplicates_and_reordered_deliveries_leave_every_event_once() {
    let station = Station::new("hist_twice").await;
    let made = events(7, 300);
    let mut messages: Vec<Message> = made.iter().map(message).collect();
    // The same event twice in one batch, then everything again in another order, half of it new.
    messages.insert(10, messages[3].clone());
    let half = messages.len() / 2;
    station.publish(messages[..half].to_vec()).await;
    messages.reverse();
    station.publish(messages.clone()).await;
    station.publish(messages).await;
    assert_eq!(station.stored().await, expected(&made));
    let journal = station.count("alarm_journal").await;
    station.publish(made.iter().map(message).collect()).await;
    assert_eq!(station.count("alarm_journal").await, journal, "a replay is no news");
    let metrics = station.historian.metrics().render();
    assert!(!metrics.contains("holdfast_historian_duplicates_total 0"), "{metrics}");
}

#[tokio::test]
async fn one_invalid_message_in_a_thousand_is_a_dead_letter_and_the_rest_is_stored() {
    let station = Station::new("hist_invalid").await;
    let made = events(7, 300);
    let mut messages: Vec<Message> = made.iter().map(message).collect();
    let broken = |change: fn(&mut Message)| {
        let mut message = message(&events(8, 1)[0]);
        change(&mut message);
        message
    };
    let version = |message: &mut Message, text: &str| {
        message.headers.insert("schema_version".to_owned(), text.to_owned());
    };
    let bad = [
        broken(|message| message.body = "canary".into()),
        broken(|message| {
            let text = String::from_utf8(message.body.to_vec()).unwrap();
            message.body = text.replace("PLANT01", "plant 1").into();
        }),
        {
            let mut message = message(&events(8, 1)[1]);
            version(&mut message, "2.0.0");
            message
        },
        {
            // A newer version whose unknown field Postgres refuses: text with a NUL.
            let mut message = message(&events(8, 1)[2]);
            version(&mut message, "1.4.0");
            let text = String::from_utf8(message.body.to_vec()).unwrap();
            message.body = text.replacen('{', "{\"note\":\"\\u0000\",", 1).into();
            message
        },
    ];
    for (place, message) in bad.iter().enumerate() {
        messages.insert(place * 200, message.clone());
    }
    station.publish(messages).await;
    assert_eq!(station.stored().await, expected(&made));
    let client = station.client().await;
    let query = "SELECT message_id, cause_code, cause_message, body FROM historian_dead_letters";
    let rows = client.query(query, &[]).await.unwrap();
    assert_eq!(rows.len(), bad.len());
    for (message, code) in bad.iter().zip([INVALID, INVALID, INCOMPATIBLE, "refused_by_database"]) {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == message.message_id).unwrap();
        assert_eq!(row.get::<_, &str>(1), code);
        let words: &str = row.get(2);
        assert!(!words.contains("canary") && !words.contains("plant 1"), "{words}");
        assert_eq!(row.get::<_, &[u8]>(3), &message.body[..], "the original is kept whole");
    }
}

#[tokio::test]
async fn terminated_backends_and_a_database_that_is_away_cost_nothing() {
    let station = Station::with("hist_away", &[("BATCH", "50"), ("STALLED_AFTER", "1s")]).await;
    let made = events(7, 400);
    let admin = station.client().await;
    let name = station.database.name().to_owned();
    let publishing = {
        let (bus, messages) = (station.bus.clone(), made.iter().map(message).collect());
        tokio::spawn(async move { bus.publish(messages).await })
    };
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = $1 AND pid <> pg_backend_pid()";
    eventually(LONG, "something is stored", async || station.count("telemetry").await > 0)
        .await
        .unwrap();
    for _ in 0..5 {
        admin.execute(kill, &[&name]).await.unwrap();
        tokio::task::yield_now().await;
    }
    // Away: nobody new is let in, and who was in is out.
    let maintenance = testkit::postgres().await.unwrap().maintenance_url();
    let gate = pg::connect(&pg::Options::new(maintenance)).await.unwrap();
    let allow = async |flag: bool| {
        gate.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {flag}"))
            .await
            .unwrap();
    };
    allow(false).await;
    admin.execute(kill, &[&name]).await.unwrap();
    let ready = format!("http://{}/readyz", station.historian.http());
    eventually(LONG, "it is not ready", async || {
        crate::station::http().get(&ready).send().await.unwrap().status() == 503
    })
    .await
    .unwrap();
    allow(true).await;
    assert!(publishing.await.unwrap().iter().all(Result::is_ok), "nothing was given up");
    assert_eq!(station.stored().await, expected(&made));
    assert_eq!(station.count("historian_dead_letters").await, 0);
}

#[tokio::test]
async fn stopped_between_insert_and_acknowledgement_nothing_is_lost_or_doubled() {
    let station = Station::with("hist_killed", &[("BATCH", "20")]).await;
    let made = events(7, 100);
    let client = station.client().await;
    // The rows of alarms are held, so that a batch hangs between its insert and its commit.
    client.batch_execute("BEGIN; LOCK TABLE alarm_state IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let bus = station.bus.clone();
    let messages: Vec<Message> = made.iter().map(message).collect();
    let again = messages.clone();
    let first = tokio::spawn(async move { bus.publish(messages).await });
    let waiting = "pg_locks WHERE NOT granted";
    let other = station.client().await;
    eventually(LONG, "a batch hangs", async || crate::station::count(&other, waiting).await > 0)
        .await
        .unwrap();
    let Station { database, historian, bus: _bus } = station;
    let ended = tokio::spawn(historian.stop());
    // Its connections die with it, as those of a killed process do.
    other
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'holdfast-historian'",
            &[],
        )
        .await
        .unwrap();
    client.batch_execute("ROLLBACK").await.unwrap();
    ended.await.unwrap();
    assert!(first.await.unwrap().iter().any(Result::is_err), "the publisher is told");
    let (second, bus) = start(config(database.url(), &[])).await;
    assert!(bus.publish(again).await.iter().all(Result::is_ok));
    assert_eq!(stored(&client).await, expected(&made));
    second.stop().await;
}

#[tokio::test]
async fn two_replicas_that_meet_in_the_same_events_store_each_once() {
    let station = Station::with("hist_replicas", &[("BATCH", "40")]).await;
    let (second, other) = start(config(station.database.url(), &[("BATCH", "30")])).await;
    let made = events(7, 300);
    let mut backwards: Vec<Message> = made.iter().map(message).collect();
    let forwards = backwards.clone();
    backwards.reverse();
    let (one, two) = tokio::join!(station.bus.publish(forwards), other.publish(backwards));
    assert!(one.iter().chain(&two).all(Result::is_ok));
    assert_eq!(station.stored().await, expected(&made));
    let raised = "alarm_journal WHERE action = 'raised' AND NOT late";
    let states = station.count("alarm_state").await;
    assert!(station.count(raised).await >= states);
    second.stop().await;
}
