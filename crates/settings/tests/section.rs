//! Precedence, provenance, refusals and secrets, through real files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

use settings::{Error, Key, Kind, Origin, Section, reference};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: &[Key] = &[
    Key::new("node_id", Kind::Text, "The node's name.").required(),
    Key::new("mqtt.address", Kind::Text, "The broker.").default("mqtt://127.0.0.1:1883"),
    Key::new("mqtt.keepalive", Kind::Duration { min_ms: 1_000, max_ms: 600_000 }, "Keepalive.")
        .default("15s"),
    Key::new("mqtt.password", Kind::Text, "The password.").secret(),
    Key::new("ttl_hours", Kind::Integer { min: 1, max: 8760 }, "Cache.")
        .default("72")
        .alias(&["INGRESS_DEDUPE_TTL_HOURS"]),
    Key::new("spool.bytes", Kind::Size { min: 1 << 20, max: 1 << 40 }, "Disk.").default("2GiB"),
    Key::new("tags", Kind::List, "Tags."),
];

fn file(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("holdfast.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn no_env(_: &str) -> Option<String> {
    None
}

fn refusals(result: Result<Section, Error>) -> Vec<String> {
    match result {
        Err(Error::Refused(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("expected refusals, got {other:?}"),
    }
}

#[test]
fn environment_wins_over_file_and_file_over_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "[edge]\nnode_id = 5\n\n[node]\nnode_id = \"barn-7\"\nspool.bytes = 1048576\n\n[node.mqtt]\nkeepalive = \"30s\"\naddress = \"mqtt://b:1\"\n",
    );
    let env = |name: &str| match name {
        "HOLDFAST_NODE_MQTT_ADDRESS" => Some("mqtts://c:2".to_owned()),
        "INGRESS_DEDUPE_TTL_HOURS" => Some("96".to_owned()),
        "HOLDFAST_NODE_SPOOL_BYTES" => Some(String::new()),
        _ => None,
    };
    let section = Section::load(Some(&path), "node", KEYS, env).unwrap();
    assert_eq!(section.get("mqtt.address").unwrap().text(), "mqtts://c:2");
    assert_eq!(
        *section.get("mqtt.address").unwrap().origin(),
        Origin::Env("HOLDFAST_NODE_MQTT_ADDRESS".to_owned())
    );
    let keepalive = section.get("mqtt.keepalive").unwrap();
    assert_eq!(keepalive.duration().unwrap(), Duration::from_secs(30));
    assert_eq!(*keepalive.origin(), Origin::File { path: path.clone(), line: 9 });
    assert_eq!(section.get("ttl_hours").unwrap().parse::<u64>().unwrap(), 96);
    assert_eq!(section.get("spool.bytes").unwrap().size().unwrap(), 1 << 20);
    assert!(section.find("mqtt.password").unwrap().is_none());
    let table = section.render();
    assert!(table.contains("env INGRESS_DEDUPE_TTL_HOURS"), "{table}");
    assert!(table.contains("holdfast.toml:9"), "{table}");
}

#[test]
fn every_problem_is_named_at_once_with_its_place_and_its_cure() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "[node]\nspool.bytes = \"much\"\n[node.mqtt]\nadress = \"mqtt://b:1\"\nkeepalive = \"2h\"\n",
    );
    let problems = refusals(Section::load(Some(&path), "node", KEYS, no_env));
    assert_eq!(problems.len(), 4, "{problems:#?}");
    let all = problems.join("\n");
    assert!(all.contains("node.mqtt.adress") && all.contains("did you mean node.mqtt.address?"));
    assert!(all.contains("holdfast.toml:4"), "{all}");
    assert!(all.contains("node.node_id: is required") && all.contains("HOLDFAST_NODE_NODE_ID"));
    assert!(all.contains("\"2h\": expected a time span from 1s to 10m"), "{all}");
    assert!(all.contains("\"much\": expected a size like"), "{all}");
}

