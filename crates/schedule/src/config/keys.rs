//! The keys, each with its default and what it means.

use settings::{Key, Kind, joined};

/// The name of the section.
pub const SECTION: &str = "schedule";

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Every key of the section.
pub const KEYS: &[Key] =
    &joined::<{ OWN.len() + api::serve::KEYS.len() }>(&[OWN, &api::serve::KEYS]);

const OWN: &[Key] = &[
    Key::new("database.url", Kind::Text, "Postgres.")
        .secret()
        .required()
        .alias(&["SCHEDULE_DATABASE_URL"]),
    Key::new(
        "database.ca_file",
        Kind::Text,
        "PEM certificates to trust; Postgres is then reached over TLS only.",
    ),
    Key::new(
        "worker.poll_seconds",
        Kind::Number { min: 0.01, max: 3_600.0 },
        "Seconds between two looks for sessions that are complete.",
    )
    .default("5")
    .alias(&["WORKER_POLL_SECONDS"]),
    Key::new(
        "worker.idle_timeout",
        Kind::Duration { min_ms: 0, max_ms: DAY },
        "A session is complete when nothing has come to it for this long.",
    )
    .default("30s"),
    Key::new(
        "worker.lease",
        Kind::Duration { min_ms: 100, max_ms: DAY },
        "How long a worker that died keeps others from its session.",
    )
    .default("120s"),
    Key::new("worker.slots", Kind::Integer { min: 1, max: 64 }, "Sessions processed at once.")
        .default("2"),
    Key::new(
        "worker.max_attempts",
        Kind::Integer { min: 1, max: 100 },
        "How many failures or crashes fail a session.",
    )
    .default("5"),
    Key::new(
        "worker.min_confidence",
        Kind::Number { min: 0.0, max: 1.0 },
        "An observation that is less sure than this fails its session.",
    )
    .default("0.7"),
    Key::new(
        "worker.heartbeat_file",
        Kind::Text,
        "A file that the worker touches after each look for work, for schedule alive; none when absent.",
    ),
    Key::new(
        "extract.method",
        Kind::Choice(super::extract::METHODS),
        "How images are read: not at all (only uploaded observations are), by one fixture file for every session, by a command, or by OCR with Tesseract.",
    )
    .default("none"),
    Key::new("extract.fixture_file", Kind::Text, "The file of the method fixture."),
    Key::new(
        "extract.command",
        Kind::List,
        "The program of the method command and its arguments, run without a shell for every session.",
    ),
    Key::new("extract.tesseract", Kind::Text, "Tesseract's program, for the method ocr.")
        .default("tesseract"),
    Key::new(
        "extract.languages",
        Kind::List,
        "The languages of the method ocr by Tesseract's short names, the likeliest first.",
    )
    .default("eng"),
    Key::new(
        "extract.timezone",
        Kind::Text,
        "Where the clock of photographed schedules stands: an IANA name or an offset; UTC when absent.",
    ),
    Key::new(
        "extract.timeout",
        Kind::Duration { min_ms: SECOND, max_ms: HOUR },
        "How long the command may take for a session, or Tesseract for a picture.",
    )
    .default("60s"),
    Key::new(
        "extract.noise_seed",
        Kind::Integer { min: 0, max: u64::MAX },
        "Writes every observation another way, the same for the same seed and session. For trying out.",
    ),
    Key::new(
        "deliver.to",
        Kind::Choice(&["none", "webhook", "telegram"]),
        "Where messages go: to a webhook, to Telegram, or nowhere, which leaves them to a bot of yours.",
    )
    .default("none"),
    Key::new("deliver.webhook_url", Kind::Text, "The webhook's address.").secret(),
    Key::new(
        "deliver.webhook_secret",
        Kind::Text,
        "What requests to the webhook are signed with, by HMAC-SHA256.",
    )
    .secret(),
    Key::new("deliver.telegram_url", Kind::Text, "Where the Telegram Bot API is.")
        .default("https://api.telegram.org"),
    Key::new("deliver.telegram_token", Kind::Text, "The bot's token.")
        .secret()
        .alias(&["TELEGRAM_BOT_TOKEN"]),
    Key::new(
        "deliver.ca_file",
        Kind::Text,
        "PEM certificates to trust as well when messages are sent over TLS.",
    ),
    Key::new(
        "deliver.timeout",
        Kind::Duration { min_ms: 100, max_ms: 5 * MINUTE },
        "How long a request may take.",
    )
    .default("10s"),
    Key::new(
        "deliver.slots",
        Kind::Integer { min: 1, max: 64 },
        "Batches of messages under way at once.",
    )
    .default("4"),
    Key::new(
        "deliver.lease",
        Kind::Duration { min_ms: 100, max_ms: HOUR },
        "How long a delivery that died keeps others from its users' messages.",
    )
    .default("60s"),
    Key::new(
        "deliver.max_attempts",
        Kind::Integer { min: 1, max: 100 },
        "How many refusals or crashes fail a message. An outage counts as none.",
    )
    .default("10"),
    Key::new(
        "stop_grace",
        Kind::Duration { min_ms: 0, max_ms: 10 * MINUTE },
        "How long a stop waits for sessions and messages under way before it gives them back.",
    )
    .default("10s"),
    Key::new(
        "metrics.listen",
        Kind::HostPort,
        "Where Prometheus on this machine finds the worker's metrics, such as 127.0.0.1:9481; without it the worker opens no port.",
    ),
    Key::new("http.listen", Kind::HostPort, "Where intake is served.").default("127.0.0.1:8095"),
    Key::new(
        "http.allow_remote",
        Kind::Flag,
        "Whether http.listen may be reached from other machines.",
    )
    .default("false"),
    Key::new(
        "store.s3_endpoint",
        Kind::Text,
        "The object store's S3 address; without it there is no intake.",
    ),
    Key::new(
        "store.s3_public_endpoint",
        Kind::Text,
        "The store as senders reach it, for presigned addresses; the same when absent.",
    ),
    Key::new("store.s3_region", Kind::Text, "The region.").default("us-east-1"),
    Key::new("store.s3_bucket", Kind::Text, "The bucket.").default("captures"),
    Key::new("store.s3_access_key", Kind::Text, "The access key.").secret(),
    Key::new("store.s3_secret_key", Kind::Text, "The secret key.").secret(),
    Key::new(
        "store.s3_style",
        Kind::Choice(&["path", "host"]),
        "How the bucket is named in an address: path, or host as AWS prefers.",
    )
    .default("path"),
    Key::new(
        "intake.presign_ttl",
        Kind::Duration { min_ms: SECOND, max_ms: 7 * DAY },
        "How long a presigned address works.",
    )
    .default("15m"),
    Key::new(
        "intake.max_image_size",
        Kind::Size { min: 1 << 10, max: 1 << 30 },
        "The largest image.",
    )
    .default("20MiB"),
    Key::new(
        "intake.sweep_after",
        Kind::Duration { min_ms: MINUTE, max_ms: 365 * DAY },
        "How long after a session's last sign of life its unused places, and what was uploaded there, are removed; longer than intake.presign_ttl.",
    )
    .default("24h"),
    Key::new("intake.max_images", Kind::Integer { min: 1, max: 50 }, "The most images of a session.")
        .default("50"),
];
