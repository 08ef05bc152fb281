//! What every command promises to whoever types it: examples in its help, JSON for programs, and its exit code on the page of exit codes.

use clap::{Command, CommandFactory};

/// Commands without `--json`, and why they need none.
const NO_JSON: &[(&str, &str)] = &[
    ("up", "runs until it is stopped"),
    ("edge run", "a role"),
    ("edge enroll", "prints a configuration file"),
    ("edge lifecycle", "prints rules in the store's own format"),
    ("cloud run", "a role"),
    ("dlq export", "prints a JSON object a line anyway"),
    ("scada historian run", "a role"),
    ("scada producer run", "a role"),
    ("scada line", "two roles"),
    ("schedule run", "a role"),
    ("schedule alive", "says it by its exit code"),
    ("schedule serve", "a role"),
    ("console run", "a role"),
    ("config reference", "prints a page"),
    ("sim farm", "runs until it is stopped"),
    ("sim model", "speaks JSON anyway"),
    ("completions", "prints a script"),
    ("manual", "prints pages"),
];

/// What a help says that promises an exit code of its own.
const EXITS: &str = "xits with 1";

/// Every command that has none below it, by what is typed after the program's name.
fn leaves() -> Vec<(String, Command)> {
    fn walk(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
        let below: Vec<_> =
            command.get_subcommands().filter(|one| one.get_name() != "help").collect();
        if below.is_empty() {
            found.push((name.to_owned(), command.clone()));
        }
        for one in below {
            walk(one, format!("{name} {}", one.get_name()).trim_start(), found);
        }
    }
    let mut found = Vec::new();
    walk(&crate::Cli::command(), "", &mut found);
    assert!(found.len() > 60, "the walk found only {}", found.len());
    found
}

#[test]
fn every_command_has_examples_in_its_help() {
    for (name, command) in leaves() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Examples:\n"), "holdfast {name} has no examples: {help:?}");
        // The model's stand in a configuration, as a list of words.
        let typed = format!("holdfast {name}");
        let listed = help.replace("\", \"", " ");
        assert!(listed.contains(&typed), "none of the examples of holdfast {name} shows it");
    }
}

#[test]
fn every_command_that_shows_something_has_json() {
    let mut without = Vec::new();
    for (name, command) in leaves() {
        if !command.get_arguments().any(|argument| argument.get_long() == Some("json")) {
            without.push(name);
        }
    }
    let meant: Vec<_> = NO_JSON.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(without, meant, "left: what has no --json; right: what is meant to have none");
}

#[test]
fn every_exit_code_that_a_help_promises_is_on_the_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/exit-codes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut promised = 0;
    for (name, mut command) in leaves() {
        let help = command.render_long_help().to_string();
        if help.split_whitespace().collect::<Vec<_>>().join(" ").contains(EXITS) {
            promised += 1;
            let row = format!("| `holdfast {name}");
            assert!(page.contains(&row), "docs/operations/exit-codes.md has no row {row}`");
        }
    }
    assert!(promised >= 5, "only {promised} commands promise one");
}
