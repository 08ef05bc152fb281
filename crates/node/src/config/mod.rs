//! The node's settings: section `[node]` of the configuration file.

mod keys;

pub use keys::{KEYS, SECTION};

use event::id::{BarnId, DeviceId, FarmId, NodeId, TenantId};
use settings::{Error, Secret, Section};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// When the spool syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Before every answer.
    Batch,
    /// At most this often; what was answered in between may be lost to a power cut.
    Interval(Duration),
}

impl FromStr for Sync {
    type Err = String;

    fn from_str(text: &str) -> Result<Sync, String> {
        if text == "batch" {
            return Ok(Sync::Batch);
        }
        let span = text.strip_prefix("interval:").and_then(|t| settings::parse_duration(t).ok());
        match span {
            Some(span) if !span.is_zero() && span <= Duration::from_secs(60) => {
                Ok(Sync::Interval(span))
            }
            _ => Err("expected batch, or interval: with a time span up to 60s, like interval:50ms"
                .to_owned()),
        }
    }
}

/// Who this node is; goes into every envelope.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The node's name.
    pub node_id: NodeId,
    /// Its tenant, if the operator wants it in the envelopes.
    pub tenant_id: Option<TenantId>,
    /// Its farm.
    pub farm_id: Option<FarmId>,
    /// Its barn.
    pub barn_id: Option<BarnId>,
    /// The device of a sample that names none.
    pub device_id: Option<DeviceId>,
}

/// How records are forwarded.
#[derive(Debug, Clone)]
pub struct Forward {
    /// Records in a message.
    pub batch_records: usize,
    /// A message before compression.
    pub batch_bytes: usize,
    /// How long live records gather.
    pub live_linger: Duration,
    /// Backfill records a second; 0 is no limit.
    pub backfill_rate: u64,
    /// Part of the window kept for backfill.
    pub backfill_share: f64,
    /// Sent and not acked for this long: sent again.
    pub resend_after: Duration,
    /// Pause between statuses.
    pub status_every: Duration,
}

/// The edge's HTTP endpoint for large backlogs.
#[derive(Debug, Clone)]
pub struct Http {
    /// `http://host:port` or `https://host:port`, without a slash at the end.
    pub address: String,
    /// Backlog that makes it worth it.
    pub threshold: u64,
    /// The bearer secret.
    pub secret: Secret,
    /// Authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM certificate and key to show an edge that asks for them.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Records in one post.
    pub batch_records: usize,
    /// A post before compression.
    pub batch_bytes: usize,
}

/// How the node knows that its clock is set.
#[derive(Debug, Clone)]
pub struct Clock {
    /// No doubt allowed: there is a battery-backed clock.
    pub assume_set: bool,
    /// A file that exists once the clock was synchronised.
    pub marker: PathBuf,
}

/// Everything a node needs to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who.
    pub identity: Identity,
    /// Where samplers connect.
    pub socket: PathBuf,
    /// Samplers at one time.
    pub socket_connections: usize,
    /// The spool.
    pub spool: spool::Config,
    /// The broker.
    pub broker: mqtt::Broker,
    /// A dead link is found within twice this.
    pub keepalive: Duration,
    /// Batches that may wait for their PUBACK.
    pub window: u16,
    /// The longest pause between attempts to connect.
    pub retry_cap: Duration,
    /// The forwarder.
    pub forward: Forward,
    /// The edge's HTTP endpoint, if configured.
    pub http: Option<Http>,
    /// The clock.
    pub clock: Clock,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
}

/// The largest record the socket lets into the spool: an event with what the node adds to it.
pub const MAX_RECORD_BYTES: u32 = 256 * 1024;

