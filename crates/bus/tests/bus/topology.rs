//! Names and arguments exactly as documented, declared twice, and drift.

use std::collections::BTreeSet;

use bus::rabbitmq::{Address, Drift, Topology, TopologyError, Trouble, WorkQueue, check, declare};
use bus::{Binding, Retry};

fn documented() -> Topology {
    let queue = |service: &str, purpose: &str, bindings: &[(&str, &str)]| WorkQueue {
        name: format!("farmiq.{service}.{purpose}.queue"),
        dead_letter_queue: format!("farmiq.{service}.dlq.queue"),
        bindings: bindings
            .iter()
            .map(|(domain, key)| Binding::new(format!("farmiq.{domain}.exchange"), *key))
            .collect(),
        retry: Retry::broker(),
    };
    Topology {
        exchanges: vec!["farmiq.sync.exchange".to_owned()],
        queues: vec![
            queue("cloud-telemetry-service", "ingest", &[("telemetry", "telemetry.ingested")]),
            queue("cloud-telemetry-service", "agg", &[("telemetry", "telemetry.ingested")]),
            queue(
                "cloud-analytics-service",
                "kpi",
                &[("telemetry", "#"), ("weighvision", "#"), ("inference", "inference.completed")],
            ),
            queue("cloud-media-store", "store", &[("media", "media.stored")]),
        ],
    }
}

async fn lines(vhost: &testkit::Vhost, arguments: &[&str]) -> BTreeSet<String> {
    let (command, columns) = arguments.split_first().unwrap();
    let arguments = [&[*command, "-p", vhost.name(), "--no-table-headers"], columns].concat();
    let text = vhost.ctl(&arguments).await.unwrap();
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn names_are_exactly_those_documented() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    declare(&address, &documented()).await.unwrap();
    declare(&address, &documented()).await.unwrap();
    assert_eq!(check(&address, &documented()).await.unwrap(), []);

    let exchanges = lines(&vhost, &["list_exchanges", "name", "type", "durable"]).await;
    let ours: Vec<&str> =
        exchanges.iter().map(String::as_str).filter(|line| line.starts_with("farmiq")).collect();
    assert_eq!(
        ours,
        [
            "farmiq.inference.exchange topic true",
            "farmiq.media.exchange topic true",
            "farmiq.sync.exchange topic true",
            "farmiq.telemetry.exchange topic true",
            "farmiq.weighvision.exchange topic true",
        ]
    );
    let mut expected = BTreeSet::new();
    for queue in [
        "farmiq.cloud-telemetry-service.ingest",
        "farmiq.cloud-telemetry-service.agg",
        "farmiq.cloud-analytics-service.kpi",
        "farmiq.cloud-media-store.store",
    ] {
        expected.insert(format!("{queue}.queue quorum true"));
        for delay in ["1s", "10s", "60s"] {
            expected.insert(format!("{queue}-retry-{delay}.queue quorum true"));
        }
    }
    for service in ["cloud-telemetry-service", "cloud-analytics-service", "cloud-media-store"] {
        expected.insert(format!("farmiq.{service}.dlq.queue quorum true"));
    }
    assert_eq!(lines(&vhost, &["list_queues", "name", "type", "durable"]).await, expected);
    let columns = ["list_bindings", "source_name", "routing_key", "destination_name"];
    let bindings = lines(&vhost, &columns).await;
    let telemetry: Vec<&str> = bindings
        .iter()
        .filter_map(|line| line.strip_prefix("farmiq.telemetry.exchange "))
        .collect();
    assert_eq!(
        telemetry,
        [
            "# farmiq.cloud-analytics-service.kpi.queue",
            "telemetry.ingested farmiq.cloud-telemetry-service.agg.queue",
            "telemetry.ingested farmiq.cloud-telemetry-service.ingest.queue",
        ]
    );
    let arguments = lines(&vhost, &["list_queues", "name", "arguments"]).await;
    let work = arguments
        .iter()
        .find(|line| line.starts_with("farmiq.cloud-telemetry-service.ingest.queue"))
        .unwrap();
    for argument in [
        // An empty name, which is printed as an empty list.
        r#""x-dead-letter-exchange",[]"#,
        r#""x-dead-letter-routing-key","farmiq.cloud-telemetry-service.dlq.queue""#,
        r#""x-dead-letter-strategy","at-least-once""#,
        r#""x-overflow","reject-publish""#,
        r#""x-queue-type","quorum""#,
        r#""x-delivery-limit",20"#,
    ] {
        assert!(work.contains(argument), "{argument} in {work}");
    }
}

#[tokio::test]
async fn drift_is_named_and_not_mended_by_a_check() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    let wanted = documented();
    let missing = check(&address, &wanted).await.unwrap();
    assert_eq!(missing.len(), 5 + 4 * 4 + 3);
    assert!(missing.iter().all(|drift| drift.trouble == Trouble::Missing), "{missing:?}");

    // Another retry policy makes other queues, and the same work queues with another dead-letter queue.
    let mut other = documented();
    other.queues[0].dead_letter_queue = "farmiq.elsewhere.dlq.queue".to_owned();
    other.queues.truncate(1);
    declare(&address, &other).await.unwrap();
    let drifts = check(&address, &wanted).await.unwrap();
    let different: Vec<&Drift> =
        drifts.iter().filter(|drift| drift.trouble != Trouble::Missing).collect();
    let [Drift { name, trouble: Trouble::Different(said) }] = different[..] else {
        panic!("{different:?}");
    };
    assert_eq!(name, "farmiq.cloud-telemetry-service.ingest.queue");
    assert!(said.contains("x-dead-letter-routing-key"), "{said}");
    assert_eq!(check(&address, &wanted).await.unwrap(), drifts, "a check makes nothing");

    let refused = declare(&address, &wanted).await.unwrap_err();
    assert!(
        matches!(&refused, TopologyError::Refused { name: refused, .. } if refused == name),
        "{refused}"
    );
}
