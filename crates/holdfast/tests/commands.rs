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
    let table = holdfast(&["token", "list", "--config", config]);
    assert!(String::from_utf8(table.stdout).unwrap().contains("revoked"));

    let nobody = holdfast(&["token", "create", "x", "--role", "edge", "--config", config]);
    assert_eq!(nobody.status.code(), Some(2), "a token names its tenants, or all of them");
}
