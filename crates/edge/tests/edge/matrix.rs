//! Every route of the OpenAPI document without a token, and the ledger's routes with a token of another tenant.

use std::collections::BTreeSet;

use api::tokens::{Role, Tenants};
use edge::{Open, ROUTES, openapi};
use event::id::{EventId, MediaId, TenantId};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::site::{Site, config, http, start};
use crate::sync_admin::Asker;

#[tokio::test]
async fn no_route_of_the_document_answers_without_a_token_but_the_open_ones() {
    let site = Site::new("matrix_open").await;
    let edge = start(&config(site.database.url(), &[])).await;
    let mut walked = BTreeSet::new();
    for (path, methods) in openapi()["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let known = ROUTES.iter().find(|(m, p, _)| *m == method && p == path);
            let open = known.is_some_and(|(_, _, open)| *open != Open::Never);
            // Backfill knows its senders by the nodes' own secrets.
            assert!(known.is_some() || path.ends_with("/backfill"), "{method} {path}");
            let at =
                path.replace("{node_id}", "barn-1").replace("{id}", &EventId::mint().to_string());
            for guess in [None, Some("guess"), Some(&*format!("hf_{:064x}", 7))] {
                let mut request =
                    http().request(method.clone(), format!("http://{}{at}", edge.http()));
                if let Some(guess) = guess {
                    request = request.bearer_auth(guess);
                }
                let status = request.body("{}").send().await.unwrap().status();
                let refused = status == StatusCode::UNAUTHORIZED;
                assert_eq!(refused, !open, "{method} {path} with {guess:?}: {status}");
            }
            walked.insert((method.to_string(), path.clone()));
        }
    }
    for (method, path, _) in ROUTES.iter() {
        let there = walked.contains(&(method.to_string(), (*path).to_owned()));
        assert!(there, "{method} {path} is not in the document");
    }
    edge.stop().await;
}

/// Everything that a change could change.
async fn everything(site: &Site) -> String {
    site.text(
        "SELECT concat((SELECT string_agg(o::text, ' ' ORDER BY id) FROM sync_outbox o),
            (SELECT string_agg(m::text, ' ' ORDER BY id) FROM media_objects m),
            (SELECT count(*) FROM sync_audit), (SELECT count(*) FROM ledger_resend))",
    )
    .await
}

#[tokio::test]
async fn the_ledger_of_events_and_images_is_its_tenants_own() {
    let site = Site::new("matrix_ledger").await;
    let (ours, theirs) = (TenantId::mint(), TenantId::mint());
    let (event, image) = (EventId::mint(), MediaId::mint());
    let client = site.client().await;
    let add =
        "INSERT INTO sync_outbox (id, tenant_id, event_type, occurred_at, payload_json, status)
        VALUES ($1, $2, 'media.stored', now(), jsonb_build_object('media_id', $3::uuid), 'acked')";
    client.execute(add, &[&event.uuid(), &ours.uuid(), &image.uuid()]).await.unwrap();
    let add = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket, object_key, mime_type,
            size_bytes, captured_at, status, stored_at, expires_at)
        VALUES ($1, $2, $1, $1, $1, 'media', 'tenants/a', 'image/jpeg', 8, now(), 'stored', now(), now())";
    client.execute(add, &[&image.uuid(), &ours.uuid()]).await.unwrap();
    let edge = start(&config(site.database.url(), &[])).await;
    let owner = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![ours])).await;
    let stranger = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![theirs])).await;

    let (_, page) = owner.get("/api/v1/ledger/hours").await;
    let hour = page["hours"][0]["hour"].as_i64().expect("the owner sees the hour");
    let lists = [
        ("hours", String::new(), "hours"),
        ("acked", format!("&hour={hour}"), "events"),
        ("media", String::new(), "media"),
        ("media/events", format!("&media_ids={image}"), "events"),
    ];
    for (list, more, name) in &lists {
        let path = format!("/api/v1/ledger/{list}?tenant_id={ours}{more}");
        let (status, page) = owner.get(&path).await;
        let some = page[name].as_array().is_some_and(|found| !found.is_empty());
        assert!(status == StatusCode::OK && some, "{list}: {status} {page}");
        let (status, said) = stranger.get(&path).await;
        assert_eq!(
            (status, &said["error"]["field"]),
            (StatusCode::FORBIDDEN, &json!("tenant_id")),
            "{list}"
        );
        // Without naming the tenant, or naming their own, they see what is theirs: nothing.
        let path = format!("/api/v1/ledger/{list}?tenant_id={theirs}{more}");
        let (status, page) = stranger.get(&path).await;
        assert_eq!((status, &page[name]), (StatusCode::OK, &json!([])), "{list}");
    }
    for list in ["hours", "media"] {
        let (_, page) = stranger.get(&format!("/api/v1/ledger/{list}")).await;
        assert_eq!(page[list], json!([]), "{list}");
    }
    let before = everything(&site).await;
    for (route, id) in [("resend", event.to_string()), ("media/tell", image.to_string())] {
        let path = format!("/api/v1/ledger/{route}");
        let (status, _) = stranger.post(&path, json!({"tenant_id": ours, "ids": [id]})).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{route}");
        let (status, done) = stranger.post(&path, json!({"tenant_id": theirs, "ids": [id]})).await;
        assert_eq!((status, &done["sent"]), (StatusCode::OK, &json!(0)), "{route}: {done}");
        assert_eq!(everything(&site).await, before, "{route}");
    }
    for (route, id) in [("media/tell", image.to_string()), ("resend", event.to_string())] {
        let path = format!("/api/v1/ledger/{route}");
        let (_, done) = owner.post(&path, json!({"tenant_id": ours, "ids": [id]})).await;
        assert_eq!(done["sent"], 1, "{route}: {done}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_question_about_the_ledger_is_named() {
    let site = Site::new("matrix_fields").await;
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::All).await;
    let field = |(status, said): (StatusCode, Value)| {
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        said["error"]["field"].as_str().unwrap_or_default().to_owned()
    };
    for (list, parameter) in
        [("streams", "strem"), ("blocks", "blok"), ("hours", "hour"), ("media", "medai")]
    {
        let path = format!("/api/v1/ledger/{list}?{parameter}=1");
        assert_eq!(field(operator.get(&path).await), parameter, "{list}");
    }
    let epoch = event::id::Epoch::mint();
    for (body, named) in [
        (json!({"stream": "barn-1"}), "epoch"),
        (json!({"stream": "barn-1", "epoch": epoch, "adpot": [[1, 2]]}), "adpot"),
        (json!({"stream": "Barn 1", "epoch": epoch}), "stream"),
        (json!({"stream": "barn-1", "epoch": epoch, "dry_run": 1}), "dry_run"),
    ] {
        assert_eq!(field(operator.post("/api/v1/ledger/repair", body).await), named);
    }
    for route in ["resend", "media/tell"] {
        let path = format!("/api/v1/ledger/{route}");
        let body = json!({"tenant_id": TenantId::mint(), "ids": ["x"]});
        assert_eq!(field(operator.post(&path, body).await), "ids[0]", "{route}");
        assert_eq!(field(operator.post(&path, json!({"ids": []})).await), "tenant_id", "{route}");
    }
    edge.stop().await;
}
