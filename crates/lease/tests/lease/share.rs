//! Fair between tenants, priorities first.

use std::sync::{Arc, Mutex};

use lease::Verdict;
use uuid::Uuid;

use crate::site::{Mode, Site, name, script};

/// Per batch: the tenants and ranks in it.
type Batches = Arc<Mutex<Vec<Vec<(Uuid, i32)>>>>;

fn recording(batches: &Batches) -> crate::site::Script {
    let batches = batches.clone();
    script(move |batch| {
        let rows = batch.items.iter().map(|item| (item.row.tenant, item.lane.rank)).collect();
        batches.lock().unwrap().push(rows);
        async move { Verdict::all_done(&batch) }
    })
}

async fn a_backlog_does_not_starve_another_tenants_events(mode: Mode) {
    let site = Site::new(mode, "fair").await;
    for device in 0..20 {
        site.add("big", &format!("d{device}"), 0..250).await;
    }
    site.add("small", "d", 0..3).await;
    site.add("medium", "d", 0..120).await;
    let batches = Batches::default();
    let mut options = site.options("w");
    (options.batch, options.slots) = (60, 1);
    let worker = site.start(recording(&batches), options);
    site.until_acked(5_123).await;
    let batches = batches.lock().unwrap().clone();
    let last = |tenant: &str| {
        batches.iter().rposition(|rows| rows.iter().any(|(found, _)| *found == name(tenant)))
    };
    assert!(last("small") < Some(3), "{:?}", last("small"));
    // A third of each batch, and the rest of the small one's third.
    assert!(last("medium") < Some(12), "{:?}", last("medium"));
    assert!(last("big") > Some(80), "{:?}", last("big"));
    worker.stop().await;
}

async fn a_higher_priority_goes_first_within_its_tenant(mode: Mode) {
    let site = Site::new(mode, "priority").await;
    for device in 0..10 {
        site.add("t", &format!("d{device}"), 0..100).await;
    }
    site.add_with("t", Some("d3"), 20, 5_000..5_010).await;
    site.add_with("t", None, 10, 6_000..6_010).await;
    let batches = Batches::default();
    let mut options = site.options("w");
    options.slots = 1;
    let worker = site.start(recording(&batches), options);
    site.until_acked(1_020).await;
    let ranks: Vec<i32> =
        batches.lock().unwrap().iter().flatten().map(|(_, rank)| *rank).take(60).collect();
    // The first look sees every band, so the urgent ones are all within the first batches.
    assert_eq!(ranks.iter().filter(|rank| **rank == -20).count(), 10, "{ranks:?}");
    assert_eq!(ranks.iter().filter(|rank| **rank == -10).count(), 10, "{ranks:?}");
    worker.stop().await;
}

crate::both! {
    a_backlog_does_not_starve_another_tenants_events,
    a_higher_priority_goes_first_within_its_tenant,
}