#[test]
fn a_secret_comes_by_value_or_by_file_and_never_shows() {
    let dir = tempfile::tempdir().unwrap();
    let holder = dir.path().join("password");
    std::fs::write(&holder, "hunter2\n").unwrap();
    let text = format!("[node]\nnode_id=\"a\"\nmqtt.password_file={:?}\n", holder);
    let path = file(dir.path(), &text);
    let section = Section::load(Some(&path), "node", KEYS, no_env).unwrap();
    let secret = section.get("mqtt.password").unwrap().secret();
    assert_eq!(secret.expose(), "hunter2");
    assert_eq!(format!("{secret} {secret:?}"), "••• •••");
    for shown in [section.render(), format!("{section:?}")] {
        assert!(!shown.contains("hunter2") && shown.contains("•••"), "{shown}");
    }

    let both = format!("{text}mqtt.password=\"x\"\n");
    let problems = refusals(Section::load(Some(&file(dir.path(), &both)), "node", KEYS, no_env));
    assert!(problems[0].contains("both"), "{problems:?}");

    let env = |name: &str| (name == "HOLDFAST_NODE_MQTT_PASSWORD").then(|| "from-env".to_owned());
    let section = Section::load(Some(&file(dir.path(), &text)), "node", KEYS, env).unwrap();
    assert_eq!(section.get("mqtt.password").unwrap().secret().expose(), "from-env");

    let gone = "[node]\nnode_id=\"a\"\nmqtt.password_file=\"/nonexistent/p\"\n";
    let problems = refusals(Section::load(Some(&file(dir.path(), gone)), "node", KEYS, no_env));
    assert!(problems[0].contains("cannot be read"), "{problems:?}");
}

#[test]
fn lists_come_from_arrays_and_from_commas() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "[node]\nnode_id=\"a\"\ntags=[\"x\",\"y\"]\n");
    let section = Section::load(Some(&path), "node", KEYS, no_env).unwrap();
    assert_eq!(section.get("tags").unwrap().list(), ["x", "y"]);
    let env = |name: &str| (name == "HOLDFAST_NODE_TAGS").then(|| "p, q,".to_owned());
    let section = Section::load(Some(&path), "node", KEYS, env).unwrap();
    assert_eq!(section.get("tags").unwrap().list(), ["p", "q"]);
}

#[test]
fn syntax_errors_and_missing_files_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "[node]\nnode_id = \n");
    let error = Section::load(Some(&path), "node", KEYS, no_env).unwrap_err();
    assert!(matches!(error, Error::Syntax { line: 2, .. }), "{error:?}");
    let error = Section::load(Some(&dir.path().join("gone")), "node", KEYS, no_env).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

#[test]
fn an_undeclared_key_is_a_defect_and_a_late_refusal_has_the_same_form() {
    let env = |name: &str| (name == "HOLDFAST_NODE_NODE_ID").then(|| "a".to_owned());
    let section = Section::load(None, "node", KEYS, env).unwrap();
    assert!(matches!(section.get("nope"), Err(Error::Undeclared { .. })));
    assert!(matches!(section.get("mqtt.password"), Err(Error::Undeclared { .. })));
    let text = section.refuse("node_id", "is taken").to_string();
    assert!(text.contains("node.node_id (env HOLDFAST_NODE_NODE_ID): is taken"), "{text}");
}

#[test]
fn the_reference_lists_every_key() {
    let text = reference("node", KEYS);
    for key in ["`mqtt.keepalive`", "`15s`", "`INGRESS_DEDUPE_TTL_HOURS`", "required"] {
        assert!(text.contains(key), "{key} is missing in\n{text}");
    }
}

/// Looks until it is so; a file is read at most once a second.
#[expect(clippy::disallowed_methods, reason = "the pause of a loop that waits for a condition")]
fn becomes(secret: &settings::LiveSecret, wanted: &str) -> bool {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while secret.current().expose() != wanted {
        if std::time::Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    true
}

#[test]
fn a_secret_of_a_file_follows_it_and_one_that_was_given_stays() {
    const KEYS: &[Key] = &[
        Key::new("token", Kind::Text, "A token.").secret(),
        Key::new("other", Kind::Text, "Another.").secret(),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "tulip\n").unwrap();
    let section = Section::load(None, "role", KEYS, |name| match name {
        "HOLDFAST_ROLE_TOKEN_FILE" => Some(file.display().to_string()),
        "HOLDFAST_ROLE_OTHER" => Some("orchid".to_owned()),
        _ => None,
    })
    .unwrap();
    let live = section.get("token").unwrap().live_secret();
    let given = section.get("other").unwrap().live_secret();
    assert_eq!(live.current().expose(), "tulip");
    let clone = live.clone();
    std::fs::write(&file, "daisy\n").unwrap();
    assert!(becomes(&live, "daisy") && becomes(&clone, "daisy"));
    assert!(!format!("{live:?}").contains("daisy"));
    // While it is being replaced the last good one stays.
    std::fs::write(&file, "").unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(live.current().expose(), "daisy");
    std::fs::write(&file, "rose").unwrap();
    assert!(becomes(&live, "rose"));
    assert_eq!(given.current().expose(), "orchid");
}
