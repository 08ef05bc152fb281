//! `holdfast completions` and `holdfast manual`: what the command line says of itself, for shells, for `man`, and as a page; and the roles'
//! HTTP APIs as a page.
//!
//! Everything is made from the same definitions as `--help` and as the roles' OpenAPI documents, so it cannot say anything else. Tests keep
//! `docs/reference/cli.md` and `docs/reference/api.md` equal to what the binary prints.

mod api;
mod markdown;
#[cfg(test)]
mod promises;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use crate::output::say;

/// The name of the program, in file names and headings.
const PROGRAM: &str = "holdfast";

/// `holdfast completions`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast completions bash > /etc/bash_completion.d/holdfast
  holdfast completions zsh > ~/.zfunc/_holdfast
  holdfast completions fish > ~/.config/fish/completions/holdfast.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// `holdfast manual`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast manual --out /usr/local/share/man/man1
  holdfast manual --markdown > docs/reference/cli.md
  holdfast manual --api > docs/reference/api.md")]
#[command(group = clap::ArgGroup::new("form").required(true))]
pub(crate) struct ManualArgs {
    /// Write a man page for every command into this folder.
    #[arg(long, value_name = "DIR", group = "form")]
    out: Option<PathBuf>,
    /// Print every command as one Markdown page.
    #[arg(long, group = "form")]
    markdown: bool,
    /// Print every route of every role's HTTP API as one Markdown page.
    #[arg(long, group = "form")]
    api: bool,
}

/// Prints what a shell needs.
pub(crate) fn completions(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, PROGRAM, &mut script);
    say(&String::from_utf8(script)?)
}

/// Writes the pages.
pub(crate) fn run(args: &ManualArgs, mut program: Command) -> anyhow::Result<()> {
    if args.api {
        return say(&api::page());
    }
    program.build();
    let Some(folder) = &args.out else {
        return say(&markdown::page(&program));
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let pages = write_pages(&program, PROGRAM, folder)?;
    say(&format!("{pages} pages in {}\n", folder.display()))
}

/// Writes the page of a command and of those below it; returns how many.
fn write_pages(command: &Command, name: &str, folder: &Path) -> anyhow::Result<usize> {
    let file = folder.join(format!("{name}.1"));
    let failed = || format!("cannot write {}", file.display());
    let mut text = Vec::new();
    // Once built, a command's page is called what is typed, with a dash for each space, as git's are.
    clap_mangen::Man::new(command.clone()).render(&mut text).with_context(failed)?;
    std::fs::write(&file, text).with_context(failed)?;
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        pages += write_pages(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(pages)
}
