//! Who may do what: tokens, roles, tenants, open routes.

use cloud::ROUTES;
use cloud::tokens::{self, NewToken, Role, Tenants};
use event::id::{Epoch, TenantId};
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Site, bare, batch, error, http, placed, reading, token, tombstone};

#[tokio::test]
async fn without_a_token_every_route_answers_401_except_the_open_ones() {
    let site = Site::new("open_routes").await;
    let base = format!("http://{}", site.cloud.http());
    let open = ["/healthz", "/readyz", "/api/v1/openapi.json", "/api/docs", "/metrics"];
    let mut paths: Vec<&str> = ROUTES.iter().map(|(_, path, _)| *path).collect();
    paths.extend(["/", "/api", "/api/v1/nothing", "/api/v1/sync/batches/", "//healthz"]);
    for path in paths {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let asked = http().request(method.clone(), format!("{base}{path}")).send().await;
            let asked = asked.unwrap();
            let expected = match open.contains(&path) && method == Method::GET {
                true => StatusCode::OK,
                false => StatusCode::UNAUTHORIZED,
            };
            assert_eq!(asked.status(), expected, "{method} {path}");
        }
    }
    // A proxy on the same machine brings requests from elsewhere.
    for header in ["forwarded", "x-forwarded-for"] {
        let asked = http().get(format!("{base}/metrics")).header(header, "for=192.0.2.1");
        assert_eq!(asked.send().await.unwrap().status(), 401);
    }
    let asked = http().get(format!("{base}/metrics")).header("forwarded", "for=192.0.2.1");
    assert_eq!(asked.bearer_auth(&site.token).send().await.unwrap().status(), 200);
    // With a token, what is not there is said to be not there.
    let asked = http().get(format!("{base}/api/v1/nothing")).bearer_auth(&site.token);
    assert_eq!(error(asked.send().await.unwrap()).await.0, 404);
    let asked = http().get(format!("{base}/api/v1/sync/batches")).bearer_auth(&site.token);
    assert_eq!(error(asked.send().await.unwrap()).await.0, 405);
    site.cloud.stop().await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_nothing_is_stored() {
    let site = Site::new("wrong_token").await;
    let body = batch(vec![bare(site.reading())]).to_string();
    let unknown = format!("hf_{}", "0".repeat(64));
    for header in [
        "Bearer guess".to_owned(),
        format!("Bearer {unknown}"),
        format!("Basic {}", site.token),
        site.token.clone(),
        String::new(),
    ] {
        let request = site.post().header("authorization", header).body(body.clone());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        let (status, said) = error(answer).await;
        assert_eq!((status, said["code"].as_str()), (401, Some("unauthorized")));
        assert!(!said.to_string().contains(&site.token[3..]));
    }
    let lower = site.post().header("authorization", format!("bearer {}", site.token));
    assert_eq!(lower.body(body).send().await.unwrap().status(), 200, "the scheme has no case");
    site.cloud.stop().await;
}

#[tokio::test]
async fn roles_and_tenants_are_kept_apart() {
    let site = Site::new("matrix").await;
    let client = site.client().await;
    let (ours, theirs) = (site.tenant, TenantId::mint());
    let epoch = Epoch::mint();
    let mut seq = 0;
    for role in Role::ALL {
        for tenants in [
            Tenants::Only(vec![ours]),
            Tenants::Only(vec![theirs]),
            Tenants::Only(vec![ours, theirs]),
            Tenants::All,
        ] {
            seq += 1;
            let (_, secret) = token(&client, role, tenants.clone()).await;
            let mut body = batch(vec![
                placed(reading(ours), "barn-7", epoch, seq),
                placed(reading(theirs), "barn-7", epoch, seq),
            ]);
            body["tombstones"] = json!([
                tombstone(ours, epoch, 1000 + seq, 1000 + seq),
                tombstone(theirs, epoch, 1000 + seq, 1000 + seq),
            ]);
            let before = site.number("SELECT count(*) FROM relay_outbox").await;
            let request = site.post().bearer_auth(secret).body(body.to_string());
            let answer = request.send().await.unwrap();
            if !matches!(role, Role::Edge | Role::Admin) {
                let (status, said) = error(answer).await;
                assert_eq!((status, said["code"].as_str()), (403, Some("forbidden")), "{role}");
                let after = site.number("SELECT count(*) FROM relay_outbox").await;
                assert_eq!(after, before);
                continue;
            }
            let reply: Value = answer.json().await.unwrap();
            let mut taken = 0;
            for (index, tenant) in [ours, theirs].into_iter().enumerate() {
                let result = &reply["results"][index];
                if tenants.allow(tenant) {
                    assert_eq!(result["status"], "accepted", "{role} {tenants:?}");
                    taken += 1;
                } else {
                    assert_eq!(result["code"], "tenant_forbidden", "{role} {tenants:?}");
                }
            }
            assert_eq!(reply["tombstones_accepted"], taken);
        }
    }
    // 2 roles × (1 + 1 + 2 + 2) events, each in its own tenant's rows only.
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 12);
    for (tenant, rows) in [(ours, 6), (theirs, 6)] {
        let query = format!(
            "SELECT count(*) FROM relay_outbox WHERE tenant_id = '{tenant}'
             AND convert_from(envelope, 'UTF8')::jsonb->>'tenant_id' = '{tenant}'"
        );
        assert_eq!(site.number(&query).await, rows);
        let query = format!("SELECT count(*) FROM ledger_tombstone WHERE tenant_id = '{tenant}'");
        assert_eq!(site.number(&query).await, rows);
    }
    site.cloud.stop().await;
}

