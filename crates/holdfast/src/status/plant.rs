//! The plant, schedules, and what carries events: the second half of a look.

use std::time::Duration;

use ::bus::rabbitmq::{self, Address, Topology};
use scada::outbox::Level;
use schedule::waiting::{failed, waiting};

use super::look::{ANSWER_WITHIN, COUNT_LIMIT, ask, database};
use super::places::Places;
use super::view::{Historian, Part, Plant, Schedules};

/// What carries events is called so among the parts.
pub(super) const CLOUD_BUS: &str = "cloud bus";
pub(super) const PLANT_BUS: &str = "plant bus";
/// A broker may take a moment longer than a database to say hello.
pub(super) const BUS_WITHIN: Duration = Duration::from_secs(8);

/// The plant's nodes: their outbox and their spool.
pub(super) async fn nodes(places: &Places) -> Option<(Part, Plant)> {
    let found = places.producer.as_ref()?;
    let mut part = database("scada node", &found.option());
    let mut plant = Plant {
        pending: None,
        failed: None,
        oldest_seconds: None,
        spooled_cycles: None,
        warnings: Vec::new(),
        option: found.option(),
    };
    let asked = tokio::time::timeout(ANSWER_WITHIN, scada::producer::status(&found.config));
    match asked.await {
        Ok(Ok(told)) => {
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            if let Some(problem) = told.database_problem {
                part.answers = false;
                part.problems.push(problem);
            }
            if let Some(outbox) = told.outbox {
                plant.pending = Some(number(outbox.pending_count + outbox.in_progress_count));
                plant.failed = Some(number(outbox.failed_count));
                plant.oldest_seconds = (outbox.pending_count > 0)
                    .then(|| number(outbox.oldest_pending_age_ms / 1_000));
            }
            plant.spooled_cycles = told.spool.map(|spool| number(spool.cycles));
            plant.warnings = told
                .warnings
                .into_iter()
                .map(|one| (one.level == Level::Critical, format!("{}: {}", one.metric, one.words)))
                .collect();
        }
        Ok(Err(error)) => part.problems.push(format!("its spool cannot be read: {error}")),
        Err(_) => {
            part.answers = false;
            part.problems.push(format!("does not answer within {} s", ANSWER_WITHIN.as_secs()));
        }
    }
    Some((part, plant))
}

/// The historian's alarms and dead letters.
pub(super) async fn historian(places: &Places) -> Option<(Part, Option<Historian>)> {
    let found = places.historian.as_ref()?;
    let mut part = database("scada historian", &found.option());
    let asked = async {
        let client = pg::connect(&found.config.database).await?;
        scada::historian::standing::standing(&client, COUNT_LIMIT).await
    };
    let told = ask(&mut part, asked).await.map(|standing| Historian {
        active_alarms: standing.active_unacknowledged + standing.active_acknowledged,
        unacknowledged_alarms: standing.active_unacknowledged + standing.cleared_unacknowledged,
        dead_letters: Some(standing.dead_letters),
        option: found.option(),
    });
    Some((part, told))
}

/// Captures and messages that wait or failed.
pub(super) async fn schedules(places: &Places) -> Option<(Part, Option<Schedules>)> {
    let found = places.schedule.as_ref()?;
    let mut part = database("schedule", &found.option());
    let asked = async {
        let client = pg::connect(&found.config.database).await?;
        Ok((waiting(&client).await?, failed(&client).await?))
    };
    let told = ask(&mut part, asked).await.map(|(waiting, failed)| Schedules {
        captures_waiting: waiting.sessions_waiting,
        captures_failed: failed.sessions,
        messages_waiting: waiting.messages_waiting,
        messages_failed: failed.messages,
        oldest_seconds: Some(waiting.sessions_oldest_seconds).filter(|age| *age > 0.0),
        option: found.option(),
    });
    Some((part, told))
}

/// What carries events, for the cloud and for the plant.
pub(crate) async fn buses(places: &Places) -> Vec<Part> {
    let (cloud, plant) = tokio::join!(cloud_bus(places), plant_bus(places));
    cloud.into_iter().chain(plant).collect()
}

async fn cloud_bus(places: &Places) -> Option<Part> {
    use cloud::config::Bus;
    let found = places.cloud.as_ref()?;
    let name = CLOUD_BUS;
    Some(match &found.config.bus {
        Bus::Inline => inline(name),
        Bus::RabbitMq { address, .. } => {
            let next = format!("holdfast bus check{}", found.option());
            let topology = crate::bus::topology().map_err(|error| error.to_string());
            rabbit(name, address, topology, next).await
        }
        #[cfg(feature = "kafka")]
        Bus::Kafka(kafka) => {
            cluster(name, &kafka.cluster, format!("holdfast doctor cloud{}", found.option())).await
        }
    })
}

async fn plant_bus(places: &Places) -> Option<Part> {
    use scada::historian::config::Bus;
    let found = places.historian.as_ref()?;
    let name = PLANT_BUS;
    Some(match &found.config.bus {
        Bus::Inline => inline(name),
        Bus::RabbitMq { address, .. } => {
            let next = format!("holdfast doctor scada{}", found.option());
            rabbit(name, address, Ok(scada::historian::topology()), next).await
        }
        #[cfg(feature = "kafka")]
        Bus::Kafka(kafka) => {
            cluster(name, &kafka.cluster, format!("holdfast doctor scada{}", found.option())).await
        }
    })
}

fn inline(name: &str) -> Part {
    let notes = vec!["inline: the memory of one process".to_owned()];
    Part { part: name.to_owned(), answers: true, notes, ..Part::default() }
}

async fn rabbit(
    name: &str,
    address: &Address,
    topology: Result<Topology, String>,
    next: String,
) -> Part {
    let mut part =
        Part { part: name.to_owned(), place: "RabbitMQ".to_owned(), next, ..Part::default() };
    let asked = async {
        let drifts = rabbitmq::check(address, &topology?).await.map_err(|e| e.to_string())?;
        Ok::<_, String>(drifts.into_iter().map(|drift| drift.name).collect::<Vec<_>>())
    };
    match tokio::time::timeout(BUS_WITHIN, asked).await {
        Ok(Ok(drifts)) => {
            part.answers = true;
            part.notes.push("RabbitMQ".to_owned());
            if !drifts.is_empty() {
                let names = drifts.join(", ");
                part.problems.push(format!("missing, or not as they should be: {names}"));
            }
        }
        Ok(Err(error)) => part.problems.push(error),
        Err(_) => part.problems.push(late()),
    }
    part
}

#[cfg(feature = "kafka")]
async fn cluster(name: &str, cluster: &::bus::kafka::Cluster, next: String) -> Part {
    let mut part =
        Part { part: name.to_owned(), place: "Kafka".to_owned(), next, ..Part::default() };
    let asked = ::bus::kafka::admin::diff(cluster, &[]);
    match tokio::time::timeout(BUS_WITHIN, asked).await {
        Ok(Ok(_)) => {
            part.answers = true;
            part.notes.push("Kafka".to_owned());
        }
        Ok(Err(error)) => part.problems.push(error.to_string()),
        Err(_) => part.problems.push(late()),
    }
    part
}

fn late() -> String {
    format!("does not answer within {} s", BUS_WITHIN.as_secs())
}
