//! Monthly partitions of a table partitioned by a time.
//!
//! Promise: after [`ensure_months`] returns, every month asked for has its partition and there is a
//! default partition for everything else. Rows of such a month that were waiting in the default
//! partition have been moved, in the same transaction that made the partition, so that no reader
//! sees a row missing or twice. Any number of callers may ask at once.
//!
//! A month is a calendar month of UTC; the partition of March 2026 is named `table_2026_03`.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use tokio_postgres::{Client, GenericClient, Transaction};

use crate::Error;

/// Postgres cuts off longer names in silence; two months could then get the same one.
const MAX_NAME_BYTES: usize = 63;
const SUFFIX_BYTES: usize = "_2026_03".len();
/// The most months one call makes.
const MAX_MONTHS: i32 = 1200;
/// While we wait for the writers before us, the writers after us wait too, so the wait is short; a
/// caller that meets [`crate::About::Conflict`] asks again.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '5s'";
/// One maker at a time per table, and none while somebody holds; the locks go with the transaction.
const ALONE: &str = "SELECT pg_advisory_xact_lock('pg_class'::regclass::oid::int, $1)";
const SHARED: &str = "SELECT pg_advisory_xact_lock_shared('pg_class'::regclass::oid::int, $1)";

/// Makes the monthly partitions of `table`, from the month of `from` to the month of `to`, both
/// included, where they are missing, and the default partition. Returns how many months were made.
///
/// `column` is the column that `table` is partitioned by RANGE on.
pub async fn ensure_months(
    client: &mut Client,
    table: &str,
    column: &str,
    from: Timestamp,
    to: Timestamp,
) -> Result<usize, Error> {
    let parent = Parent::find(client, table).await?;
    let present = list(client, table).await?;
    let mut made = 0;
    let last = first_of_month(to);
    let first = first_of_month(from);
    if months_after(first, last) >= MAX_MONTHS {
        let problem = "more than 1200 months were asked for";
        return Err(Error::Table { table: table.to_owned(), problem });
    }
    let mut month = first;
    while month <= last {
        // Looking first keeps the usual call, in which nothing is missing, free of locks.
        if !present.contains(&parent.partition_name(month)) || parent.default.is_none() {
            made += usize::from(parent.ensure(client, column, month).await?);
        }
        month = month.saturating_add(1.month());
    }
    Ok(made)
}

/// Lets no month of `table` be made until the transaction ends. For a transaction that must not miss a
/// row: a statement that was planned while a row was in the default partition, and begins to read
/// when the row has been moved, finds it in neither place. Any number may hold at once.
///
/// The statements that need it come after it, each with a snapshot of its own (READ COMMITTED).
pub async fn hold(transaction: &Transaction<'_>, table: &str) -> Result<(), Error> {
    let parent = Parent::find(transaction, table).await?;
    parent.lock(transaction, SHARED).await
}

