//! An intake that serves TLS.

use api::serve::Tls;
use std::time::Duration;
use testkit::Certificates;

use crate::intake::Gate;

#[tokio::test(flavor = "multi_thread")]
async fn it_is_served_by_tls_only_and_asks_for_certificates() {
    let mut certificates = Certificates::make().unwrap();
    let paper = certificates.used.clone();
    let tls = Tls {
        client_ca: Some(paper.ca),
        look_every: Duration::from_millis(100),
        ..Tls::new(paper.server.certificate, paper.server.key)
    };
    let gate = Gate::with("schedule_tls", Some(&tls)).await;
    certificates.are_asked_for(gate.address, "/healthz").await.unwrap();
}
