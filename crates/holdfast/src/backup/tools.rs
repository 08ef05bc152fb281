//! Postgres' own programs. They find the database by environment, so that a password is on no command line.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::{Child, Command};

/// The most of a program's words that an error repeats.
const SAID: usize = 2_000;

fn program(name: &'static str, options: &pg::Options) -> anyhow::Result<Command> {
    let mut command = Command::new(rig::postgres_program(name)?);
    command.envs(options.environment()?);
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

/// The version of `pg_dump`, as it says it.
pub(super) async fn dump_version() -> anyhow::Result<String> {
    let output = Command::new(rig::postgres_program("pg_dump")?).arg("--version").output().await?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Starts a dump of a snapshot.
pub(super) fn start_dump(
    options: &pg::Options,
    snapshot: &str,
    jobs: u16,
    into: &Path,
) -> anyhow::Result<Child> {
    let mut command = program("pg_dump", options)?;
    command.args(["--format=directory", "--compress=6", "--no-owner", "--no-privileges"]);
    command.arg(format!("--jobs={jobs}")).arg(format!("--snapshot={snapshot}"));
    command.arg("--file").arg(into);
    command.spawn().context("start pg_dump")
}

/// Waits for a program and repeats what it said if it failed.
pub(super) async fn finish(name: &str, child: Child) -> anyhow::Result<()> {
    let output = child.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(SAID).collect();
    anyhow::ensure!(output.status.success(), "{name} failed ({}): {said}", output.status);
    Ok(())
}

/// Reads the table of contents of a dump; returns how many entries it has.
pub(super) async fn contents(dump: &Path) -> anyhow::Result<usize> {
    let output = Command::new(rig::postgres_program("pg_restore")?)
        .arg("--list")
        .arg(dump)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .await
        .context("start pg_restore")?;
    let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(SAID).collect();
    anyhow::ensure!(output.status.success(), "pg_restore --list failed: {said}");
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter(|line| !line.starts_with(';')).count())
}

/// Restores a dump into an empty database.
pub(super) async fn restore(options: &pg::Options, jobs: u16, dump: &Path) -> anyhow::Result<()> {
    let mut command = program("pg_restore", options)?;
    let environment = options.environment()?;
    let database = environment.iter().find(|(name, _)| *name == "PGDATABASE");
    let (_, database) = database.context("the address names no database")?;
    command.args(["--no-owner", "--no-privileges", "--exit-on-error"]);
    command.arg(format!("--jobs={jobs}")).arg("--dbname").arg(database).arg(dump);
    finish("pg_restore", command.spawn().context("start pg_restore")?).await
}