#[tokio::test]
async fn a_forbidden_event_id_does_not_shadow_its_owners() {
    let site = Site::new("shadow").await;
    let victim = TenantId::mint();
    let event = reading(victim);
    // Our token names the victim's event; it is refused, and leaves no trace that matters.
    let refused = batch(vec![placed(event.clone(), "barn-7", Epoch::mint(), 1)]);
    assert_eq!(site.statuses(&refused).await, ["rejected"]);
    let (_, theirs) = token(&site.client().await, Role::Edge, Tenants::Only(vec![victim])).await;
    // Nor does the same id under our own tenant.
    let mut ours = event.clone();
    ours["tenant_id"] = json!(site.tenant);
    assert_eq!(site.statuses(&batch(vec![bare(ours)])).await, ["accepted"]);
    let request = site.post().bearer_auth(theirs).body(batch(vec![bare(event)]).to_string());
    let reply: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(crate::site::statuses(&reply), ["accepted"]);
    site.cloud.stop().await;
}

#[tokio::test]
async fn revoked_and_expired_tokens_stop() {
    let site = Site::new("revoked").await;
    let client = site.client().await;
    let (made, secret) = token(&client, Role::Edge, Tenants::All).await;
    let send = async |secret: &str| {
        let body = batch(vec![bare(site.reading())]).to_string();
        let answer = site.post().bearer_auth(secret).body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.text().await.unwrap())
    };
    assert_eq!(send(&secret).await.0, 200);
    let revoked = tokens::revoke(&client, made.id).await.unwrap();
    assert!(revoked.revoked_at.is_some());
    assert_eq!(tokens::revoke(&client, made.id).await.unwrap(), revoked, "the time stays");
    // What was remembered of it is looked up again within moments.
    eventually(LONG, "the token stops", async || {
        let (status, said) = send(&secret).await;
        status == 401 && said.contains("revoked")
    })
    .await
    .unwrap();

    let soon = Timestamp::now() + SignedDuration::from_hours(1);
    let mut new = NewToken {
        name: "for an hour".to_owned(),
        role: Role::Edge,
        tenants: Tenants::All,
        expires_at: Some(soon),
    };
    let (made, secret) = tokens::create(&client, &new).await.unwrap();
    assert_eq!(send(secret.expose()).await.0, 200);
    let query = "UPDATE api_tokens SET expires_at = now() WHERE id = $1";
    client.execute(query, &[&made.id]).await.unwrap();
    eventually(LONG, "the token expires", async || {
        let (status, said) = send(secret.expose()).await;
        status == 401 && said.contains("expired")
    })
    .await
    .unwrap();

    new.expires_at = Some(Timestamp::now() - SignedDuration::from_secs(1));
    assert!(matches!(tokens::create(&client, &new).await, Err(tokens::Error::Expired)));
    new.expires_at = None;
    new.tenants = Tenants::Only(vec![]);
    assert!(matches!(tokens::create(&client, &new).await, Err(tokens::Error::Tenants)));
    new.name = "a\nb".to_owned();
    assert!(matches!(tokens::create(&client, &new).await, Err(tokens::Error::Name)));
    let nobody = TenantId::mint().uuid();
    assert!(matches!(tokens::revoke(&client, nobody).await, Err(tokens::Error::Unknown(_))));

    let listed = tokens::list(&client).await.unwrap();
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().filter(|token| token.last_used_at.is_some()).count() >= 2);
    let shown = format!("{listed:?}{}", serde_json::to_string(&listed).unwrap());
    assert!(!shown.contains(&secret.expose()[3..]));
    site.cloud.stop().await;
}

#[tokio::test]
async fn readiness_follows_the_parts_that_report() {
    let site = Site::new("readiness").await;
    let url = format!("http://{}/readyz", site.cloud.http());
    let ask = async || http().get(&url).send().await.unwrap();
    assert_eq!(ask().await.status(), 200);
    site.cloud.readiness().report("bus", Err("not connected".to_owned()));
    let answer = ask().await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.text().await.unwrap(), "bus: not connected\n");
    site.cloud.readiness().report("bus", Ok(()));
    assert_eq!(ask().await.status(), 200);
    site.cloud.stop().await;
}

#[tokio::test]
async fn the_documentation_is_served() {
    let site = Site::new("docs").await;
    let base = format!("http://{}", site.cloud.http());
    let document = http().get(format!("{base}/api/v1/openapi.json")).send().await.unwrap();
    let document: Value = document.json().await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(&document, cloud::openapi());
    let page = http().get(format!("{base}/api/docs")).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(page.text().await.unwrap().contains("/api/v1/sync/batches"));
    site.cloud.stop().await;
}
