//! Every key of the section `[node]`, declared once.

use super::Sync;
use event::id::{BarnId, DeviceId, FarmId, NodeId, TenantId};
use settings::{Key, Kind, check};

/// The section's name in the file, and the middle of its environment names.
pub const SECTION: &str = "node";

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Every key of the section.
pub const KEYS: &[Key] = &[
    Key::new(
        "node_id",
        Kind::Checked(check::<NodeId>),
        "The node's name, as enrolled at the edge.",
    )
    .required(),
    Key::new(
        "tenant_id",
        Kind::Checked(check::<TenantId>),
        "The tenant; the edge knows it anyway.",
    ),
    Key::new("farm_id", Kind::Checked(check::<FarmId>), "The farm this node stands on."),
    Key::new("barn_id", Kind::Checked(check::<BarnId>), "The barn this node stands in."),
    Key::new(
        "device_id",
        Kind::Checked(check::<DeviceId>),
        "The device of a sample that names none.",
    ),
    Key::new("socket", Kind::Text, "Where samplers connect.").default("/run/holdfast/sampler.sock"),
    Key::new("socket_connections", Kind::Integer { min: 1, max: 1024 }, "Samplers at one time.")
        .default("32"),
    Key::new("spool.dir", Kind::Text, "The spool's folder.").default("/var/lib/holdfast/spool"),
    Key::new(
        "spool.segment_bytes",
        Kind::Size { min: 64 * KIB, max: 1 << 30 },
        "One segment file.",
    )
    .default("16MiB"),
    Key::new(
        "spool.max_spool_bytes",
        Kind::Size { min: 256 * KIB, max: 16 * TIB },
        "All segments.",
    )
    .default("2GiB"),
    Key::new(
        "spool.max_spool_age",
        Kind::Duration { min_ms: SECOND, max_ms: 3650 * DAY },
        "Oldest record kept.",
    )
    .default("14d"),
    Key::new(
        "spool.free_space_reserve",
        Kind::Size { min: 0, max: 16 * TIB },
        "Left free on the disk.",
    )
    .default("64MiB"),
    Key::new("spool.on_full", Kind::Choice(&["drop-oldest", "backpressure"]), "What gives way.")
        .default("drop-oldest"),
    Key::new(
        "spool.sync",
        Kind::Checked(check::<Sync>),
        "`batch`, or `interval:50ms`: a window of loss.",
    )
    .default("batch"),
    Key::new(
        "spool.idle_seal",
        Kind::Duration { min_ms: 100, max_ms: DAY },
        "An idle segment is sealed after.",
    )
    .default("60s"),
    Key::new(
        "spool.cursor_every",
        Kind::Duration { min_ms: 50, max_ms: HOUR },
        "The cursor is saved, and acked segments go, at most this often.",
    )
    .default("10s"),
    Key::new("mqtt.address", Kind::Checked(check::<mqtt::Address>), "The broker.")
        .default("mqtt://127.0.0.1:1883"),
    Key::new("mqtt.username", Kind::Text, "User name at the broker; the node's name when absent."),
    Key::new("mqtt.password", Kind::Text, "Password at the broker.").secret(),
    Key::new(
        "mqtt.ca_file",
        Kind::Text,
        "PEM file of the authorities an mqtts:// broker is checked against.",
    ),
    Key::new("mqtt.client_cert", Kind::Text, "PEM file of the node's certificate."),
    Key::new("mqtt.client_key", Kind::Text, "PEM file of the node's private key."),
    Key::new(
        "mqtt.keepalive",
        Kind::Duration { min_ms: SECOND, max_ms: HOUR },
        "A dead link is found within twice this.",
    )
    .default("15s"),
    Key::new(
        "mqtt.window",
        Kind::Integer { min: 2, max: 100 },
        "Batches that may wait for their PUBACK. Mosquitto's own default is as many.",
    )
    .default("20"),
    Key::new(
        "mqtt.retry_cap",
        Kind::Duration { min_ms: 100, max_ms: HOUR },
        "Longest pause between connects.",
    )
    .default("60s"),
    Key::new(
        "forward.batch_records",
        Kind::Integer { min: 1, max: 5_000 },
        "Records in a message.",
    )
    .default("1000"),
    Key::new(
        "forward.batch_bytes",
        Kind::Size { min: 4 * KIB, max: MIB / 2 },
        "A message before compression.",
    )
    .default("128KiB"),
    Key::new(
        "forward.live_linger",
        Kind::Duration { min_ms: 0, max_ms: 60 * SECOND },
        "Live records gather for.",
    )
    .default("50ms"),
    Key::new(
        "forward.backfill_rate",
        Kind::Integer { min: 0, max: 10_000_000 },
        "Backfill records a second; 0 is no limit.",
    )
    .default("5000"),
    Key::new(
        "forward.backfill_share",
        Kind::Number { min: 0.0, max: 0.9 },
        "Part of the window kept for backfill.",
    )
    .default("0.25"),
    Key::new(
        "forward.resend_after",
        Kind::Duration { min_ms: 100, max_ms: HOUR },
        "Sent and not acked: sent again.",
    )
    .default("30s"),
    Key::new(
        "forward.status_every",
        Kind::Duration { min_ms: 100, max_ms: HOUR },
        "Pause between statuses.",
    )
    .default("30s"),
    Key::new(
        "http.address",
        Kind::Checked(check_http),
        "The edge's HTTP address for large backlogs.",
    ),
    Key::new(
        "http.threshold",
        Kind::Integer { min: 1, max: u64::MAX },
        "Backlog that makes it worth it.",
    )
    .default("100000"),
    Key::new("http.secret", Kind::Text, "The node's bearer secret.").secret(),
    Key::new(
        "http.ca_file",
        Kind::Text,
        "PEM file of the authorities an https:// edge is checked against.",
    ),
    Key::new("http.client_cert", Kind::Text, "PEM certificate to show the edge, if it asks."),
    Key::new("http.client_key", Kind::Text, "PEM key of that certificate."),
    Key::new("http.batch_records", Kind::Integer { min: 1, max: 20_000 }, "Records in one post.")
        .default("4000"),
    Key::new(
        "http.batch_bytes",
        Kind::Size { min: 4 * KIB, max: 8 * MIB },
        "A post before compression.",
    )
    .default("512KiB"),
    Key::new(
        "clock.mode",
        Kind::Choice(&["auto", "assume-set"]),
        "`auto` believes the marker file only.",
    )
    .default("auto"),
    Key::new("clock.marker", Kind::Text, "A file that exists once the clock was synchronised.")
        .default("/run/systemd/timesync/synchronized"),
    Key::new(
        "metrics.listen",
        Kind::HostPort,
        "Where Prometheus on this machine finds metrics, such as 127.0.0.1:9480; without it no port is opened.",
    ),
];

fn check_http(text: &str) -> Result<(), String> {
    let right = "expected http://host:port or https://host:port";
    let rest =
        text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).ok_or(right)?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(right.to_owned());
    }
    Ok(())
}
