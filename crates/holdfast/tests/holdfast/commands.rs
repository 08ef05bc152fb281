//! What the small commands print.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::{Command, Output};

fn holdfast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).args(arguments).output().unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn the_configuration_page_is_what_the_code_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
    let page = std::fs::read_to_string(page).unwrap();
    let now = String::from_utf8(holdfast(&["config", "reference"]).stdout).unwrap();
    assert!(
        page.ends_with(&now),
        "run: holdfast config reference, and put it into docs/reference/config.md"
    );
}

#[test]
fn config_check_shows_origins_and_hides_secrets() {
    let config = file(
        "[edge]\ndatabase.url = \"postgres://u:tulip@db/farm\"\nmqtt.password = \"daffodil\"\n",
    );
    let out = holdfast(&["config", "check", "--config", config.path().to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success());
    assert!(text.contains("edge.ingress.gather") && text.contains("default"), "{text}");
    assert!(text.contains(":2"), "the line of the file: {text}");
    assert!(!text.contains("tulip") && !text.contains("daffodil"), "{text}");

    let out = holdfast(&["config", "check", "--json", "--config", config.path().to_str().unwrap()]);
    let all: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
    let of = |key: &str| all.iter().find(|one| one["key"] == key).unwrap();
    assert_eq!(of("edge.ingress.gather")["origin"], "default");
    assert!(of("edge.database.url")["origin"].as_str().unwrap().ends_with(":2"), "{all:#?}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains("tulip") && !text.contains("daffodil"), "{text}");
}

#[test]
fn config_check_names_every_problem_and_what_would_be_right() {
    let config =
        file("[edge]\ndatabase.url = \"x\"\nmqtt.adress = \"mqtt://a:1\"\ndedupe.ttl_hours = 0\n");
    let out = holdfast(&["config", "check", "--config", config.path().to_str().unwrap()]);
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("did you mean edge.mqtt.address?"), "{text}");
    assert!(text.contains("expected a whole number from 1 to 8760"), "{text}");

    let config = file("[egde]\n");
    let out = holdfast(&["config", "check", "--config", config.path().to_str().unwrap()]);
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(text.contains("[egde] is no role; there are [node], [edge], [cloud]"), "{text}");
}

#[test]
fn ids_outside_their_grammar_do_not_get_past_the_command_line() {
    for bad in ["a/b", "+", "#", "Barn", "", "-a", "holdfast edge"] {
        let tenant = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002";
        let out = holdfast(&["edge", "enroll", "--tenant", tenant, "--", bad]);
        assert_eq!(out.status.code(), Some(2), "{bad:?}: {out:?}");
    }
}

#[tokio::test]
async fn a_token_is_shown_once_listed_without_itself_and_revoked() {
    let database = testkit::Database::empty("tokens").await.unwrap();
    let config = file(&format!("[cloud]\ndatabase.url = {:?}\n", database.url()));
    let config = config.path().to_str().unwrap();
    let tenant = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002";
    let made = holdfast(&[
        "token", "create", "north", "--role", "edge", "--tenant", tenant, "--config", config,
    ]);
    assert!(made.status.success(), "{made:?}");
    let secret = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(secret.starts_with("hf_"), "{secret}");

    let listed = holdfast(&["token", "list", "--json", "--config", config]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(!text.contains(&secret) && text.contains("north"), "{text}");
    let tokens: serde_json::Value = serde_json::from_str(&text).unwrap();
    let id = tokens[0]["id"].as_str().unwrap();
    let gone = holdfast(&["token", "revoke", id, "--config", config]);
    assert!(gone.status.success(), "{gone:?}");
    let made = holdfast(&[
        "token",
        "create",
        "ci",
        "--role",
        "viewer",
        "--all-tenants",
        "--json",
        "--config",
        config,
    ]);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert!(made["secret"].as_str().unwrap().starts_with("hf_"), "{made}");
    let id = made["id"].as_str().unwrap();
    let gone = holdfast(&["token", "revoke", id, "--json", "--config", config]);
    let gone: serde_json::Value = serde_json::from_slice(&gone.stdout).unwrap();
    assert!(gone["id"] == id && !gone["revoked_at"].is_null(), "{gone}");
    let table = holdfast(&["token", "list", "--config", config]);
    assert!(String::from_utf8(table.stdout).unwrap().contains("revoked"));

    let nobody = holdfast(&["token", "create", "x", "--role", "edge", "--config", config]);
    assert_eq!(nobody.status.code(), Some(2), "a token names its tenants, or all of them");
}

#[tokio::test]
async fn a_node_that_is_shut_out_and_let_in_again_is_told_in_words_and_in_json() {
    let database = testkit::Database::empty("shut_out").await.unwrap();
    let config = file(&format!("[edge]\ndatabase.url = {:?}\n", database.url()));
    let config = config.path().to_str().unwrap();
    let tenant = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002";
    let made = holdfast(&["edge", "enroll", "barn-7", "--tenant", tenant, "--config", config]);
    assert!(made.status.success(), "{made:?}");
    let says = |verb: &str| {
        let done = holdfast(&["edge", verb, "barn-7", "--config", config]);
        String::from_utf8(done.stdout).unwrap()
    };
    let json = |verb: &str| {
        let done = holdfast(&["edge", verb, "barn-7", "--json", "--config", config]);
        serde_json::from_slice::<serde_json::Value>(&done.stdout).unwrap()
    };
    assert_eq!(says("disable"), "barn-7 is shut out\n");
    assert!(!json("disable")["disabled_at"].is_null());
    assert_eq!(says("enable"), "barn-7 is let in again\n");
    assert!(json("enable")["disabled_at"].is_null());
    assert_eq!(says("clear-flag"), "barn-7 has no flag any more\n");
    assert_eq!(json("clear-flag")["node_id"], "barn-7");
    let nobody = holdfast(&["edge", "disable", "barn-8", "--json", "--config", config]);
    assert_eq!((nobody.status.code(), nobody.stdout.len()), (Some(1), 0), "{nobody:?}");
}
