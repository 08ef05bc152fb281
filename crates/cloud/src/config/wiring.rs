//! What a process does, and what carries its events.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bus::rabbitmq::Address;
use settings::Section;

/// One of the things that a process of the cloud may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Takes in what edges send.
    Ingestion,
    /// Publishes what ingestion wrote.
    Relay,
    /// The consumers of `cloud-telemetry-service`.
    Telemetry,
    /// The consumers of `cloud-analytics-service`.
    Analytics,
    /// The consumers of `cloud-media-store`.
    Media,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 5] =
        [Role::Ingestion, Role::Relay, Role::Telemetry, Role::Analytics, Role::Media];
    /// Those that consume.
    const CONSUMERS: [Role; 3] = [Role::Telemetry, Role::Analytics, Role::Media];

    /// As an operator writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Ingestion => "ingestion",
            Role::Relay => "relay",
            Role::Telemetry => "telemetry",
            Role::Analytics => "analytics",
            Role::Media => "media",
        }
    }

    /// The role that runs the consumers of a service; `None` for a service that is not known.
    pub fn of_service(service: &str) -> Option<Role> {
        match service {
            "cloud-telemetry-service" => Some(Role::Telemetry),
            "cloud-analytics-service" => Some(Role::Analytics),
            "cloud-media-store" => Some(Role::Media),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What carries events to the consumers.
#[derive(Debug, Clone)]
pub enum Bus {
    /// This process's memory.
    Inline,
    /// A broker.
    RabbitMq {
        /// Where it is.
        address: Address,
        /// Whether the topology is declared at start.
        declare: bool,
    },
    /// A cluster.
    #[cfg(feature = "kafka")]
    Kafka(super::kafka::KafkaBus),
}

impl Bus {
    /// The bus in a word, as it is configured.
    pub fn as_str(&self) -> &'static str {
        match self {
            Bus::Inline => "inline",
            Bus::RabbitMq { .. } => "rabbitmq",
            #[cfg(feature = "kafka")]
            Bus::Kafka(_) => "kafka",
        }
    }
}

/// How the relay works.
#[derive(Debug, Clone)]
pub struct Relay {
    /// Events published together.
    pub batch: u32,
    /// Batches under way at once.
    pub slots: usize,
    /// How long a relay that died keeps others from its rows.
    pub lease: Duration,
    /// How long events may be due without one being published.
    pub stalled_after: Duration,
}

pub(super) fn roles(section: &Section) -> Result<BTreeSet<Role>, settings::Error> {
    let known = || Role::ALL.map(Role::as_str).join(", ");
    let mut roles = BTreeSet::new();
    for name in section.get("roles")?.list() {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == name);
        roles.insert(role.ok_or_else(|| {
            section.refuse("roles", format!("{name:?} is no role: expected some of {}", known()))
        })?);
    }
    if roles.is_empty() {
        return Err(section.refuse("roles", format!("is empty: expected some of {}", known())));
    }
    Ok(roles)
}

pub(super) fn bus(section: &Section, roles: &BTreeSet<Role>) -> Result<Bus, settings::Error> {
    if section.get("bus")?.text() == "kafka" {
        return super::kafka::bus(section);
    }
    if section.get("bus")?.text() == "rabbitmq" {
        let url = section.find("rabbitmq_url")?.ok_or_else(|| {
            section.refuse("rabbitmq_url", "is required with cloud.bus = \"rabbitmq\"")
        })?;
        // The client library's words might repeat a part of the address.
        let mut address = Address::parse(url.secret().expose()).map_err(|_| {
            let expected = "expected amqp://user:password@host:port/vhost or amqps://…";
            section.refuse("rabbitmq_url", format!("is no address of a broker: {expected}"))
        })?;
        if let Some(file) = section.find("rabbitmq_ca_file")? {
            address = address.with_ca_file(file.path());
        }
        return Ok(Bus::RabbitMq { address, declare: section.get("bus_declare")?.flag()? });
    }
    let together = [Role::Relay].into_iter().chain(Role::CONSUMERS);
    let missing: Vec<&str> =
        together.clone().filter(|role| !roles.contains(role)).map(Role::as_str).collect();
    if missing.is_empty() || missing.len() == together.count() {
        return Ok(Bus::Inline);
    }
    let problem = format!(
        "lacks {}: with cloud.bus = \"inline\" the relay and all consumers run in one process",
        missing.join(", ")
    );
    Err(section.refuse("roles", problem))
}

pub(super) fn relay(section: &Section) -> Result<Relay, settings::Error> {
    Ok(Relay {
        batch: section.get("relay.batch")?.parse()?,
        slots: section.get("relay.slots")?.parse()?,
        lease: section.get("relay.lease")?.duration()?,
        stalled_after: section.get("relay.stalled_after")?.duration()?,
    })
}
