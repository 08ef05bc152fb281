//! The two stores that the client's tests run against.

use objects::{Address, Bucket};
use testkit::EmbeddedStore;

/// A store with one bucket.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) address: Address,
    pub(crate) bucket: Bucket,
    _embedded: Option<EmbeddedStore>,
}

/// The embedded store and one that is not ours.
pub(crate) async fn both() -> [Place; 2] {
    let foreign = testkit::foreign_bucket().await.unwrap();
    [embedded().await, place("foreign", foreign, None)]
}

pub(crate) async fn embedded() -> Place {
    let store = EmbeddedStore::start().await.unwrap();
    place("embedded", store.address().clone(), Some(store))
}

fn place(name: &'static str, address: Address, store: Option<EmbeddedStore>) -> Place {
    let bucket = Bucket::new(&address).unwrap();
    Place { name, address, bucket, _embedded: store }
}

/// Bytes that are not all the same.
pub(crate) fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at * 31 + at / 251) % 251).unwrap()).collect()
}

/// A client as a camera has.
pub(crate) fn http() -> reqwest::Client {
    reqwest::Client::new()
}
