//! The partitioner against vectors made with Kafka's Java client; the file's header says how.

use std::num::NonZeroU32;

use event::names::kafka::{Topic, murmur2, partition_for, partition_key};

#[test]
fn hash_and_partition_equal_those_of_the_java_client() {
    let mut checked = 0;
    for line in include_str!("murmur2_vectors.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split(' ');
        let mut column = || columns.next().unwrap();
        let key: Vec<u8> = match column() {
            "-" => Vec::new(),
            hex => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect(),
        };
        let hash: i32 = column().parse().unwrap();
        let of_200: u32 = column().parse().unwrap();
        let of_12: u32 = column().parse().unwrap();
        assert_eq!(murmur2(&key).cast_signed(), hash, "{line}");
        assert_eq!(partition_for(&key, Topic::PARTITIONS), of_200, "{line}");
        assert_eq!(partition_for(&key, NonZeroU32::new(12).unwrap()), of_12, "{line}");
        checked += 1;
    }
    assert_eq!(checked, 95);
}

#[test]
fn the_documented_key_lands_on_its_partition() {
    let key = partition_key(
        &"PLANT01".parse().unwrap(),
        &"AREA02".parse().unwrap(),
        &"UNIT_05".parse().unwrap(),
        &"FLOW_RATE".parse().unwrap(),
    );
    assert_eq!(key, "PLANT01.AREA02.UNIT_05.FLOW_RATE");
    assert_eq!(partition_for(key.as_bytes(), Topic::PARTITIONS), 195);
}
