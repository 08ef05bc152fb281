//! The keys, each with its default and what it means.

use event::scada::{AssetName, MAX_NODE_ID};
use settings::{Key, Kind, check, joined};

use crate::kafka;

/// The name of the section.
pub const SECTION: &str = "producer";

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
    Key::new("database.url", Kind::Text, "The node's Postgres.")
        .secret()
        .required()
        .alias(&["PRODUCER_DATABASE_URL"]),
    Key::new(
        "database.ca_file",
        Kind::Text,
        "PEM certificates to trust; Postgres is then reached over TLS only.",
    ),
    Key::new("http.listen", Kind::HostPort, "Where health and metrics are served.")
        .default("127.0.0.1:8094"),
    Key::new(
        "http.allow_remote",
        Kind::Flag,
        "Whether http.listen may be reached from other machines.",
    )
    .default("false"),
    Key::new(
        "http.metrics_token",
        Kind::Text,
        "What lets a reader on another machine see /metrics, as its bearer: 16 characters or more, none of them white space. Without it only this machine may.",
    )
    .secret(),
    Key::new("node_id", NODE, "The node's number; the first one's where there are several.")
        .default("1")
        .alias(&["NODE_ID"]),
    Key::new("nodes", NODE, "How many nodes this process simulates.").default("1"),
    Key::new("plant", NAME, "The plant.").default("PLANT01"),
    Key::new("area", NAME, "The area of a single node; else ten nodes share one, AREA01 and on."),
    Key::new("unit", NAME, "The unit of a single node; else UNIT_ and its number."),
    Key::new("seed", Kind::Integer { min: 0, max: u64::MAX }, "Repeats a run; a new one at every start when absent."),
    Key::new(
        "inputs_file",
        Kind::Text,
        "The mapping of registers and nodes to tags: devices are read then, and nothing is simulated.",
    ),
    Key::new("analytics_file", Kind::Text, "The rules of what is made of readings and which are left out."),
    Key::new(
        "interval",
        Kind::Duration { min_ms: 1, max_ms: 60 * MINUTE },
        "Time between two cycles.",
    )
    .default("1s"),
    Key::new(
        "write_within",
        Kind::Duration { min_ms: 10, max_ms: MINUTE },
        "How long a cycle may take to get into the outbox before it goes to the spool.",
    )
    .default("1s"),
    Key::new(
        "bus",
        Kind::Choice(&["inline", "rabbitmq", "kafka"]),
        "What takes the messages: RabbitMQ, Kafka, or the memory of a process that runs the historian too (`holdfast up`).",
    )
    .default("rabbitmq"),
    Key::new("rabbitmq_url", Kind::Text, "RabbitMQ: amqp://user:password@host:port/vhost or amqps://….")
        .secret()
        .alias(&["SCADA_RABBITMQ_URL"]),
    Key::new(
        "rabbitmq_ca_file",
        Kind::Text,
        "PEM certificates to trust as well when RabbitMQ is reached over TLS.",
    ),
    Key::new(
        "bus_declare",
        Kind::Flag,
        "Whether RabbitMQ's exchanges, queues and bindings are declared at start: a message that no queue takes is given up. Kafka's topics are made by `holdfast scada topics apply`.",
    )
    .default("true"),
    Key::new("dispatchers", Kind::Integer { min: 1, max: 32 }, "How many dispatchers publish from the outbox.")
        .default("1"),
    Key::new("outbox.batch_size", Kind::Integer { min: 1, max: 10_000 }, "The most events of one publish.")
        .default("50")
        .alias(&["OUTBOX_BATCH_SIZE"]),
    Key::new(
        "outbox.poll_interval_ms",
        Kind::Integer { min: 1, max: 10 * MINUTE },
        "How often the outbox is looked at without a nudge, in milliseconds.",
    )
    .default("500")
    .alias(&["OUTBOX_POLL_INTERVAL_MS"]),
    Key::new(
        "outbox.max_retries",
        Kind::Integer { min: 1, max: 1_000 },
        "Failures of an event until it is FAILED. A bus that is away is none.",
    )
    .default("10")
    .alias(&["OUTBOX_MAX_RETRIES"]),
    Key::new(
        "outbox.lock_timeout_seconds",
        Kind::Integer { min: 1, max: 86_400 },
        "How long a dispatcher that died keeps others from its events, in seconds.",
    )
    .default("120")
    .alias(&["OUTBOX_LOCK_TIMEOUT_SECONDS"]),
    Key::new(
        "outbox.recovery_interval_ms",
        Kind::Integer { min: 10, max: DAY },
        "How often locks that have expired are looked for, in milliseconds.",
    )
    .default("30000")
    .alias(&["OUTBOX_RECOVERY_INTERVAL_MS"]),
    Key::new(
        "retention_days",
        Kind::Integer { min: 1, max: 3_650 },
        "Days that events stay after they were sent, and measurements in the local copy.",
    )
    .default("30")
    .alias(&["STORAGE_RETENTION_DAYS"]),
    Key::new(
        "prune_interval_ms",
        Kind::Integer { min: 1_000, max: 7 * DAY },
        "How often what is older is removed, in milliseconds.",
    )
    .default("3600000")
    .alias(&["PRUNE_INTERVAL_MS"]),
    Key::new(
        "report_every",
        Kind::Duration { min_ms: 50, max_ms: 60 * MINUTE },
        "How often the outbox's metrics are logged and held against the thresholds.",
    )
    .default("30s"),
    Key::new("spool.dir", Kind::Text, "Where cycles go while Postgres is away; each process has its own.")
        .default("/var/lib/holdfast/producer-spool"),
    Key::new(
        "spool.max_spool_bytes",
        Kind::Size { min: 64 << 20, max: 16 << 40 },
        "Above this size the oldest cycles are given up, and said so.",
    )
    .default("8GiB"),
    Key::new(
        "spool.free_space_reserve",
        Kind::Size { min: 0, max: 16 << 40 },
        "Left free on the disk.",
    )
    .default("64MiB"),
    Key::new(
        "stalled_after",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "How long Postgres may be away, or the spool not move, before this process is not ready.",
    )
    .default("60s"),
    Key::new(
        "stop_grace",
        Kind::Duration { min_ms: 100, max_ms: 10 * MINUTE },
        "How long each part may take to finish what is under way when the node stops.",
    )
    .default("10s"),
];

const NODE: Kind = Kind::Integer { min: 1, max: MAX_NODE_ID as u64 };
const NAME: Kind = Kind::Checked(check::<AssetName>);
