//! Connections, migrations, partitions and bulk inserts, against a real Postgres.

mod copy;
mod migration;
mod partitions;
mod pool;
mod tls;
