//! Migrations started by several replicas at once, and by several crates in one database.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use pg::{About, Error, Options, migrate};
use refinery::{Migration, Runner};
use testkit::Database;

fn runner(scripts: &[(&str, &str)]) -> Runner {
    let migrations: Vec<Migration> =
        scripts.iter().map(|(name, sql)| Migration::unapplied(name, sql).unwrap()).collect();
    Runner::new(&migrations)
}

/// The pause makes sure that replicas without a lock would meet.
fn slow() -> Runner {
    runner(&[
        ("V1__first", "CREATE TABLE a (id int); SELECT pg_sleep(0.3)"),
        ("V2__second", "CREATE TABLE b (id int); INSERT INTO b VALUES (1)"),
    ])
}

#[tokio::test]
async fn replicas_that_start_together_migrate_once() {
    let database = Database::empty("migrate").await.unwrap();
    let options = Options::new(database.url());
    let (a, b, c) = tokio::join!(
        migrate(&options, "history_a", slow()),
        migrate(&options, "history_a", slow()),
        migrate(&options, "history_a", slow())
    );
    let mut applied = [a.unwrap(), b.unwrap(), c.unwrap()];
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 2]);
    let client = database.connect().await.unwrap();
    let rows: i64 = client.query_one("SELECT count(*) FROM b", &[]).await.unwrap().get(0);
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn crates_share_a_database_with_a_history_each() {
    let database = Database::empty("migrate").await.unwrap();
    let options = Options::new(database.url());
    let other = runner(&[("V1__mine", "CREATE TABLE mine (id int)")]);
    assert_eq!(migrate(&options, "history_a", slow()).await.unwrap(), 2);
    assert_eq!(migrate(&options, "history_b", other).await.unwrap(), 1);
    assert_eq!(migrate(&options, "history_a", slow()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_statement_timeout_does_not_cut_off_a_migration() {
    let database = Database::empty("migrate").await.unwrap();
    let options = Options {
        statement_timeout: Some(std::time::Duration::from_millis(50)),
        ..Options::new(database.url())
    };
    assert_eq!(migrate(&options, "history_a", slow()).await.unwrap(), 2);
}

#[tokio::test]
async fn a_wrong_migration_says_which_and_why_and_is_about_us() {
    let database = Database::empty("migrate").await.unwrap();
    let options = Options::new(database.url());
    let wrong = || {
        runner(&[
            ("V1__right", "CREATE TABLE a (id int PRIMARY KEY)"),
            ("V2__wrong", "INSERT INTO a VALUES (1), (1)"),
        ])
    };
    let error = migrate(&options, "history_a", wrong()).await.unwrap_err();
    assert!(matches!(&error, Error::Migration { history, .. } if history == "history_a"));
    let text = error.to_string();
    assert!(text.contains("V2__wrong") && text.contains("duplicate key"), "{text}");
    assert_eq!(error.about(), About::Us);
    // The failed one left nothing behind and can be corrected.
    let right = runner(&[
        ("V1__right", "CREATE TABLE a (id int PRIMARY KEY)"),
        ("V2__wrong", "INSERT INTO a VALUES (1), (2)"),
    ]);
    assert_eq!(migrate(&options, "history_a", right).await.unwrap(), 1);
}
