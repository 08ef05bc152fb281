//! Every route of the OpenAPI document against every kind of token: without one, 401; with one of
//! another tenant, nothing of this tenant. The cases are looked up by the document's routes, so a
//! route without a case fails the test.

use std::collections::BTreeMap;

use cloud::tokens::{Role, Tenants};
use cloud::{Open, ROUTES, openapi};
use event::id::{Epoch, SessionId, TenantId};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::consume_world::{Barn, Replica, options, settled};
use crate::site::{Site, batch, http, placed, token, tombstone};

/// What is asked of a route, and what a token of the tenant itself must find there.
enum Case {
    /// Open to everyone, or to this machine: shows nothing of any tenant.
    Open,
    /// A list or an object of the tenant's: the query beside `tenant_id`.
    Reads(&'static str),
    /// A part of one stream's ledger: the query beside `tenant_id`, stream and epoch, and the list in the answer.
    Ledger(&'static str, &'static str),
    /// Takes events: one of the tenant's is refused.
    Takes,
    /// Answers a site about images that it names.
    Images,
    /// For operators: about the token's own tenants, whichever they are. What they find there is in `operate`.
    Operates,
}

fn case(method: &str, path: &str) -> Option<Case> {
    let list = [
        "/api/v1/telemetry",
        "/api/v1/telemetry/latest",
        "/api/v1/sessions",
        "/api/v1/sessions/{session_id}",
        "/api/v1/media",
        "/api/v1/inference",
        "/api/v1/events",
        "/api/v1/kpis/metrics",
        "/api/v1/kpis/hours",
        "/api/v1/kpis/sessions",
        "/api/v1/kpis/inference",
        "/api/v1/kpis/batches",
        "/api/v1/kpis/images",
        "/api/v1/kpis/sync",
        "/api/v1/sync/journal",
        "/api/v1/ledger/frontiers",
        "/api/v1/ledger/tombstones",
    ];
    let open = ["/metrics", "/healthz", "/readyz", "/api/v1/openapi.json", "/api/docs"];
    match (method, path) {
        ("post", "/api/v1/sync/batches") => Some(Case::Takes),
        ("post", "/api/v1/sync/media") => Some(Case::Images),
        ("get", "/api/v1/ledger/media") => Some(Case::Ledger("media_ids=MEDIA", "media")),
        (
            "post",
            "/api/v1/relay/redrive"
            | "/api/v1/dead-letters/replay"
            | "/api/v1/media/copies/retry"
            | "/api/v1/ledger/again",
        ) => Some(Case::Operates),
        (
            "get",
            "/api/v1/summary"
            | "/api/v1/relay/dead-letters"
            | "/api/v1/dead-letters"
            | "/api/v1/dead-letters/replays/{id}"
            | "/api/v1/media/copies",
        ) => Some(Case::Operates),
        ("get", "/api/v1/ledger/streams") => Some(Case::Ledger("", "streams")),
        ("get", "/api/v1/ledger/blocks") => Some(Case::Ledger("place", "blocks")),
        ("get", "/api/v1/ledger/marks") => Some(Case::Ledger("place&blocks=0", "marks")),
        ("get", "/api/v1/ledger/events/{event_id}") => Some(Case::Ledger("", "stored")),
        ("get", "/api/v1/ledger/hours") => Some(Case::Ledger("hours=HOUR", "hours")),
        ("get", "/api/v1/ledger/stored") => {
            Some(Case::Ledger("hours=HOUR,NEXT&grace_seconds=0", "hours"))
        }
        ("get", "/api/v1/ledger/told") => Some(Case::Ledger("since=2026-01-01T00:00:00Z", "told")),
        ("get", "/api/v1/ledger/held") => Some(Case::Ledger("event_ids=EVENT", "held")),
        ("get", "/api/v1/telemetry/aggregates") => Some(Case::Reads("aggregation_window=1h")),
        ("get", path) if list.contains(&path) => Some(Case::Reads("")),
        ("get", path) if open.contains(&path) => Some(Case::Open),
        _ => None,
    }
}

struct World {
    site: Site,
    session: SessionId,
    epoch: Epoch,
    event: String,
    media: String,
    /// Ids that only the tenant's own data has.
    marks: Vec<String>,
}

async fn world() -> World {
    let site = Site::with("matrix_routes", &[("LIMITS_REQUESTS_PER_TOKEN", "8")]).await;
    let barn = Barn::new(site.tenant);
    let session = SessionId::mint();
    let mut events = barn.day();
    let at = "2026-02-01T13:00:00Z";
    events.push(barn.created(session, event::id::BatchId::mint(), at, 90.0));
    events.push(barn.finalized(session, at, 95.0));
    events.push(barn.media(session, at));
    let image = events.last().map(|event| &event["payload"]["media_id"]);
    let media = image.and_then(Value::as_str).unwrap().to_owned();
    events.push(barn.inference(session, at, 0.8));
    let hour = json!({"metric_type": "temperature", "aggregation_window": "1h", "avg_value": 1.0,
        "min_value": 1.0, "max_value": 1.0, "unit": "C"});
    events.push(barn.event("telemetry.aggregated", None, "2026-02-01T10:00:00Z", hour));
    let replica = Replica::start(&site.database, options());
    replica.deliver(&events).await;
    settled(&site.database).await;
    replica.stop().await;
    let epoch = Epoch::mint();
    let reading = site.reading();
    let event = reading["event_id"].as_str().unwrap().to_owned();
    let mut body = batch(vec![placed(reading, "barn-7", epoch, 1)]);
    body["tombstones"] = json!([tombstone(site.tenant, epoch, 5, 6)]);
    assert_eq!(site.statuses(&body).await, ["accepted"]);
    let marks = vec![
        site.tenant.to_string(),
        barn.farm.to_string(),
        barn.barn.to_string(),
        barn.device.to_string(),
        session.to_string(),
        epoch.to_string(),
        "batch-1".to_owned(),
        "edge-01".to_owned(),
    ];
    World { site, session, epoch, event, media, marks }
}

impl World {
    async fn ask(&self, path: &str, query: &str, bearer: Option<&str>) -> Response {
        let path = path.replace("{session_id}", &self.session.to_string());
        let path = path.replace("{event_id}", &self.event);
        assert!(!path.contains('{'), "{path}: the case does not say what stands there");
        let url = format!("http://{}{path}?{query}", self.site.cloud.http());
        let request = http().request(Method::GET, url);
        let request = match bearer {
            Some(secret) => request.bearer_auth(secret),
            None => request,
        };
        request.send().await.unwrap()
    }

