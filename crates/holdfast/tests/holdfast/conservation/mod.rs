//! The promise, on real processes: **produced = stored + declared lost**.
//!
//! Three nodes, two edge replicas, two replicas of the cloud, a broker and a Postgres run as they would. Samplers hand over
//! readings all the time, while processes are killed and halted, links are cut, stalled or made deaf in one direction, and one
//! node's small disk is filled up. Then everything is put right, the system settles, and every reading that a sampler has a receipt
//! for must be at the edge and in the stores of the cloud's consumers exactly once, or in a declared gap; and gaps may be only where
//! a disk was full.
//!
//! `HOLDFAST_SEED=n` repeats a run's choices, `HOLDFAST_FAULTS=n` changes how many there are.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests stand outside #[test] functions"
)]

mod account;
pub(crate) mod cloud;
mod faults;
pub(crate) mod sampler;
pub(crate) mod site;

use rand::SeedableRng;
use rand::rngs::StdRng;

use faults::Fault;
use sampler::Sampler;
use site::Site;

const FAULTS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reading_is_stored_once_or_declared_lost() {
    let mut rng = StdRng::seed_from_u64(testkit::seed().unwrap());
    let count = std::env::var("HOLDFAST_FAULTS").map_or(FAULTS, |text| text.parse().unwrap());

    let mut site = Site::start().await.unwrap();
    let samplers: Vec<_> = site.nodes.iter().map(|node| Sampler::start(&node.socket)).collect();
    site.wait_until_data_flows().await.unwrap();

    faults::force_a_gap(&mut site).await.unwrap();
    for number in 1..=count {
        let fault = Fault::draw(&site, &mut rng);
        println!("fault {number}/{count}: {fault:?}");
        fault.inflict(&mut site, &mut rng).await.unwrap();
    }

    site.put_right().await.unwrap();
    let mut receipts = Vec::new();
    for sampler in samplers {
        receipts.push(sampler.finish().await);
    }
    site.wait_until_settled().await.unwrap();

    let client = site.database().await.unwrap();
    for (node, receipts) in site.nodes.iter().zip(&receipts) {
        let account = account::read(&client, node.id.as_str()).await;
        println!("{}: {account}, {} receipts", node.id, receipts.len());
        account.check(receipts, node.tmpfs.is_some());
    }
    account::check_whole(&client).await;
    site.cloud.check(&client).await;
}
