//! The keys, each with its default and what it means.

use event::id::NodeId;
use settings::{Key, Kind, check, joined};

use super::{TelemetrySync, inference, media, retention};
use crate::registry::EDGE_USER;

/// The name of the section.
pub const SECTION: &str = "edge";

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// Every key of the section.
pub const KEYS: &[Key] = &joined::<{ OWN.len() + PARTS }>(&[
    OWN,
    &api::serve::KEYS,
    &inference::KEYS,
    &retention::KEYS,
    &media::KEYS,
]);

/// How many keys the parts bring.
const PARTS: usize =
    api::serve::KEYS.len() + inference::KEYS.len() + retention::KEYS.len() + media::KEYS.len();

const OWN: &[Key] = &[
    Key::new(
        "replica",
        Kind::Checked(check::<NodeId>),
        "This replica's name: its own among the replicas and stable \
         over restarts, for the broker keeps bare events under it.",
    )
    .default("edge-1"),
    Key::new(
        "roles",
        Kind::List,
        "What this process does: ingress, telemetry, sessions, media, inference, sync, retention. \
         Roles may run apart, against one database.",
    )
    .default("ingress,telemetry,sessions,media,inference,sync,retention"),
    Key::new("database.url", Kind::Text, "Postgres.").secret().required().alias(&["DATABASE_URL"]),
    Key::new(
        "database.ca_file",
        Kind::Text,
        "PEM certificates to trust; Postgres is then reached over TLS only.",
    ),
    Key::new(
        "database.max_connections",
        Kind::Integer { min: 3, max: 100 },
        "The most connections to Postgres.",
    )
    .default("8"),
    Key::new("mqtt.address", Kind::Checked(check::<mqtt::Address>), "The broker.")
        .default("mqtt://127.0.0.1:1883"),
    Key::new("mqtt.username", Kind::Text, "The edge's user at the broker.").default(EDGE_USER),
    Key::new("mqtt.password", Kind::Text, "The edge's password at the broker.").secret(),
    Key::new("mqtt.ca_file", Kind::Text, "PEM certificates to trust for mqtts."),
    Key::new("mqtt.client_cert", Kind::Text, "PEM certificate to show the broker."),
    Key::new("mqtt.client_key", Kind::Text, "PEM key of that certificate."),
    Key::new(
        "mqtt.keepalive",
        Kind::Duration { min_ms: SECOND, max_ms: 10 * MINUTE },
        "Silence after which the link is tested.",
    )
    .default("15s"),
    Key::new("http.listen", Kind::HostPort, "Where backfill, health and metrics are served.")
        .default("127.0.0.1:8090"),
    Key::new(
        "http.allow_remote",
        Kind::Flag,
        "Whether http.listen may be reached from other machines.",
    )
    .default("false"),
    Key::new(
        "http.max_uploads",
        Kind::Integer { min: 1, max: 64 },
        "Backfill requests worked on at once; further ones are told to come back.",
    )
    .default("4"),
    Key::new(
        "ingress.gather",
        Kind::Duration { min_ms: 0, max_ms: SECOND },
        "How long messages gather for one transaction.",
    )
    .default("5ms"),
    Key::new(
        "ingress.max_records",
        Kind::Integer { min: 1, max: 100_000 },
        "Records in one transaction, about.",
    )
    .default("4000"),
    Key::new(
        "ingress.max_held",
        Kind::Size { min: 2 << 20, max: 4 << 30 },
        "Bytes of messages in memory beyond which the broker is not read.",
    )
    .default("64MiB"),
    Key::new(
        "ingress.stall_after",
        Kind::Duration { min_ms: SECOND, max_ms: 60 * MINUTE },
        "Not ready when messages wait longer than this for their commit.",
    )
    .default("30s"),
    Key::new(
        "liveness.late_after",
        Kind::Duration { min_ms: SECOND, max_ms: 30 * DAY },
        "A node not heard for this long is late.",
    )
    .default("2m"),
    Key::new(
        "liveness.offline_after",
        Kind::Duration { min_ms: SECOND, max_ms: 30 * DAY },
        "A node not heard for this long is offline.",
    )
    .default("15m"),
    Key::new(
        "dedupe.ttl_hours",
        Kind::Integer { min: 1, max: 8_760 },
        "How long an event id stays in the dedupe cache.",
    )
    .default("72")
    .alias(&["INGRESS_DEDUPE_TTL_HOURS"]),
    Key::new(
        "dedupe.sweep_every",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "How often expired event ids are removed.",
    )
    .default("15m"),
    Key::new(
        "broker.password_file",
        Kind::Text,
        "Mosquitto's password file, written when a node is enrolled.",
    ),
    Key::new(
        "broker.acl_file",
        Kind::Text,
        "Mosquitto's ACL file, written when a node is enrolled.",
    ),
    Key::new(
        "public.mqtt_address",
        Kind::Checked(check::<mqtt::Address>),
        "The broker as the nodes reach it; mqtt.address when absent.",
    ),
    Key::new(
        "public.http_address",
        Kind::Checked(check_http_address),
        "HTTP as the nodes reach it; they use MQTT alone when absent.",
    ),
    Key::new(
        "sync.cloud_url",
        Kind::Checked(check_http_address),
        "The cloud; nothing is forwarded when absent.",
    ),
    Key::new("sync.token", Kind::Text, "The site's token at the cloud, of the role edge.").secret(),
    Key::new("sync.ca_file", Kind::Text, "PEM certificates to trust for the cloud."),
    Key::new("sync.client_cert", Kind::Text, "PEM certificate to show the cloud, if it asks."),
    Key::new("sync.client_key", Kind::Text, "PEM key of that certificate."),
    Key::new(
        "sync.cluster_id",
        Kind::Checked(check_cluster_id),
        "The site's name in batches and in sync.batch.sent.",
    )
    .default("edge-1"),
    Key::new(
        "sync.batch_events",
        Kind::Integer { min: 1, max: 5_000 },
        "The most events in one request. An event takes up to 240 KiB of memory.",
    )
    .default("500"),
    Key::new(
        "sync.workers",
        Kind::Integer { min: 1, max: 16 },
        "Batches under way at once, for alarms and events and again for telemetry.",
    )
    .default("2"),
    Key::new(
        "sync.lease_seconds",
        Kind::Integer { min: 1, max: 3_600 },
        "How long rows are held by a forwarder that says nothing.",
    )
    .default("60"),
    Key::new(
        "sync.max_attempts",
        Kind::Integer { min: 1, max: 1_000 },
        "How often a row may take a forwarder down before it is a dead letter.",
    )
    .default("10"),
    Key::new(
        "sync.backoff_base",
        Kind::Duration { min_ms: 10, max_ms: 10 * MINUTE },
        "What is doubled with every failure of the link.",
    )
    .default("1s"),
    Key::new(
        "sync.backoff_cap",
        Kind::Duration { min_ms: 10, max_ms: DAY },
        "The longest the link is left alone after a failure, up to a second of jitter aside.",
    )
    .default("300s"),
    Key::new(
        "sync.timeout",
        Kind::Duration { min_ms: 100, max_ms: 10 * MINUTE },
        "How long a request may take.",
    )
    .default("60s"),
    Key::new(
        "sync.backlog_share",
        Kind::Number { min: 0.05, max: 1.0 },
        "The share of the time that a backlog of telemetry is sent.",
    )
    .default("0.75"),
    Key::new(
        "sync.backlog_after",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "Telemetry that has waited longer than this is backlog.",
    )
    .default("2m"),
    Key::new(
        "sync.stall_after",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "A link that is up and a backlog that does not shrink for this long is an alarm.",
    )
    .default("5m"),
    Key::new(
        "sync.media_every",
        Kind::Duration { min_ms: 100, max_ms: 60 * MINUTE },
        "How often the cloud is asked which images it has copied; retention waits for that.",
    )
    .default("1m"),
    Key::new(
        "sync.telemetry",
        Kind::Choice(TelemetrySync::WORDS),
        "What of readings goes to the cloud: raw, aggregates, both. With aggregates the readings \
         stay at the site, and the cloud's ledger is told so.",
    )
    .default("raw"),
    Key::new(
        "sync.telemetry_windows",
        Kind::List,
        "The windows whose aggregates are sent, where aggregates are: 1m, 1h, 1d.",
    )
    .default("1m,1h,1d"),
    Key::new(
        "telemetry.settle",
        Kind::Duration { min_ms: 0, max_ms: 10 * MINUTE },
        "How long a bucket that was touched is left alone before it is computed.",
    )
    .default("1s"),
];

fn check_cluster_id(text: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(())
    } else {
        Err("expected 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen".to_owned())
    }
}

fn check_http_address(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]/".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && rest.chars().all(plain) => Ok(()),
        _ => Err("expected http://host:port or https://host:port".to_owned()),
    }
}
