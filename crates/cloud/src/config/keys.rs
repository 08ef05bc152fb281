//! The keys, each with its default and what it means.

use settings::{Key, Kind, joined};

use super::kafka;

/// The name of the section.
pub const SECTION: &str = "cloud";

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// Every key of the section.
pub const KEYS: &[Key] = &joined::<{ OWN.len() + api::serve::KEYS.len() + kafka::KEYS.len() }>(&[
    OWN,
    &api::serve::KEYS,
    kafka::KEYS,
]);

const OWN: &[Key] = &[
    Key::new("database.url", Kind::Text, "Postgres.")
        .secret()
        .required()
        .alias(&["CLOUD_DATABASE_URL"]),
    Key::new(
        "database.ca_file",
        Kind::Text,
        "PEM certificates to trust; Postgres is then reached over TLS only.",
    ),
    Key::new(
        "database.max_connections",
        Kind::Integer { min: 3, max: 200 },
        "The most connections to Postgres. The relay has some of its own.",
    )
    .default("20"),
    Key::new("http.listen", Kind::HostPort, "Where the API, health and metrics are served.")
        .default("127.0.0.1:8091"),
    Key::new(
        "http.allow_remote",
        Kind::Flag,
        "Whether http.listen may be reached from other machines.",
    )
    .default("false"),
    Key::new(
        "limits.body",
        Kind::Size { min: 64 << 10, max: 64 << 20 },
        "The largest body of a request as it travels.",
    )
    .default("8MiB"),
    Key::new(
        "limits.decompressed",
        Kind::Size { min: 64 << 10, max: 256 << 20 },
        "The largest body of a request once decompressed.",
    )
    .default("32MiB"),
    Key::new("limits.events", Kind::Integer { min: 1, max: 50_000 }, "Events in one batch.")
        .default("5000"),
    Key::new(
        "limits.tombstones",
        Kind::Integer { min: 1, max: 50_000 },
        "Tombstones in one batch.",
    )
    .default("1000"),
    Key::new(
        "limits.body_within",
        Kind::Duration { min_ms: 100, max_ms: 10 * MINUTE },
        "How long a body may take to arrive.",
    )
    .default("60s"),
    Key::new(
        "limits.requests",
        Kind::Integer { min: 1, max: 1_000 },
        "Batches worked on at once; further ones are told to come back. Times limits.decompressed, \
         this bounds the memory.",
    )
    .default("8"),
    Key::new(
        "limits.requests_per_token",
        Kind::Integer { min: 1, max: 1_000 },
        "Of these, from one token.",
    )
    .default("4"),
    Key::new(
        "rate.requests_per_second",
        Kind::Integer { min: 1, max: 100_000 },
        "Batches a second from one token, at each replica.",
    )
    .default("50"),
    Key::new(
        "rate.events_per_second",
        Kind::Integer { min: 1, max: 10_000_000 },
        "Events and tombstones a second from one token, at each replica.",
    )
    .default("50000"),
    Key::new(
        "dedupe.ttl_hours",
        Kind::Integer { min: 1, max: 8_760 },
        "How long an event id stays in the dedupe cache.",
    )
    .default("72"),
    Key::new(
        "dedupe.sweep_every",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "How often expired event ids are removed.",
    )
    .default("15m"),
    Key::new(
        "roles",
        Kind::List,
        "What this process does: ingestion, relay, telemetry, analytics, media.",
    )
    .default("ingestion,relay,telemetry,analytics,media"),
    Key::new(
        "bus",
        Kind::Choice(&["inline", "rabbitmq", "kafka"]),
        "What carries events to the consumers: this process's memory, RabbitMQ or Kafka. Inline needs the \
         relay and all consumers in one process.",
    )
    .default("inline"),
    Key::new("rabbitmq_url", Kind::Text, "RabbitMQ: amqp://user:password@host:port/vhost or amqps://….")
        .secret()
        .alias(&["RABBITMQ_URL"]),
    Key::new(
        "rabbitmq_ca_file",
        Kind::Text,
        "PEM certificates to trust as well when RabbitMQ is reached over TLS.",
    ),
    Key::new(
        "bus_declare",
        Kind::Flag,
        "Whether exchanges, queues and bindings, or Kafka's topics, are declared at start. Without it, run \
         `holdfast bus declare` before.",
    )
    .default("true"),
    Key::new("relay.batch", Kind::Integer { min: 1, max: 10_000 }, "Events published together.")
        .default("500"),
    Key::new("relay.slots", Kind::Integer { min: 1, max: 32 }, "Batches under way at once.")
        .default("2"),
    Key::new(
        "relay.lease",
        Kind::Duration { min_ms: SECOND, max_ms: 60 * MINUTE },
        "How long a relay that died keeps others from its rows.",
    )
    .default("60s"),
    Key::new(
        "relay.stalled_after",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "How long events may be due without one being published before this process is not ready.",
    )
    .default("60s"),
    Key::new(
        "stop_grace",
        Kind::Duration { min_ms: 100, max_ms: 10 * MINUTE },
        "How long each part may take to finish what is under way when the cloud stops.",
    )
    .default("10s"),
    Key::new(
        "telemetry.windows",
        Kind::Text,
        "The windows whose aggregates are published: 1m, 1h, 1d, with commas between.",
    )
    .default("1h"),
    Key::new(
        "telemetry.quiet",
        Kind::Duration { min_ms: 0, max_ms: DAY },
        "A changed aggregate is published when its window has closed and it has not changed for this long.",
    )
    .default("30s"),
    Key::new(
        "telemetry.longest_wait",
        Kind::Duration { min_ms: 0, max_ms: DAY },
        "One that goes on changing is published after this long all the same.",
    )
    .default("10m"),
    Key::new(
        "analytics.ranges",
        Kind::Text,
        "The comfortable ranges: metric, unit and range, with commas between.",
    )
    .default("temperature C 18..27, humidity % 50..70, ammonia ppm 0..20"),
    Key::new(
        "media.copies",
        Kind::Integer { min: 1, max: 64 },
        "Images copied at once in one process. Each, of 64 MiB at the most, is held in memory.",
    )
    .default("4"),
    Key::new("media.source.url", Kind::Text, "The sites' object store, from which images are copied when both are configured: its S3 address."),
    Key::new("media.source.bucket", Kind::Text, "The bucket.").default("media"),
    Key::new("media.source.region", Kind::Text, "The region.").default("us-east-1"),
    Key::new("media.source.access_key", Kind::Text, "The access key.").secret(),
    Key::new("media.source.secret_key", Kind::Text, "The secret key.").secret(),
    Key::new(
        "media.source.style",
        Kind::Choice(&["path", "host"]),
        "How the bucket is named in an address: path, or host as AWS prefers.",
    )
    .default("path"),
    Key::new(
        "media.sources",
        Kind::List,
        "Stores of tenants whose sites have their own, each TENANT=URL=BUCKET=KEY_FILE: a file with the access key \
         on its first line and the secret key on its second. Region and style are those of media.source.",
    )
    .default(""),
    Key::new("media.store.url", Kind::Text, "The cloud's object store: its S3 address."),
    Key::new("media.store.bucket", Kind::Text, "The bucket.").default("media"),
    Key::new("media.store.region", Kind::Text, "The region.").default("us-east-1"),
    Key::new(
        "media.store.style",
        Kind::Choice(&["path", "host"]),
        "How the bucket is named in an address: path, or host as AWS prefers.",
    )
    .default("path"),
    Key::new("media.store.access_key", Kind::Text, "The access key.").secret(),
    Key::new("media.store.secret_key", Kind::Text, "The secret key.").secret(),
];
