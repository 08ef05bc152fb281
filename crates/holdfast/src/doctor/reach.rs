//! What the roles need of others: a broker, an object store, another role over HTTP, the bus.

use std::path::Path;
use std::time::Duration;

use super::check::Check;
use crate::status::places::Places;
use crate::status::plant;

/// How long a stranger may take.
const ASK_WITHIN: Duration = Duration::from_secs(8);

/// Logs in at a broker and goes again.
pub(super) async fn broker(role: &'static str, broker: &mqtt::Broker) -> Check {
    let address = broker.address.to_string();
    // An empty client id and a clean session: the broker names the guest, and keeps nothing of it.
    let connected = match broker.connect(&mqtt::Session::default()) {
        Ok((_client, mut events)) => {
            let asked = tokio::time::timeout(ASK_WITHIN, events.poll()).await;
            asked.map_or_else(
                |_| Err(late()),
                |answer| answer.map(drop).map_err(|error| error.to_string()),
            )
        }
        Err(error) => Err(error.to_string()),
    };
    logged_in(role, &address, connected)
}

fn late() -> String {
    format!("no answer within {} s", ASK_WITHIN.as_secs())
}

fn logged_in(role: &'static str, address: &str, connected: Result<(), String>) -> Check {
    match connected {
        Ok(()) => Check::ok(role, "broker", format!("{address} lets us in")),
        Err(why) => {
            let advice = match why.contains("BadUserNamePassword") || why.contains("NotAuthorized")
            {
                true => {
                    "the broker refuses the name or the password: enroll again, or let the broker read its password file (kill -HUP)"
                }
                false => "see whether the broker runs, and mqtt.address and its CA file are right",
            };
            Check::fail(role, "broker", format!("{address}: {why}"), advice)
        }
    }
}

/// Lists one object.
pub(super) async fn bucket(role: &'static str, bucket: &objects::Bucket) -> Check {
    let name = "object store";
    match bucket.list("", None, 1).await {
        Ok(_) => Check::ok(role, name, format!("bucket {} answers", bucket.name())),
        Err(error) => Check::fail(
            role,
            name,
            format!("bucket {}: {error}", bucket.name()),
            "see whether the store runs, the bucket is there, and the keys may list it",
        ),
    }
}

/// Asks another role whether it is ready.
pub(super) async fn http(
    role: &'static str,
    name: &'static str,
    url: &str,
    ca_file: Option<&Path>,
) -> Check {
    let asked = async {
        let mut client = reqwest::Client::builder().timeout(ASK_WITHIN);
        if let Some(file) = ca_file {
            let pem =
                std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
            let trusted = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| e.to_string())?;
            for one in trusted {
                client = client.add_root_certificate(one);
            }
        }
        let client = client.build().map_err(|error| error.to_string())?;
        let answer = client.get(format!("{url}/readyz")).send().await.map_err(|error| {
            // The outer words only name the address; the cause says what happened.
            let mut why: &dyn std::error::Error = &error;
            while let Some(cause) = why.source() {
                why = cause;
            }
            why.to_string()
        })?;
        Ok::<_, String>(answer.status())
    };
    match asked.await {
        Ok(status) if status.is_success() => Check::ok(role, name, format!("{url} is ready")),
        Ok(status) => Check::warn(
            role,
            name,
            format!("{url} answers, and says {status}"),
            format!("curl {url}/readyz says what it lacks"),
        ),
        Err(why) => Check::fail(
            role,
            name,
            format!("{url}: {why}"),
            "see the network, the name, the CA file, and whether it runs; until then events wait here",
        ),
    }
}

/// What carries events.
pub(super) async fn buses(places: &Places) -> Vec<Check> {
    let role = |part: &str| if part.starts_with("cloud") { "cloud" } else { "scada" };
    let parts = plant::buses(places).await;
    let check = |part: crate::status::Part| match part.is_well() {
        true => Check::ok(role(&part.part), "bus", part.notes.join("; ")),
        false => Check::fail(
            role(&part.part),
            "bus",
            format!("{}: {}", part.place, part.problems.join("; ")),
            "see whether the broker runs and the login is right; `holdfast bus declare` makes what is missing",
        ),
    };
    parts.into_iter().map(check).collect()
}
