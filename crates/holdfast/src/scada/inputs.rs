//! `holdfast scada inputs …`: looking at devices while a site is set up.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use ::scada::inputs::{Mapping, Probe, Probed, make_certificate};
use clap::Subcommand;
use event::QualityCode;

use crate::output::{say, say_json};
use crate::table;

/// How long a table stays before the next one.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest trouble that is shown in a table.
const TROUBLE_CHARS: usize = 60;
/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// `holdfast scada inputs …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read every tag of a mapping file and show what came.
    ///
    /// On a terminal, again and again until Ctrl-C. With --once, or when the output goes elsewhere, once; then a tag that cannot be
    /// read makes the command fail. Nothing is stored or sent.
    #[command(after_help = "Examples:
  holdfast scada inputs check inputs.toml
  holdfast scada inputs check inputs.toml --once --json")]
    Check(CheckArgs),
    /// Make our certificate for OPC UA servers that ask for one, in a new folder; a mapping names it as pki_folder.
    ///
    /// It signs itself. Give own/cert.der to the server's operator, to be trusted there. The server's own certificate comes into the
    /// folder rejected at the first connection: compare it, and move it to trusted.
    #[command(after_help = "Examples:
  holdfast scada inputs certificate --out pki
  holdfast scada inputs certificate --out pki --host node-7.plant.local --days 730")]
    Certificate(CertificateArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CertificateArgs {
    /// The folder.
    #[arg(long)]
    out: PathBuf,
    /// A name or address of this machine, beside localhost. May be given again.
    #[arg(long)]
    host: Vec<String>,
    /// How long it is valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// JSON instead of sentences.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The mapping file; docs/examples/inputs.toml is one.
    file: PathBuf,
    /// Read once.
    #[arg(long)]
    once: bool,
    /// JSON instead of a table; once.
    #[arg(long)]
    json: bool,
}

/// Runs an `inputs` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Check(args) => check(args).await,
        Command::Certificate(args) => certificate(args),
    }
}

fn certificate(args: CertificateArgs) -> anyhow::Result<()> {
    let hosts: Vec<String> = ["localhost".to_owned()].into_iter().chain(args.host).collect();
    make_certificate(&args.out, &hosts, args.days)?;
    if args.json {
        let [own, trusted, rejected] =
            ["own/cert.der", "trusted", "rejected"].map(|name| args.out.join(name));
        return say_json(&serde_json::json!({
            "pki_folder": args.out, "certificate": own, "trusted": trusted, "rejected": rejected
        }));
    }
    let folder = args.out.display();
    say(&format!(
        "{folder}/own/cert.der is ours: the server must trust it. Set pki_folder = \"{folder}\" and security in the mapping;\n\
         the server's certificate comes into {folder}/rejected at the first connection: compare it, and move it to {folder}/trusted.\n"
    ))
}

async fn check(args: CheckArgs) -> anyhow::Result<()> {
    let mut probe = Probe::new(Mapping::load(&args.file)?);
    let once = args.once || args.json || !std::io::stdout().is_terminal();
    let outcome =
        if once { show_once(&mut probe, args.json).await } else { watch(&mut probe).await };
    probe.close().await;
    outcome
}

async fn show_once(probe: &mut Probe, json: bool) -> anyhow::Result<()> {
    let tags = probe.read().await;
    let text = if json { serde_json::to_string_pretty(&tags)? } else { shown(&tags) };
    say(&format!("{text}\n"))?;
    let bad = tags.iter().filter(|tag| tag.quality == QualityCode::Bad).count();
    anyhow::ensure!(
        bad == 0,
        "{bad} of {} tags cannot be read: see the column trouble",
        tags.len()
    );
    Ok(())
}

async fn watch(probe: &mut Probe) -> anyhow::Result<()> {
    let again = async {
        loop {
            let tags = probe.read().await;
            say(&format!(
                "{CLEAR}{}\n\nCtrl-C ends this. Nothing is stored or sent.\n",
                shown(&tags)
            ))?;
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        ended = again => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}

fn shown(tags: &[Probed]) -> String {
    let headings =
        ["connection", "tag", "read from", "raw", "value", "quality", "source time", "trouble"];
    let mut rows = table::new(&headings, &[3, 4]);
    let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for tag in tags {
        let value = match tag.value {
            Some(value) => format!("{value:.3} {}", tag.unit).trim_end().to_owned(),
            None => "-".to_owned(),
        };
        let trouble = tag.trouble.as_deref().unwrap_or_default();
        rows.add_row([
            tag.connection.clone(),
            tag.series.clone(),
            tag.place.clone(),
            number(tag.raw),
            value,
            tag.quality.to_string(),
            tag.source_time.map_or_else(String::new, |time| format!("{time:.3}")),
            trouble.chars().take(TROUBLE_CHARS).collect(),
        ]);
    }
    rows.to_string()
}
