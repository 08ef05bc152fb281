//! The pool and the classification of errors, against a real server.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::time::Duration;

use pg::{About, Error, Options, Pool};
use testkit::Database;

async fn fresh() -> Database {
    Database::empty("pool").await.unwrap()
}

#[tokio::test]
async fn options_reach_the_server() {
    let database = fresh().await;
    let options = Options {
        application_name: "pool-test".to_owned(),
        statement_timeout: Some(Duration::from_millis(1234)),
        ..Options::new(database.url())
    };
    let pool = Pool::new(&options).unwrap();
    let client = pool.get().await.unwrap();
    let row = client
        .query_one(
            "SELECT current_setting('application_name'), current_setting('statement_timeout')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("pool-test", "1234ms"));
}

#[tokio::test]
async fn the_pool_is_bounded_and_so_is_the_wait() {
    let database = fresh().await;
    let options = Options {
        max_connections: 1,
        connect_timeout: Duration::from_millis(200),
        ..Options::new(database.url())
    };
    let pool = Pool::new(&options).unwrap();
    let held = pool.get().await.unwrap();
    let error = pool.get().await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    assert_eq!(error.about(), About::Destination);
    drop(held);
    pool.get().await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_killed_backend_is_about_the_destination_and_the_pool_recovers() {
    let database = fresh().await;
    let pool = Pool::new(&Options { max_connections: 1, ..Options::new(database.url()) }).unwrap();
    let client = pool.get().await.unwrap();
    let victim: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let killer = database.connect().await.unwrap();
    let sleeping = client.batch_execute("SELECT pg_sleep(60)");
    let killing = async {
        testkit::eventually(Duration::from_secs(20), "the sleeper", async || {
            let row = killer
                .query_one(
                    "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%sleep%'",
                    &[&victim],
                )
                .await?;
            Ok::<bool, tokio_postgres::Error>(row.get::<_, i64>(0) == 1)
        })
        .await
        .unwrap();
        killer.execute("SELECT pg_terminate_backend($1)", &[&victim]).await.unwrap();
    };
    let (answer, ()) = tokio::join!(sleeping, killing);
    assert_eq!(pg::about(&answer.unwrap_err()), About::Destination);
    // Whatever is asked of the dead connection next is about the destination too.
    let after = client.batch_execute("SELECT 1").await.unwrap_err();
    assert_eq!(pg::about(&after), About::Destination, "{after:?}");
    drop(client);
    pool.get().await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn errors_are_told_apart() {
    let database = fresh().await;
    let client = database.connect().await.unwrap();
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, doc jsonb)").await.unwrap();
    let cases = [
        ("INSERT INTO t VALUES (1), (1)", About::Data),
        ("INSERT INTO t VALUES (2, '\"\\u0000\"')", About::Data),
        ("SELECT 1 / 0", About::Data),
        ("SELECT * FROM missing", About::Us),
        ("SET statement_timeout = 1; SELECT pg_sleep(60)", About::Destination),
    ];
    for (statement, expected) in cases {
        let error = client.batch_execute(statement).await.unwrap_err();
        assert_eq!(pg::about(&error), expected, "{statement}: {error:?}");
    }
}

#[tokio::test]
async fn a_deadlock_is_a_conflict() {
    let database = fresh().await;
    let mut one = database.connect().await.unwrap();
    let mut two = database.connect().await.unwrap();
    one.batch_execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0), (2, 0)",
    )
    .await
    .unwrap();
    let one = one.transaction().await.unwrap();
    let two = two.transaction().await.unwrap();
    one.batch_execute("UPDATE t SET n = 1 WHERE id = 1").await.unwrap();
    two.batch_execute("UPDATE t SET n = 1 WHERE id = 2").await.unwrap();
    let (a, b) = tokio::join!(
        async {
            let answer = one.batch_execute("UPDATE t SET n = 1 WHERE id = 2").await;
            one.rollback().await.unwrap();
            answer
        },
        async {
            let answer = two.batch_execute("UPDATE t SET n = 1 WHERE id = 1").await;
            two.rollback().await.unwrap();
            answer
        }
    );
    let error = a.and(b).unwrap_err();
    assert_eq!(pg::about(&error), About::Conflict, "{error:?}");
}

#[tokio::test]
async fn no_server_is_about_the_destination() {
    let folder = std::env::temp_dir();
    let url = format!("host={}/no-such-folder user=nobody", folder.display());
    let pool = Pool::new(&Options::new(&url)).unwrap();
    let error = pool.get().await.unwrap_err();
    assert_eq!(error.about(), About::Destination, "{error}");
    let error = pg::connect(&Options::new(&url)).await.unwrap_err();
    assert_eq!(error.about(), About::Destination, "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://x@{}/x", listener.local_addr().unwrap());
    let options = Options { connect_timeout: Duration::from_millis(200), ..Options::new(url) };
    let error = pg::connect(&options).await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    let error = Pool::new(&options).unwrap().get().await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
}

#[test]
fn a_wrong_address_does_not_show_the_password() {
    let error = Pool::new(&Options::new("postgres://a:hunter2@h/x?nonsense=1")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    assert_eq!(error.about(), About::Us);
}
