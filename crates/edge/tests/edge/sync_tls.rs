//! The way to a cloud that serves TLS: an authority of one's own, a certificate for the site, a token that changes.

use std::path::Path;

use api::tokens::Tenants;
use edge::sync::probe::{Standing, probe};
use testkit::certificates::Paper;
use testkit::rig::{Link, Mode};
use testkit::{Certificates, eventually};

use crate::site::{LONG, Site};
use crate::sync::all_are;
use crate::sync_cloud::{forward, sync_config};
use crate::sync_real::RealCloud;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_a_cloud_with_a_private_authority_and_a_token_is_replaced_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::make().unwrap();
    let Paper { ca, client: shown, .. } = &certificates.used;
    let cloud = RealCloud::start("sync_tls", &certificates.settings()).await;
    let url = format!("https://{}", cloud.replicas[0].http());

    let site = Site::new("sync_tls").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=20), &[])]).await;
    let file = folder.path().join("token");
    std::fs::write(&file, "hf_not-a-token-of-this-cloud\n").unwrap();
    let trust = [("SYNC_CA_FILE", text(ca)), ("SYNC_TOKEN", ""), ("SYNC_TOKEN_FILE", text(&file))];
    let bare = sync_config(&site, &url, &trust);
    let whole = [
        &trust[..],
        &[("SYNC_CLIENT_CERT", text(&shown.certificate)), ("SYNC_CLIENT_KEY", text(&shown.key))],
    ]
    .concat();
    let config = sync_config(&site, &url, &whole);

    // Who shows no certificate is not let in, and who trusts nobody does not go in.
    assert!(matches!(probe(&bare).await.unwrap(), Standing::Away(_)));
    let trusting_nobody = sync_config(&site, &url, &trust[1..]);
    assert!(matches!(probe(&trusting_nobody).await.unwrap(), Standing::Away(_)));
    assert_eq!(probe(&config).await.unwrap(), Standing::Unknown);

    let forwarder = forward(&site, &config, "edge-1");
    let failures = "SELECT coalesce(max(consecutive_failures), 0)::bigint FROM sync_state";
    eventually(LONG, "the token is refused", async || site.number(failures).await > 0)
        .await
        .unwrap();
    std::fs::write(&file, cloud.token(Tenants::All).await).unwrap();
    all_are(&site, "acked").await;
    cloud.has_once(20).await;
    assert_eq!(probe(&config).await.unwrap(), Standing::Good);
    forwarder.stop().await;
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forwarder_takes_a_new_authority_and_certificate_and_keeps_the_old_ones_while_they_are_bad()
 {
    let mut certificates = Certificates::make().unwrap();
    let cloud = RealCloud::start("sync_tls_renewed", &certificates.settings()).await;
    let link = Link::start(cloud.replicas[0].http()).await.unwrap();
    let url = format!("https://{}", link.addr());
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("sync_tls_renewed").await;
    let node = site.enroll("barn-1").await;
    let with = |paper: &Paper| {
        sync_config(
            &site,
            &url,
            &[
                ("SYNC_TOKEN", &token),
                ("SYNC_CA_FILE", text(&paper.ca)),
                ("SYNC_CLIENT_CERT", text(&paper.client.certificate)),
                ("SYNC_CLIENT_KEY", text(&paper.client.key)),
            ],
        )
    };
    // Files of its own, which are not the cloud's.
    let ours = Certificates::make().unwrap();
    ours.put(&certificates.first).unwrap();
    let forwarder = forward(&site, &with(&ours.used), "edge-1");
    let sent = async |upto: u64| {
        // Connections from before have trusted what was there before.
        link.set(Mode::Cut);
        link.set(Mode::Pass);
        site.ingest(&[node.batch(&node.readings(upto - 9..=upto), &[])]).await;
        all_are(&site, "acked").await;
        cloud.has_once(i64::try_from(upto).unwrap()).await;
    };
    sent(10).await;
    std::fs::write(&ours.used.ca, "nonsense").unwrap();
    sent(20).await;

    let next = certificates.another().unwrap();
    certificates.put(&next).unwrap();
    let stranger = with(&certificates.first);
    eventually(LONG, "the cloud has changed", async || {
        matches!(probe(&stranger).await.unwrap(), Standing::Away(_))
    })
    .await
    .unwrap();
    ours.put(&next).unwrap();
    sent(30).await;
    forwarder.stop().await;
    cloud.stop().await;
}