    async fn assert_shows_nothing(&self, answer: Response, what: &str) -> Value {
        let text = answer.text().await.unwrap();
        // The session's id stands in the path, and nowhere in an answer to it either.
        for mark in &self.marks {
            assert!(!text.contains(mark), "{what} shows {mark}: {text}");
        }
        serde_json::from_str(&text).unwrap_or_default()
    }
}

#[tokio::test]
async fn no_route_shows_a_tenant_to_another() {
    let world = world().await;
    let client = world.site.client().await;
    let (ours, theirs) = (world.site.tenant, TenantId::mint());
    let both = Tenants::Only(vec![theirs, TenantId::mint()]);
    let (_, viewer) = token(&client, Role::Viewer, Tenants::Only(vec![ours])).await;
    let mut strangers = Vec::new();
    for role in Role::ALL {
        strangers.push((role, token(&client, role, Tenants::Only(vec![theirs])).await.1));
        strangers.push((role, token(&client, role, both.clone()).await.1));
    }
    let mut seen = BTreeMap::new();
    for (path, methods) in openapi()["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let what = format!("{method} {path}");
            let Some(case) = case(method, path) else {
                panic!("{what} has no case: say what another tenant's token must not find there");
            };
            seen.insert(what.clone(), ());
            match case {
                Case::Open => {
                    let answer = world.ask(path, "", None).await;
                    assert_eq!(answer.status(), 200, "{what}");
                    world.assert_shows_nothing(answer, &what).await;
                }
                Case::Takes => takes(&world, path, &strangers).await,
                Case::Images => images(&world, path, &strangers).await,
                Case::Operates => operates(&world, method, path, &strangers).await,
                Case::Ledger(query, list) => {
                    let place = format!("stream=barn-7&epoch={}", world.epoch);
                    let id: uuid::Uuid = world.event.parse().unwrap();
                    let hour = (id.as_u128() >> 80) / event::ledger::HOUR_MS;
                    let query = query.replace("place", &place).replace("EVENT", &world.event);
                    let query = query.replace("HOUR", &hour.to_string());
                    // An event may be taken in after the end of the hour in which it was made.
                    let query = query.replace("NEXT", &(hour + 1).to_string());
                    let query = query.replace("MEDIA", &world.media);
                    ledger(&world, path, (&query, list), &viewer, &strangers, theirs).await;
                }
                Case::Reads(query) => {
                    reads(&world, path, query, &viewer, &strangers, theirs).await;
                }
            }
        }
    }
    // The document has every route: a test beside it says so.
    assert_eq!(seen.len(), ROUTES.len());
    world.site.cloud.stop().await;
}

async fn operates(world: &World, method: &str, path: &str, strangers: &[(Role, String)]) {
    let url = format!("http://{}{}", world.site.cloud.http(), path.replace("{id}", "1"));
    let method: Method = method.to_uppercase().parse().unwrap();
    let acts = method == Method::POST;
    let request = || {
        let body = json!({"tenant_id": world.site.tenant, "dry_run": true});
        http().request(method.clone(), &url).json(&body)
    };
    assert_eq!(request().send().await.unwrap().status(), 401, "{path}");
    for (role, secret) in strangers {
        let what = format!("{path} {role}");
        let answer = request().bearer_auth(secret).send().await.unwrap();
        let expected = if acts || *role == Role::Edge { 403 } else { 200 };
        // How a replay goes is for those who may begin one, and there is none of theirs.
        let expected = match (path.contains("{id}"), role) {
            (true, Role::Viewer) => 403,
            (true, Role::Admin | Role::Operator) => 404,
            _ => expected,
        };
        assert_eq!(answer.status(), expected, "{what}");
        world.assert_shows_nothing(answer, &what).await;
    }
}

