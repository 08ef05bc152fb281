//! Postgres for every role: pool, migrations, monthly partitions.
