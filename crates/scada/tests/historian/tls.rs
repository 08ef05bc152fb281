//! A historian that serves TLS.

use api::tokens::Role;
use testkit::Certificates;
use testkit::certificates::client;

use crate::station::Station;

#[tokio::test(flavor = "multi_thread")]
async fn its_api_is_served_by_tls_only_and_asks_for_certificates() {
    let mut certificates = Certificates::make().unwrap();
    let station = Station::with("hist_tls", &certificates.settings()).await;
    let token = station.token(Role::Viewer).await;
    let known = client(&certificates.first.ca, Some(&certificates.first.client)).unwrap();
    let url = format!("https://{}/api/v1/telemetry", station.historian.http());
    // The certificate lets nobody read; the token does.
    let bare = known.get(&url).send().await.unwrap();
    assert_eq!(bare.status(), reqwest::StatusCode::UNAUTHORIZED);
    let asked = known.get(&url).bearer_auth(&token).send().await.unwrap();
    assert_eq!(asked.status(), reqwest::StatusCode::OK);
    certificates.are_asked_for(station.historian.http(), "/healthz").await.unwrap();
    station.historian.stop().await;
}
