//! Who gets in, what they see, and what they may do.

use api::tokens::{Role, Tenants};
use reqwest::Method;
use serde_json::{Value, json};

use crate::ground::{Ground, LONG, code, token};

/// Every route of the document, with something in its place holders.
fn routes(method: &str) -> Vec<String> {
    let paths = console::openapi()["paths"].as_object().unwrap();
    let found = paths.iter().filter(|(_, operations)| operations.get(method).is_some());
    found
        .map(|(path, _)| {
            let words = path.split('/').map(|word| if word.starts_with('{') { "x" } else { word });
            words.collect::<Vec<_>>().join("/")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_seen_without_a_session_and_nothing_done_by_a_viewer_or_another_page() {
    let ground = Ground::new("console_access").await;
    let stranger = ground.stranger();
    let closed = routes("get");
    assert!(closed.len() > 15);
    for path in closed {
        assert_eq!(
            code(stranger.get(&path).await).await,
            (401, "unauthorized".to_owned()),
            "{path}"
        );
    }
    let viewer = ground.sign_in(Role::Viewer, Tenants::All).await;
    let operator = ground.operator().await;
    let acts: Vec<String> =
        routes("post").into_iter().filter(|path| !path.contains("/sign-")).collect();
    assert!(acts.len() >= 7);
    for path in &acts {
        let refused = code(stranger.post(path, json!({})).await).await;
        assert_eq!(refused, (401, "unauthorized".to_owned()), "{path}");
        let refused = code(viewer.post(path, json!({})).await).await;
        assert_eq!(refused, (403, "forbidden".to_owned()), "{path}");
        // Another page may have the cookie sent along; it cannot say that it is ours.
        for headers in [
            vec![],
            vec![("x-holdfast-csrf", "1")],
            vec![("origin", "http://evil.example")],
            vec![("x-holdfast-csrf", "1"), ("sec-fetch-site", "cross-site")],
            vec![("x-holdfast-csrf", "1"), ("origin", "http://evil.example")],
        ] {
            let bare = operator.bare(Method::POST, path).body("{}");
            let forged =
                headers.into_iter().fold(bare, |one, (name, value)| one.header(name, value));
            let refused = code(forged.send().await.unwrap()).await;
            assert_eq!(refused, (403, "csrf".to_owned()), "{path}");
        }
    }
    let me = viewer.see("/api/v1/me").await;
    assert_eq!((&me["role"], &me["can_act"]), (&json!("viewer"), &json!(false)));
    assert_eq!(me["sites"], json!(["north"]));
    assert_eq!(operator.see("/api/v1/me").await["can_act"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_a_token_and_ends_with_it() {
    let ground = Ground::with("console_session", &[("SESSION_LIFE", "20s")]).await;
    let stranger = ground.stranger();
    let machine = token(&ground.cloud_database, "machine", Role::Edge, Tenants::All).await;
    let sign_in = async |token: &str| {
        code(stranger.post("/api/v1/sign-in", json!({"token": token})).await).await.0
    };
    assert_eq!(sign_in("guess").await, 401);
    assert_eq!(sign_in(&format!("hf_{}", "0".repeat(64))).await, 401);
    assert_eq!(sign_in(&machine).await, 403);

    let secret = token(&ground.cloud_database, "anna", Role::Operator, Tenants::All).await;
    let response = stranger.post("/api/v1/sign-in", json!({"token": secret})).await;
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=20"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "not over plain HTTP");

    let browser = ground.stranger().sign_in(&secret).await;
    let other = ground.stranger().sign_in(&secret).await;
    assert_eq!(browser.post("/api/v1/sign-out", json!({})).await.status(), 204);
    assert_eq!(browser.get("/api/v1/me").await.status(), 401, "signed out");
    assert_eq!(other.get("/api/v1/me").await.status(), 200, "another session stays");

    let client = ground.cloud_database.connect().await.unwrap();
    client
        .execute("UPDATE api_tokens SET revoked_at = now() WHERE name = 'anna'", &[])
        .await
        .unwrap();
    testkit::eventually(LONG, "the token is refused", async || {
        other.get("/api/v1/me").await.status() == 401
    })
    .await
    .unwrap();

    let short = ground.operator().await;
    assert_eq!(short.get("/api/v1/me").await.status(), 200);
    testkit::eventually(LONG, "the session is over", async || {
        short.get("/api/v1/me").await.status() == 401
    })
    .await
    .unwrap();

    let mut last = 0;
    for _ in 0..40 {
        last = sign_in("guess").await;
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429, "attempts are limited");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_kept_apart_from_every_other() {
    let ground = Ground::new("console_page").await;
    let stranger = ground.stranger();
    for path in ["/", "/nodes", "/api/v1/me", "/nothing.js"] {
        let response = stranger.get(path).await;
        let head = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let policy = head("content-security-policy");
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(head("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(head("referrer-policy"), "no-referrer", "{path}");
    }
    let page = stranger.get("/nodes").await;
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let tag = page.headers()["etag"].clone();
    let again = stranger.request(Method::GET, "/").header("if-none-match", tag).send().await;
    assert_eq!(again.unwrap().status(), 304);
    assert_eq!(stranger.get("/nothing.js").await.status(), 404);
    assert_eq!(stranger.get("/api/v1/me").await.headers()["cache-control"], "no-store");
    assert_eq!(stranger.get("/api/v1/nothing").await.status(), 401);
    assert_eq!(stranger.get("/readyz").await.text().await.unwrap(), "ready\n");
    let operator = ground.operator().await;
    let large = operator.request(Method::POST, "/api/v1/verify").body(" ".repeat(100 << 10));
    assert_eq!(code(large.send().await.unwrap()).await, (413, "too_large".to_owned()));
    let odd = operator.post("/api/v1/verify", json!({"site": "north", "more": 1})).await;
    assert_eq!(code(odd).await, (400, "malformed".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_data_is_nowhere() {
    let ground = Ground::new("console_tenants").await;
    ground.ingest(&ground.barn, 1..=20).await;
    let hidden = ground.ingest(&ground.hill, 1..=20).await;
    let all = ground.operator().await;
    testkit::eventually(LONG, "both nodes are seen", async || {
        all.see("/api/v1/nodes").await["total"] == 2
    })
    .await
    .unwrap();
    let mine = Tenants::Only(vec![ground.barn.tenant]);
    let tenant = ground.sign_in(Role::Operator, mine).await;
    let series =
        format!("site:north:{}:{}:temperature", ground.hill.tenant, ground.hill.enrolled.device_id);
    let time = "from=2026-01-01T00:00:00Z&to=2036-01-01T00:00:00Z";
    let mut seen = String::new();
    for path in [
        "/api/v1/me",
        "/api/v1/picture",
        "/api/v1/nodes",
        "/api/v1/flow/history",
        "/api/v1/conservation",
        "/api/v1/conservation/gaps",
        "/api/v1/queues",
        "/api/v1/alerts",
        "/api/v1/explore/series",
        &format!("/api/v1/explore/marks?{time}"),
        "/api/v1/sessions",
    ] {
        seen += &tenant.see(path).await.to_string();
    }
    assert!(seen.contains("barn-1") && seen.contains(&ground.barn.tenant.to_string()));
    for secret in [
        ground.hill.tenant.to_string(),
        ground.hill.enrolled.device_id.to_string(),
        ground.hill.epoch.to_string(),
        "hill-1".to_owned(),
    ] {
        assert!(!seen.contains(&secret), "{secret}");
    }
    let other = ground.hill.tenant;
    for (path, status) in [
        ("/api/v1/nodes/north/hill-1".to_owned(), 404),
        (format!("/api/v1/where/{}", hidden[0]), 404),
        (format!("/api/v1/where/{}?tenant_id={other}", hidden[0]), 403),
        (format!("/api/v1/sessions?tenant_id={other}"), 403),
        (format!("/api/v1/conservation/gaps?tenant_id={other}"), 403),
        (format!("/api/v1/explore/points?series={series}&{time}"), 403),
        (format!("/api/v1/explore/csv?series={series}&{time}"), 403),
        ("/api/v1/alarms".to_owned(), 403),
        (format!("/api/v1/explore/points?series=historian:A:B:C:D&{time}"), 403),
    ] {
        assert_eq!(tenant.get(&path).await.status(), status, "{path}");
    }
    let verify = json!({"site": "north", "tenant_id": other});
    assert_eq!(tenant.post("/api/v1/verify", verify).await.status(), 403);
    let redrive = json!({"tenant_id": other, "dry_run": true});
    assert_eq!(tenant.post("/api/v1/queues/relay/redrive", redrive).await.status(), 403);
    let job = tenant.finish(tenant.post("/api/v1/verify", json!({"site": "north"})).await).await;
    let streams: Vec<&Value> = job["verify"]["streams"].as_array().unwrap().iter().collect();
    assert_eq!(streams.len(), 1, "{job}");
    assert_eq!(streams[0]["stream"], "barn-1");
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(all.get(&path).await.status(), 404, "a job is its owner's");
}
