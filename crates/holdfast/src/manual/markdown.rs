//! The command line as one Markdown page.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// What stands above the commands.
const HEAD: &str = "# The command line

This page is printed by `holdfast manual --markdown`; a test keeps it so.

## Exit codes

[Exit codes](../operations/exit-codes.md) has them for every command and for roles under systemd.

## Options of every command

";

/// The page. The command is built.
pub(super) fn page(program: &Command) -> String {
    let mut text = HEAD.to_owned();
    let global: Vec<&Arg> = program.get_arguments().filter(|arg| arg.is_global_set()).collect();
    list(&mut text, &global);
    text.push_str("\n## Commands\n\n| command | |\n|---|---|\n");
    for command in shown(program) {
        let name = command.get_name();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "| [`holdfast {name}`](#holdfast-{name}) | {} |", cell(&about));
    }
    for command in shown(program) {
        section(&mut text, command, &format!("holdfast {}", command.get_name()), 2);
    }
    text
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

fn section(text: &mut String, command: &Command, name: &str, depth: usize) {
    let _ = write!(text, "\n{} `{name}`\n\n", "#".repeat(depth));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let _ = writeln!(text, "{about}\n");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let _ = writeln!(text, "```\n{}\n```", usage.trim());
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set())
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        .collect();
    if !own.is_empty() {
        text.push('\n');
        list(text, &own);
    }
    if let Some(examples) = command.get_after_help() {
        let _ = writeln!(text, "\n```\n{}\n```", examples.to_string().trim());
    }
    for below in shown(command) {
        section(text, below, &format!("{name} {}", below.get_name()), depth + 1);
    }
}

fn list(text: &mut String, arguments: &[&Arg]) {
    text.push_str("| option | meaning | default | environment |\n|---|---|---|---|\n");
    for arg in arguments {
        let meaning = arg.get_long_help().or(arg.get_help());
        let mut meaning = meaning.map(ToString::to_string).unwrap_or_default();
        let words: Vec<String> = match arg.get_action().takes_values() {
            true => arg.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect(),
            false => Vec::new(),
        };
        if !words.is_empty() {
            // The derive takes the full stop off a line of help.
            let stop = if meaning.ends_with(['.', '!', '?']) { "" } else { "." };
            let _ = write!(meaning, "{stop} One of `{}`.", words.join("`, `"));
        }
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = match defaults.is_empty() || !arg.get_action().takes_values() {
            true => String::new(),
            false => format!("`{}`", defaults.join(",")),
        };
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            cell(&written(arg)),
            cell(&meaning),
            cell(&default),
            variable.unwrap_or_default()
        );
    }
}

/// The argument as it is typed.
fn written(arg: &Arg) -> String {
    let value = match arg.get_value_names() {
        _ if !arg.get_action().takes_values() => String::new(),
        Some(names) => names.join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    };
    match (arg.get_long(), arg.is_required_set()) {
        (Some(long), _) if value.is_empty() => format!("--{long}"),
        (Some(long), _) => format!("--{long} {value}"),
        (None, true) => value,
        (None, false) => format!("[{value}]"),
    }
}

/// Text that stays in its cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