async fn reads(
    world: &World,
    path: &str,
    query: &str,
    viewer: &str,
    strangers: &[(Role, String)],
    theirs: TenantId,
) {
    let ours = format!("{query}&tenant_id={}", world.site.tenant);
    let closed = ROUTES.iter().any(|(_, route, open)| *route == path && *open == Open::Never);
    assert!(closed, "{path}");
    let answer = world.ask(path, &ours, None).await;
    assert_eq!(answer.status(), 401, "{path}");
    // Its own token finds something, so that finding nothing below means something.
    let answer = world.ask(path, query, Some(viewer)).await;
    assert_eq!(answer.status(), 200, "{path}");
    let text = answer.text().await.unwrap();
    assert!(world.marks.iter().any(|mark| text.contains(mark)), "{path}: {text}");
    for (role, secret) in strangers {
        let what = format!("{path} {role}");
        let answer = world.ask(path, &ours, Some(secret)).await;
        assert_eq!(answer.status(), 403, "{what}");
        world.assert_shows_nothing(answer, &what).await;
        let answer = world.ask(path, &format!("{query}&tenant_id={theirs}"), Some(secret)).await;
        let expected = match (role, path.contains('{')) {
            (Role::Edge, _) => 403,
            (_, true) => 404,
            (_, false) => 200,
        };
        assert_eq!(answer.status(), expected, "{what}");
        let said = world.assert_shows_nothing(answer, &what).await;
        if expected == 200 {
            assert_eq!(said["items"], json!([]), "{what}");
        }
    }
}

async fn ledger(
    world: &World,
    path: &str,
    (query, list): (&str, &str),
    viewer: &str,
    strangers: &[(Role, String)],
    theirs: TenantId,
) {
    let ours = format!("{query}&tenant_id={}", world.site.tenant);
    assert_eq!(world.ask(path, &ours, None).await.status(), 401, "{path}");
    let answer = world.ask(path, query, Some(viewer)).await;
    assert_eq!(answer.status(), 200, "{path}");
    let said: Value = answer.json().await.unwrap();
    assert!(
        said[list].is_array() && (list == "stored" || said[list] != json!([])),
        "{path} {said}"
    );
    for (role, secret) in strangers {
        let what = format!("{path} {role}");
        let answer = world.ask(path, &ours, Some(secret)).await;
        assert_eq!(answer.status(), 403, "{what}");
        world.assert_shows_nothing(answer, &what).await;
        let answer = world.ask(path, &format!("{query}&tenant_id={theirs}"), Some(secret)).await;
        let expected = match (role, path.contains('{')) {
            (Role::Edge, _) => 403,
            (_, true) => 404,
            (_, false) => 200,
        };
        assert_eq!(answer.status(), expected, "{what}");
        let said = world.assert_shows_nothing(answer, &what).await;
        assert!(expected != 200 || said[list] == json!([]), "{what}: {said}");
    }
}

async fn images(world: &World, path: &str, strangers: &[(Role, String)]) {
    let url = format!("http://{}{path}", world.site.cloud.http());
    let ask = || {
        let image = json!({"tenant_id": world.site.tenant, "media_id": world.media});
        http().post(&url).json(&json!({"v": 1, "media": [image]}))
    };
    assert_eq!(ask().send().await.unwrap().status(), 401);
    let (client, tenants) = (world.site.client().await, Tenants::Only(vec![world.site.tenant]));
    let (_, own) = token(&client, Role::Edge, tenants).await;
    let said: Value = ask().bearer_auth(own).send().await.unwrap().json().await.unwrap();
    let found = (&said["copies"], &said["media"][0]["copy_status"]);
    assert_eq!(found, (&json!(false), &json!("pending")), "{said}");
    for (role, secret) in strangers {
        let answer = ask().bearer_auth(secret).send().await.unwrap();
        let allowed = matches!(role, Role::Edge | Role::Admin);
        assert_eq!(answer.status(), if allowed { 200 } else { 403 }, "{role}");
        let said = world.assert_shows_nothing(answer, path).await;
        assert!(!allowed || said["media"] == json!([]), "{role}: {said}");
    }
}

async fn takes(world: &World, path: &str, strangers: &[(Role, String)]) {
    let url = format!("http://{}{path}", world.site.cloud.http());
    let body = batch(vec![json!({"event": world.site.reading()})]).to_string();
    let send = async |bearer: Option<&str>| {
        let request = http().post(&url).body(body.clone());
        let request = match bearer {
            Some(secret) => request.bearer_auth(secret),
            None => request,
        };
        request.header("content-type", "application/json").send().await.unwrap()
    };
    assert_eq!(send(None).await.status(), 401);
    for (role, secret) in strangers {
        let answer = send(Some(secret)).await;
        if matches!(role, Role::Edge | Role::Admin) {
            let said: Value = answer.json().await.unwrap();
            assert_eq!(said["results"][0]["code"], "tenant_forbidden", "{role}");
        } else {
            assert_eq!(answer.status(), 403, "{role}");
        }
    }
}
