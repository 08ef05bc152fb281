//! Rows by COPY: all of them arrive as they are, or none.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use pg::copy::{Row, send};
use tokio_postgres::types::{ToSql, Type};

const MAKE: &str =
    "CREATE TABLE things (id int8 PRIMARY KEY, name varchar(8), blob bytea, at timestamptz)";
const COPY: &str = "COPY things (id, name, blob, at) FROM STDIN BINARY";

fn row(id: i64, name: Option<&str>, blob: &[u8]) -> Row {
    let at = jiff::Timestamp::UNIX_EPOCH;
    let columns: [(&(dyn ToSql + Sync), Type); 4] =
        [(&id, Type::INT8), (&name, Type::VARCHAR), (&blob, Type::BYTEA), (&at, Type::TIMESTAMPTZ)];
    Row::encode(&columns).unwrap()
}

#[tokio::test]
async fn rows_arrive_whole_or_not_at_all() {
    let database = testkit::Database::empty("pg_copy").await.unwrap();
    let pool = pg::Pool::new(&pg::Options::new(database.url())).unwrap();
    let mut client = pool.get().await.unwrap();
    client.batch_execute(MAKE).await.unwrap();

    // More than one piece, one row that is longer than a piece, and none at all.
    let long = vec![7_u8; 100_000];
    let mut rows: Vec<Row> = (0..3_000).map(|id| row(id, Some("née"), b"x")).collect();
    rows.push(row(3_000, None, &long));
    let transaction = client.transaction().await.unwrap();
    let statement = transaction.prepare_cached(COPY).await.unwrap();
    assert_eq!(send(&transaction, &statement, rows.iter()).await.unwrap(), 3_001);
    assert_eq!(send(&transaction, &statement, [].iter()).await.unwrap(), 0);
    transaction.commit().await.unwrap();
    let count =
        "SELECT count(*), count(name), max(length(blob)), min(at) = to_timestamp(0) FROM things";
    let seen = async |client: &pg::Client| {
        let row = client.query_one(count, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i32>(2), row.get::<_, bool>(3))
    };
    assert_eq!(seen(&client).await, (3_001, 3_000, 100_000, true));

    // One that is there already, one that is too long: the error says which kind, and the connection goes on.
    for (bad, about) in [
        (row(5, None, b""), pg::About::Data),
        (row(9_999, Some("too long for it"), b""), pg::About::Data),
    ] {
        let transaction = client.transaction().await.unwrap();
        let rows = [row(5_000, None, b""), bad];
        let error = send(&transaction, &statement, rows.iter()).await.unwrap_err();
        assert_eq!(error.about(), about, "{error}");
        transaction.rollback().await.unwrap();
    }
    assert_eq!(seen(&client).await, (3_001, 3_000, 100_000, true));
}

#[test]
fn a_value_of_another_type_is_refused() {
    let columns: [(&(dyn ToSql + Sync), Type); 2] = [(&1_i64, Type::INT8), (&1_i64, Type::TEXT)];
    let error = Row::encode(&columns).unwrap_err().to_string();
    assert!(error.starts_with("the value of column 1 cannot be encoded"), "{error}");
}
