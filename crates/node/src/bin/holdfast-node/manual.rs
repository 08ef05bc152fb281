//! `holdfast-node completions` and `holdfast-node manual`: what the command line says of itself, for shells and for `man`.
//!
//! Made from the same definitions as `--help`. What is no command, such as files and exit codes, is added to the program's own page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::screen;

/// The name of the program, in file names and headings.
const PROGRAM: &str = "holdfast-node";

/// What the program's page has beside its commands.
const MORE: &str = r"
.SH EXIT STATUS
.TP
.B 0
It was done.
.TP
.B 1
It could not be done, or damage was found; what and why is printed.
.TP
.B 2
The command line is wrong. Of
.BR status :
no node answers, and what is shown was read from the spool.
.SH FILES
.TP
.I /etc/holdfast/node.toml
The configuration, as
.B holdfast edge enroll
prints it.
.TP
.I /run/holdfast/sampler.sock
Where samplers connect; for the group holdfast-sampler.
.TP
.I /var/lib/holdfast/spool
The spool.
.SH SEE ALSO
.BR holdfast (1),
.BR holdfast.toml (5)
";

/// Prints what a shell needs.
pub(crate) fn completions(shell: Shell, mut program: Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, PROGRAM, &mut script);
    screen::say(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page for every command into a folder.
pub(crate) fn pages(folder: &Path, mut program: Command) -> Result<ExitCode> {
    program.build();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut left: Vec<(PathBuf, &Command)> = vec![(PROGRAM.into(), &program)];
    let mut written = 0_u64;
    while let Some((name, command)) = left.pop() {
        let file = folder.join(format!("{}.1", name.display()));
        let failed = || format!("cannot write {}", file.display());
        let mut text = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut text).with_context(failed)?;
        if command.get_name() == PROGRAM {
            text.extend_from_slice(MORE.trim_start().as_bytes());
        }
        std::fs::write(&file, text).with_context(failed)?;
        written += 1;
        let below = command.get_subcommands().filter(|below| below.get_name() != "help");
        left.extend(
            below.map(|below| (format!("{}-{}", name.display(), below.get_name()).into(), below)),
        );
    }
    screen::say(&format!("{written} pages in {}\n", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn leaves<'a>(command: &'a Command, found: &mut Vec<&'a Command>) {
        let below: Vec<_> =
            command.get_subcommands().filter(|one| one.get_name() != "help").collect();
        if below.is_empty() {
            found.push(command);
        }
        below.into_iter().for_each(|one| leaves(one, found));
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let program = crate::Cli::command();
        let mut all = Vec::new();
        leaves(&program, &mut all);
        assert!(all.len() > 6, "{}", all.len());
        for command in all {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("holdfast-node "), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn every_command_has_a_page_and_the_programs_own_has_its_files() {
        let folder = tempfile::tempdir().unwrap();
        pages(folder.path(), crate::Cli::command()).unwrap();
        let page = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page("holdfast-node.1").contains(".SH FILES"));
        assert!(page("holdfast-node-spool-verify.1").contains("\\-\\-dir"));
        assert!(page("holdfast-node-config-check.1").contains("\\-\\-json"));
    }
}
