//! The product's own topology against the documented names.

use std::collections::BTreeSet;

/// One documented queue is none of ours: docs/spec/cloud-stores.md, "Services and queues", says why. Alarms are of the sites'
/// own, and their exchange keeps to the naming.
#[test]
fn the_products_own_topology_has_the_documented_names_and_no_others() {
    let topology = cloud::topology(&cloud::consume::groups()).unwrap();
    let bound = topology.queues.iter().flat_map(|queue| &queue.bindings);
    let exchanges: BTreeSet<&str> = bound
        .map(|binding| binding.exchange.as_str())
        .chain(topology.exchanges.iter().map(String::as_str))
        .collect();
    let domains = ["alarm", "inference", "media", "sync", "telemetry", "weighvision"];
    let expected = domains.map(|domain| format!("farmiq.{domain}.exchange"));
    assert_eq!(exchanges.into_iter().collect::<Vec<_>>(), expected);
    // The types of the events are the routing keys, so each exchange carries its own domain alone.
    for binding in topology.queues.iter().flat_map(|queue| &queue.bindings) {
        let domain = binding.exchange.split('.').nth(1).unwrap();
        assert_eq!(binding.pattern.split('.').next(), Some(domain), "{binding:?}");
    }
    let queues: BTreeSet<&str> = topology.queues.iter().map(|queue| queue.name.as_str()).collect();
    let documented = BTreeSet::from([
        "farmiq.cloud-telemetry-service.ingest.queue",
        "farmiq.cloud-telemetry-service.agg.queue",
        "farmiq.cloud-analytics-service.kpi.queue",
        "farmiq.cloud-media-store.store.queue",
    ]);
    assert_eq!(queues.difference(&documented).count(), 0, "{queues:?}");
    let left_out: Vec<&&str> = documented.difference(&queues).collect();
    assert_eq!(left_out, [&"farmiq.cloud-telemetry-service.agg.queue"]);
    let dead: BTreeSet<&str> =
        topology.queues.iter().map(|queue| queue.dead_letter_queue.as_str()).collect();
    let expected = BTreeSet::from([
        "farmiq.cloud-telemetry-service.dlq.queue",
        "farmiq.cloud-analytics-service.dlq.queue",
        "farmiq.cloud-media-store.dlq.queue",
    ]);
    assert_eq!(dead, expected);
}
