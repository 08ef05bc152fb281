//! A console that serves TLS, before a cloud that does.

use api::tokens::{Role, Tenants};
use console::{Config, Console};
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::certificates::Paper;
use testkit::{Certificates, eventually};

use crate::ground::{LONG, token};

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_for_tls_only_and_tokens_and_certificates_are_replaced_in_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut certificates = Certificates::make().unwrap();
    // Both show them and ask for them; the console trusts and shows the same at the cloud.
    let Paper { ca, client: shown, .. } = certificates.used.clone();
    let served = certificates.settings().map(|(name, value)| (name, value.to_owned()));
    let database = testkit::database("console_tls", "cloud", async |url| {
        cloud::migrate(&pg::Options::new(url)).await
    });
    let database = database.await.unwrap();
    let of = |name: &str| {
        Some(match name {
            "DATABASE_URL" => database.url().to_owned(),
            "HTTP_LISTEN" => "127.0.0.1:0".to_owned(),
            _ => served.iter().find(|(key, _)| *key == name)?.1.clone(),
        })
    };
    let config = cloud::Config::load(None, |name| of(name.strip_prefix("HOLDFAST_CLOUD_")?));
    let cloud = cloud::Cloud::start(config.unwrap()).await.unwrap();
    let file = folder.path().join("cloud.token");
    std::fs::write(&file, "hf_nobody-knows-this-one").unwrap();
    let config = Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_CONSOLE_")?;
        of(key).or_else(|| {
            Some(match key {
                "CA_FILE" => ca.display().to_string(),
                "CLIENT_CERT" => shown.certificate.display().to_string(),
                "CLIENT_KEY" => shown.key.display().to_string(),
                "CLOUD_URL" => format!("https://{}", cloud.http()),
                "CLOUD_TOKEN_FILE" => file.display().to_string(),
                "POLL_EVERY" => "100ms".to_owned(),
                _ => return None,
            })
        })
    });
    let console = Console::start(config.unwrap()).await.unwrap();
    let base = format!("https://{}", console.http());

    let first = &certificates.first;
    let client = testkit::certificates::client(&first.ca, Some(&first.client)).unwrap();
    let person = token(&database, "anna", Role::Operator, Tenants::All).await;
    let signed_in = client
        .post(format!("{base}/api/v1/sign-in"))
        .header("x-holdfast-csrf", "1")
        .header("origin", &base)
        .json(&json!({"token": person}))
        .send()
        .await
        .unwrap();
    assert_eq!(signed_in.status(), StatusCode::OK);
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let upstream = async || {
        let asked = client.get(format!("{base}/api/v1/picture")).header("cookie", cookie);
        let picture: Value = asked.send().await.unwrap().json().await.unwrap();
        picture["upstreams"][0].clone()
    };
    eventually(LONG, "the cloud refuses the console", async || {
        let seen = upstream().await;
        if seen["error"].to_string().contains("401") { Ok(()) } else { Err(seen) }
    })
    .await
    .unwrap();
    let good = token(&database, "console", Role::Operator, Tenants::All).await;
    std::fs::write(&file, good).unwrap();
    eventually(LONG, "the cloud lets the console in", async || {
        let seen = upstream().await;
        if seen["state"] == "here" { Ok(()) } else { Err(seen) }
    })
    .await
    .unwrap();
    // Every certificate changes, and nothing is restarted.
    certificates.are_asked_for(console.http(), "/healthz").await.unwrap();
    eventually(LONG, "the cloud lets the console in, still", async || {
        let seen = upstream().await;
        if seen["state"] == "here" { Ok(()) } else { Err(seen) }
    })
    .await
    .unwrap();
    console.stop().await;
    cloud.stop().await;
}
