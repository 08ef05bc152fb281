//! `holdfast scada certs`: certificates for development. In production they come from the operator's own authority.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use rig::certificates::Authority;
use serde_json::json;

use crate::output::say;
use crate::table;

const AUTHORITY: &str = "ca";
/// Whom a certificate is made for.
const NAMES: [&str; 4] = ["broker", "producer", "historian", "operator"];
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to write to. It must not have an authority already.
    #[arg(long)]
    out: PathBuf,
    /// A name or address by which brokers are reached, beside localhost and 127.0.0.1. May be given again.
    #[arg(long)]
    host: Vec<String>,
    /// How long they are valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Makes them.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let there = args.out.join(format!("{AUTHORITY}.pem"));
    ensure!(
        !there.exists(),
        "{} is there already, and certificates that it signed would be worthless: delete the folder, or choose another",
        there.display()
    );
    let authority = Authority::make(&args.out, AUTHORITY)?;
    let until = SystemTime::now() + DAY * args.days;
    let hosts: Vec<&str> = args.host.iter().map(String::as_str).collect();
    let mut rows = vec![(AUTHORITY, authority.certificate(), there.with_extension("key"))];
    for name in NAMES {
        let hosts = if name == "broker" { hosts.as_slice() } else { &[] };
        let issued = authority.issue(name, hosts, until)?;
        rows.push((name, issued.certificate, issued.key));
    }
    if args.json {
        let all: Vec<_> = rows
            .iter()
            .map(|(name, certificate, key)| json!({"name": name, "certificate": certificate, "key": key}))
            .collect();
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut table = table::new(&["for", "certificate", "key"], &[]);
    for (name, certificate, key) in rows {
        table.add_row([
            name.to_owned(),
            certificate.display().to_string(),
            key.display().to_string(),
        ]);
    }
    say(&format!(
        "{table}\nFor development: the authority's key lies beside them. Clients take ca.pem as kafka.ca_file.\n"
    ))
}
