//! `holdfast where EVENT_ID`: which stages an event has passed, and when.

use anyhow::Context as _;
use console::trail::{self, Stage};
use event::id::{EventId, TenantId};
use serde::Serialize;
use serde_json::Value;

use crate::output::say;
use crate::table;
use crate::verify::tier::TierArgs;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast where 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast where 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --cloud-url https://cloud.example --json")]
pub(crate) struct Args {
    /// The event's id.
    id: EventId,
    /// Its tenant, where the edge does not know the event.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tiers: TierArgs,
}

#[derive(Debug, Serialize)]
struct Found {
    event_id: EventId,
    stages: Vec<Stage>,
    edge: Option<Value>,
    cloud: Option<Value>,
    note: Option<String>,
}

/// Runs it.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let tiers = args.tiers.open()?;
    let edge = tiers.edge.trace(args.id, args.tenant, None).await?;
    let text = |value: &Option<Value>, name: &str| {
        value.as_ref().and_then(|one| one[name].as_str()).map(str::to_owned)
    };
    let tenant = match text(&edge, "tenant_id") {
        Some(tenant) => Some(tenant.parse().context("the tenant that the edge names")?),
        None => args.tenant,
    };
    let at = text(&edge, "occurred_at").and_then(|at| at.parse().ok());
    let cloud = match &tiers.cloud {
        Some(cloud) => cloud.trace(args.id, tenant, at).await?,
        None => None,
    };
    anyhow::ensure!(
        edge.is_some() || cloud.is_some(),
        "neither edge nor cloud knows {}: it may still be in a node's spool (holdfast edge nodes shows what each \
         holds), or its rows were removed after their retention",
        args.id
    );
    let asked = tiers.cloud.is_some();
    let stages = trail::stages(edge.as_ref(), cloud.as_ref(), asked);
    let found = Found { event_id: args.id, stages, edge, cloud, note: tiers.note };
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&found)?));
    }
    let mut rows = table::new(&["stage", "state", "at"], &[]);
    for stage in &found.stages {
        let at = stage.at.clone().unwrap_or_default();
        rows.add_row([stage.stage.to_owned(), stage.state.clone(), at]);
    }
    let note = found.note.map(|note| format!("Note: {note}\n")).unwrap_or_default();
    say(&format!("{rows}\n{note}"))
}
