//! What the roles need of others: a broker, an object store, another role over HTTP, the bus.

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
    trust: &api::client::Tls,
) -> Check {
    let asked = async {
        let builder = reqwest::Client::builder().timeout(ASK_WITHIN);
        let builder = trust.apply(builder).map_err(|error| error.to_string())?;
        let client = builder.build().map_err(|error| error.to_string())?;
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

/// Whether the cloud takes the site's token.
pub(super) async fn cloud_token(role: &'static str, sync: &edge::config::Sync) -> Check {
    use edge::sync::probe::{Standing, probe};
    let name = "cloud token";
    let make = "make one at the cloud (holdfast token create SITE --role edge --tenant TENANT) and put it \
                into the file of edge.sync.token_file, which is read again within seconds, or set edge.sync.token";
    let url = &sync.cloud_url;
    match probe(sync).await {
        Ok(Standing::Good) => Check::ok(role, name, format!("{url} takes batches with it")),
        Ok(Standing::Unknown) => Check::fail(
            role,
            name,
            format!("{url} answers 401: it does not know the token, or it has ended"),
            make,
        ),
        Ok(Standing::Forbidden) => {
            Check::fail(role, name, format!("{url} answers 403: it is of another role"), make)
        }
        Ok(Standing::Unclear(status)) => Check::warn(
            role,
            name,
            format!("{url} answers {status}, which says nothing of the token"),
            format!("see whether this is the cloud's ingestion: curl {url}/readyz"),
        ),
        Ok(Standing::Away(why)) => Check::fail(role, name, why, "see the network, and ask again"),
        Err(error) => Check::fail(role, name, error.to_string(), "mend the key that is named"),
    }
}

/// Whether those that the console asks take its tokens.
pub(super) async fn upstream_tokens(role: &'static str, config: &console::Config) -> Vec<Check> {
    use console::probe::{Kind, Standing, probe};
    let probed = match probe(config).await {
        Ok(probed) => probed,
        Err(error) => {
            let advice = "mend the key that is named";
            return vec![Check::fail(role, "tokens", error.to_string(), advice)];
        }
    };
    let check = |one: console::probe::Probed| {
        let name = format!("token for {}", one.name);
        let make = match one.kind {
            Kind::Site | Kind::Cloud | Kind::Historian => {
                "make one there with --role operator --all-tenants, and put it into the token's file, \
                 which is read again within seconds"
            }
            Kind::Schedule => {
                "make one there (holdfast token create --schedule) with --role viewer --all-tenants, and put \
                 it into the token's file, which is read again within seconds"
            }
            Kind::Producer => {
                "give the node a producer.http.metrics_token_file, and name a file with the same secret in \
                 console.producers: NAME=URL=TOKEN_FILE; on the node's own machine none is needed"
            }
            Kind::Up => "is the `holdfast up` running whose socket console.up_control names?",
        };
        match one.standing {
            Standing::Good => Check::ok(role, name, "it lets us in"),
            Standing::Unknown => {
                let found = "it answers 401: it does not know the token, or it has ended";
                Check::fail(role, name, found, make)
            }
            Standing::Forbidden => {
                Check::fail(role, name, "it answers 403: the token may not look", make)
            }
            Standing::Unclear(why) => {
                let advice = "the page shows the rest meanwhile; see whether it runs";
                Check::warn(role, name, why, advice)
            }
        }
    };
    probed.into_iter().map(check).collect()
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