impl Config {
    /// Reads file and environment, checks everything, and returns the settings with their origins.
    pub fn load(
        file: Option<&Path>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<(Config, Section), Error> {
        let section = Section::load(file, SECTION, KEYS, env)?;
        Ok((Config::from_section(&section)?, section))
    }

    /// Takes the values of a section that was read with [`KEYS`].
    pub fn from_section(s: &Section) -> Result<Config, Error> {
        let identity = Identity {
            node_id: s.get("node_id")?.parse()?,
            tenant_id: optional(s, "tenant_id")?,
            farm_id: optional(s, "farm_id")?,
            barn_id: optional(s, "barn_id")?,
            device_id: optional(s, "device_id")?,
        };
        let path = |key| s.find(key).map(|value| value.map(|value| value.path()));
        let username = match s.find("mqtt.username")? {
            Some(name) => name.text(),
            None => identity.node_id.to_string(),
        };
        let credentials = s
            .find("mqtt.password")?
            .map(|password| mqtt::Credentials::new(username, password.secret().expose()));
        let broker = mqtt::Broker {
            address: s.get("mqtt.address")?.parse()?,
            tls: mqtt::Tls {
                ca_file: path("mqtt.ca_file")?,
                client_cert: path("mqtt.client_cert")?,
                client_key: path("mqtt.client_key")?,
            },
            credentials,
        };
        let forward = Forward {
            batch_records: s.get("forward.batch_records")?.parse()?,
            batch_bytes: bytes(s, "forward.batch_bytes")?,
            live_linger: s.get("forward.live_linger")?.duration()?,
            backfill_rate: s.get("forward.backfill_rate")?.parse()?,
            backfill_share: s.get("forward.backfill_share")?.parse()?,
            resend_after: s.get("forward.resend_after")?.duration()?,
            status_every: s.get("forward.status_every")?.duration()?,
        };
        Ok(Config {
            identity,
            socket: s.get("socket")?.path(),
            socket_connections: s.get("socket_connections")?.parse()?,
            spool: spool_config(s)?,
            broker,
            keepalive: s.get("mqtt.keepalive")?.duration()?,
            window: s.get("mqtt.window")?.parse()?,
            retry_cap: s.get("mqtt.retry_cap")?.duration()?,
            forward,
            http: http(s)?,
            clock: Clock {
                assume_set: s.get("clock.mode")?.text() == "assume-set",
                marker: s.get("clock.marker")?.path(),
            },
            metrics: s.find_local("metrics.listen")?,
        })
    }
}

fn optional<T>(s: &Section, key: &str) -> Result<Option<T>, Error>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    s.find(key)?.map(|value| value.parse()).transpose()
}

fn bytes(s: &Section, key: &str) -> Result<usize, Error> {
    Ok(usize::try_from(s.get(key)?.size()?).unwrap_or(usize::MAX))
}

fn http(s: &Section) -> Result<Option<Http>, Error> {
    let Some(address) = s.find("http.address")? else {
        return Ok(None);
    };
    let Some(secret) = s.find("http.secret")? else {
        return Err(s.refuse("http.address", "needs http.secret or http.secret_file as well"));
    };
    let path = |key| Ok::<_, Error>(s.find(key)?.map(|value| value.path()));
    let client = match (path("http.client_cert")?, path("http.client_key")?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            let why = "goes together with http.client_key: give both or none";
            return Err(s.refuse("http.client_cert", why));
        }
    };
    Ok(Some(Http {
        address: address.text().trim_end_matches('/').to_owned(),
        threshold: s.get("http.threshold")?.parse()?,
        secret: secret.secret(),
        ca_file: path("http.ca_file")?,
        client,
        batch_records: s.get("http.batch_records")?.parse()?,
        batch_bytes: bytes(s, "http.batch_bytes")?,
    }))
}

fn spool_config(s: &Section) -> Result<spool::Config, Error> {
    let mut config = spool::Config::new(s.get("spool.dir")?.path());
    config.segment_bytes = s.get("spool.segment_bytes")?.size()?;
    config.max_record_bytes = MAX_RECORD_BYTES;
    config.max_spool_bytes = s.get("spool.max_spool_bytes")?.size()?;
    config.max_spool_age = Some(s.get("spool.max_spool_age")?.duration()?);
    config.free_space_reserve = s.get("spool.free_space_reserve")?.size()?;
    config.cursor_every = s.get("spool.cursor_every")?.duration()?;
    config.idle_seal = s.get("spool.idle_seal")?.duration()?;
    config.sync = match s.get("spool.sync")?.parse()? {
        Sync::Batch => spool::SyncPolicy::EveryBatch,
        Sync::Interval(span) => spool::SyncPolicy::Interval(span),
    };
    config.on_full = match s.get("spool.on_full")?.text().as_str() {
        "backpressure" => spool::OnFull::Backpressure,
        _ => spool::OnFull::DropOldest,
    };
    if config.max_spool_bytes < 2 * config.segment_bytes {
        return Err(s.refuse(
            "spool.max_spool_bytes",
            "is less than two segments: raise it, or lower spool.segment_bytes",
        ));
    }
    Ok(config)
}