/// The names of the partitions of `table`, the default one included, in order.
pub async fn list(client: &Client, table: &str) -> Result<Vec<String>, Error> {
    let rows = client
        .query(
            "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = to_regclass($1::text) ORDER BY 1",
            &[&table],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn first_of_month(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date().first_of_month()
}

fn months_after(first: Date, last: Date) -> i32 {
    let number = |date: Date| i32::from(date.year()) * 12 + i32::from(date.month());
    number(last) - number(first)
}

/// A partitioned table as the catalogue knows it.
struct Parent {
    oid: u32,
    schema: String,
    name: String,
    default: Option<String>,
}

impl Parent {
    async fn find(client: &impl GenericClient, table: &str) -> Result<Parent, Error> {
        let refuse = |problem| Error::Table { table: table.to_owned(), problem };
        let row = client
            .query_opt(
                "SELECT c.oid, n.nspname::text, c.relname::text, d.relname::text, p.partstrat = 'r'
                 FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace
                 JOIN pg_partitioned_table p ON p.partrelid = c.oid
                 LEFT JOIN pg_class d ON d.oid = p.partdefid
                 WHERE c.oid = to_regclass($1::text)",
                &[&table],
            )
            .await?
            .ok_or_else(|| refuse("there is no partitioned table of that name"))?;
        if !row.get::<_, bool>(4) {
            return Err(refuse("it is not partitioned by RANGE"));
        }
        let parent =
            Parent { oid: row.get(0), schema: row.get(1), name: row.get(2), default: row.get(3) };
        if parent.name.len() + SUFFIX_BYTES > MAX_NAME_BYTES {
            return Err(refuse("its name is too long to take a month's suffix"));
        }
        Ok(parent)
    }

    fn partition_name(&self, month: Date) -> String {
        format!("{}_{:04}_{:02}", self.name, month.year(), month.month())
    }

    fn qualified(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(name))
    }

    /// Makes one month and, if it is missing, the default partition, in one transaction. False when
    /// somebody else made the month in the meantime.
    async fn ensure(&self, client: &mut Client, column: &str, month: Date) -> Result<bool, Error> {
        let transaction = client.transaction().await?;
        self.lock(&transaction, ALONE).await?;
        transaction.batch_execute(LOCK_TIMEOUT).await?;
        let default = self.ensure_default(&transaction).await?;
        let name = self.partition_name(month);
        let made = !self.has(&transaction, &name).await?;
        if made {
            self.make(&transaction, &name, &default, column, month).await?;
        }
        transaction.commit().await?;
        Ok(made)
    }

    async fn lock(&self, transaction: &Transaction<'_>, how: &str) -> Result<(), Error> {
        transaction.execute(how, &[&self.oid.cast_signed()]).await?;
        Ok(())
    }

    async fn ensure_default(&self, transaction: &Transaction<'_>) -> Result<String, Error> {
        let row = transaction
            .query_one(
                "SELECT (SELECT relname::text FROM pg_class WHERE oid = p.partdefid)
                 FROM pg_partitioned_table p WHERE p.partrelid = $1",
                &[&self.oid],
            )
            .await?;
        if let Some(name) = row.get(0) {
            return Ok(name);
        }
        let name = format!("{}_default", self.name);
        transaction
            .batch_execute(&format!(
                "CREATE TABLE {} PARTITION OF {} DEFAULT",
                self.qualified(&name),
                self.qualified(&self.name)
            ))
            .await?;
        Ok(name)
    }

    async fn has(&self, transaction: &Transaction<'_>, name: &str) -> Result<bool, Error> {
        let row = transaction
            .query_one(
                "SELECT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = $1 AND c.relname = $2::text)",
                &[&self.oid, &name],
            )
            .await?;
        Ok(row.get(0))
    }

    async fn make(
        &self,
        transaction: &Transaction<'_>,
        name: &str,
        default: &str,
        column: &str,
        month: Date,
    ) -> Result<(), Error> {
        let parent = self.qualified(&self.name);
        let partition = self.qualified(name);
        let default = self.qualified(default);
        let column = quoted(column);
        let start = format!("'{month} 00:00:00+00'");
        let end = format!("'{} 00:00:00+00'", month.saturating_add(1.month()));
        let columns = self.columns(transaction).await?;
        // Writers are held back at the parent. One that had already chosen the default partition
        // for its row, and waited there, would be refused once the month is attached: the row no
        // longer belongs. Readers go on, except in the default partition.
        // An identity stays with the parent, which numbers the rows of all partitions.
        transaction
            .batch_execute(&format!(
                "LOCK TABLE ONLY {parent} IN SHARE ROW EXCLUSIVE MODE;
                 CREATE TABLE {partition} (LIKE {parent} INCLUDING ALL EXCLUDING IDENTITY);
                 LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE;
                 WITH moved AS (DELETE FROM {default}
                     WHERE {column} >= {start} AND {column} < {end} RETURNING {columns})
                 INSERT INTO {partition} ({columns}) SELECT {columns} FROM moved;
                 ALTER TABLE {parent} ATTACH PARTITION {partition}
                     FOR VALUES FROM ({start}) TO ({end})"
            ))
            .await?;
        Ok(())
    }

    /// The columns that hold values of their own; a generated one is computed again.
    async fn columns(&self, transaction: &Transaction<'_>) -> Result<String, Error> {
        let rows = transaction
            .query(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = $1 AND attnum > 0
                 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
                &[&self.oid],
            )
            .await?;
        let names: Vec<String> = rows.iter().map(|row| quoted(row.get(0))).collect();
        Ok(names.join(", "))
    }
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}
