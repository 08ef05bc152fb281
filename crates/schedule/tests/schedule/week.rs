//! A person's week over HTTP, as the console asks for it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::intake::{Gate, code};
use crate::replay::processed;
use crate::rota::Rota;
use crate::site::USER;

async fn see(gate: &Gate, path: &str) -> Value {
    let (status, answer) = gate.ask(Method::GET, path, &gate.viewer, &[], None).await;
    assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    answer
}

#[tokio::test]
async fn a_week_has_the_versions_of_its_days_and_what_each_changed() {
    let gate = Gate::open("week").await;
    let rota = Rota::default();
    assert_eq!(see(&gate, "/api/v1/users").await, json!({"items": [], "next_after": null}));
    processed(
        &gate.site,
        &rota,
        &[
            &[("8-16", "Nurse", "Ward 3")],
            &[("9:30-17", "Nurse", "Ward 5"), ("22-6", "Watch", "Gate")],
            &[("9:30-17", "Nurse", "Ward 5")],
        ],
    )
    .await;
    let week = see(&gate, &format!("/api/v1/users/{USER}/week?from=2026-11-16")).await;
    assert_eq!((&week["user_id"], &week["from"]), (&json!(USER), &json!("2026-11-16")));
    let days = week["days"].as_array().unwrap();
    let dates: Vec<&str> = days.iter().map(|day| day["schedule_date"].as_str().unwrap()).collect();
    assert_eq!((dates.len(), dates[0], dates[6]), (7, "2026-11-16", "2026-11-22"));
    assert_eq!(days[1]["current_version"], Value::Null);
    assert_eq!(days[1]["versions"], json!([]));
    let monday = &days[0];
    assert_eq!(
        (&monday["current_version"], &monday["timezone"]),
        (&json!(3), &json!("Europe/Berlin"))
    );
    let versions = monday["versions"].as_array().unwrap();
    let types = |version: usize| -> Vec<Value> {
        let changes = versions[version]["changes"].as_array().unwrap();
        changes.iter().map(|change| change["types"].clone()).collect()
    };
    assert_eq!(types(0), [json!(["shift_added"])], "the first is compared with an empty day");
    assert_eq!(
        types(1),
        [json!(["shift_time_changed", "shift_relocated"]), json!(["shift_added"])]
    );
    assert_eq!(types(2), [json!(["shift_removed"])]);
    assert_eq!(versions[2]["changes"][0]["old"]["title"], "watch");
    assert_eq!(versions[2]["changes"][0]["new"], Value::Null);
    assert_eq!(versions[1]["shifts"][0]["start"], "09:30");
    assert_eq!(versions[1]["shifts"].as_array().unwrap().len(), 2);
    let before = see(&gate, &format!("/api/v1/users/{USER}/week?from=2026-11-09")).await;
    assert!(before["days"].as_array().unwrap().iter().all(|day| day["versions"] == json!([])));
    assert_eq!(see(&gate, "/api/v1/summary").await["sessions_waiting"], 0);
    gate.store.stop().await.unwrap();
}

#[tokio::test]
async fn people_are_listed_in_parts_versions_are_bounded_and_what_others_wrote_is_said_so() {
    let gate = Gate::open("week_many").await;
    // A backend of somebody else writes versions itself, the last one in a form of its own.
    gate.site
        .run(
            "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
             SELECT gen_random_uuid(), u, 'pending', now() FROM generate_series(-1, 1) AS u, generate_series(1, 26);
             UPDATE schedule_ingest.capture_session SET state = 'processing', locked_at = now(), locked_by = 'c';
             DO $$ DECLARE s record; BEGIN
                 FOR s IN SELECT id, user_id, row_number() OVER (PARTITION BY user_id ORDER BY id) AS n
                     FROM schedule_ingest.capture_session ORDER BY user_id, n LOOP
                     INSERT INTO schedule_ingest.schedule_version
                         (user_id, schedule_date, version, session_id, payload_hash, payload, created_at)
                     VALUES (s.user_id, '2026-11-18', s.n, s.id, s.n::text,
                         CASE WHEN s.n < 26 THEN jsonb_build_object('schedule_date', '2026-11-18', 'timezone', 'UTC',
                             'shifts', jsonb_build_array(jsonb_build_object('customer', '', 'end', '16:00',
                                 'ends_next_day', false, 'kind', 'regular', 'location', 'ward ' || s.n,
                                 'start', '08:00', 'title', 'nurse')))
                         ELSE '{\"rows\": []}' END, now());
                 END LOOP;
             END $$",
        )
        .await
        .unwrap();
    let first = see(&gate, "/api/v1/users?limit=2").await;
    assert_eq!(first, json!({"items": [-1, 0], "next_after": 0}));
    let rest = see(&gate, "/api/v1/users?limit=2&after=0").await;
    assert_eq!(rest, json!({"items": [1], "next_after": null}));
    let week = see(&gate, "/api/v1/users/-1/week?from=2026-11-16").await;
    let day = &week["days"][2];
    let versions = day["versions"].as_array().unwrap();
    assert_eq!((versions.len(), &day["current_version"]), (20, &json!(26)));
    assert_eq!(
        (&versions[0]["version"], &versions[0]["changes"][0]["types"]),
        (&json!(7), &json!(["shift_relocated"])),
        "the oldest that is shown is compared with one that is not"
    );
    assert_eq!((&versions[19]["shifts"], &versions[19]["changes"]), (&Value::Null, &Value::Null));
    for wrong in [
        "/api/v1/users/anna/week?from=2026-11-16",
        "/api/v1/users/1/week",
        "/api/v1/users/1/week?from=soon",
        "/api/v1/users/1/week?from=9999-12-31",
        "/api/v1/users/1/week?from=2026-11-16&from=2026-11-16",
        "/api/v1/users?limit=0",
        "/api/v1/users?after=x",
        "/api/v1/users?all=1",
    ] {
        let answer = gate.ask(Method::GET, wrong, &gate.viewer, &[], None).await;
        assert_eq!(code(&answer), (400, "malformed"), "{wrong}");
    }
    let closed = gate.ask(Method::GET, "/api/v1/users", "wrong", &[], None).await;
    assert_eq!(code(&closed), (401, "unauthorized"));
    gate.store.stop().await.unwrap();
}
