//! Dead letters that a broker keeps: no table knows of them, so the broker is asked.

use bus::Filter;
use bus::letterbox::{BrokerLetterbox, Letterbox as _};

use super::places::Places;
use super::plant::{self, CLOUD_BUS, PLANT_BUS};
use super::view::Part;

/// What brokers keep of what was given up. `None`: it is not known; the bus's part says why.
pub(super) struct AtBrokers {
    /// By the cloud's consumers.
    pub(super) consumers: Option<i64>,
    /// By the historian.
    pub(super) historian: Option<i64>,
}

/// What carries events, and the dead letters that it keeps.
pub(super) async fn buses(places: &Places) -> (Vec<Part>, AtBrokers) {
    let mut parts = plant::buses(places).await;
    let cloud = places.cloud.as_ref().map(|found| {
        let topology = crate::bus::topology().map_err(|error| error.to_string())?;
        Ok(cloud::dead_letters::broker::letterbox(&found.config.bus, &topology))
    });
    let historian = places
        .historian
        .as_ref()
        .map(|found| Ok(scada::historian::dead_letters::broker(&found.config.bus)));
    let (consumers, historian) =
        tokio::join!(counted(cloud, &parts, CLOUD_BUS), counted(historian, &parts, PLANT_BUS));
    let consumers = told(consumers, &mut parts, CLOUD_BUS);
    let historian = told(historian, &mut parts, PLANT_BUS);
    (parts, AtBrokers { consumers, historian })
}

/// How many a broker keeps: none where they are rows of a database. One that is away is not asked again.
async fn counted(
    letterbox: Option<Result<Option<BrokerLetterbox>, String>>,
    parts: &[Part],
    name: &str,
) -> Option<Result<i64, String>> {
    let letterbox = match letterbox? {
        Ok(Some(letterbox)) => letterbox,
        Ok(None) => return Some(Ok(0)),
        Err(why) => return Some(Err(why)),
    };
    parts.iter().find(|part| part.part == name && part.answers)?;
    let filter = Filter::default();
    // None of them is wanted, only their number.
    let listed = tokio::time::timeout(plant::BUS_WITHIN, letterbox.list(&filter, 0)).await;
    Some(match listed {
        Ok(Ok(listing)) => Ok(i64::try_from(listing.total).unwrap_or(i64::MAX)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", plant::BUS_WITHIN.as_secs())),
    })
}

/// The number, or a problem of the bus: whoever cannot count them must not say that all is well.
fn told(counted: Option<Result<i64, String>>, parts: &mut [Part], name: &str) -> Option<i64> {
    match counted? {
        Ok(many) => Some(many),
        Err(why) => {
            if let Some(part) = parts.iter_mut().find(|part| part.part == name) {
                part.problems.push(format!("its dead letters are not known: {why}"));
            }
            None
        }
    }
}
