//! The replay core against the edge's ledger, through loss, duplication, reordering, disconnects and restarts.

use crate::world::{World, limits};
use node::forward::{HttpLimits, Limits};
use proptest::prelude::*;

fn converges(seed: u64, limits: Limits, steps: u32) {
    let mut world = World::new(seed, limits);
    for _ in 0..steps {
        world.chaos();
        world.step();
    }
    world.settle();
    assert_eq!(world.edge.acked(), world.head);
    assert!(world.edge.missing(world.head).is_empty());
    for seq in 1..=world.head {
        let (received, lost) =
            (world.edge.received().contains(seq), world.edge.lost().contains(seq));
        assert!(received != lost, "seq {seq} is neither or both");
        assert!(received || world.dropped.contains(seq), "seq {seq} was declared lost and is not");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_received_or_declared_lost(seed: u64) {
        converges(seed, limits(), 400);
    }

    #[test]
    fn also_with_a_rate_and_with_http(seed: u64, rate in 20u64..500, threshold in 5u64..100) {
        let http = Some(HttpLimits { threshold, batch_records: 50 });
        converges(seed, Limits { backfill_rate: rate, http, ..limits() }, 300);
    }
}
