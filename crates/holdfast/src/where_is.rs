//! `holdfast where EVENT_ID`: which stages an event has passed, and when: those of the farm at edge and cloud, those of SCADA in a node's
//! outbox and at the historian, as far as the configuration names them.

use anyhow::Context as _;
use console::trail::{self, Stage};
use event::id::{EventId, TenantId};
use serde::Serialize;
use serde_json::Value;

use crate::output::say;
use crate::scada::whereabouts::Plant;
use crate::table;
use crate::verify::tier::{TierArgs, Tiers};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast where 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01
  holdfast where 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --cloud-url https://cloud.example --json
  holdfast where 0190f1a8-7c21-7b3e-9b0e-3f1d5c6a7e01 --config scada.toml     in a SCADA node's outbox and at the historian")]
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
    /// The row of a SCADA node's outbox, and what the historian has of it.
    producer: Option<Value>,
    historian: Option<Value>,
    note: Option<String>,
}

/// What edge and cloud know of an event.
async fn at_tiers(args: &Args, tiers: &Tiers) -> anyhow::Result<(Option<Value>, Option<Value>)> {
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
    Ok((edge, cloud))
}

/// Runs it.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let plant = Plant::open(args.tiers.file())?;
    let tiers = match args.tiers.open() {
        Ok(tiers) => Some(tiers),
        // A machine of the plant has no edge.
        Err(_) if plant.is_there() && !args.tiers.names_the_edge() => None,
        Err(error) => return Err(error),
    };
    let (edge, cloud) = match &tiers {
        Some(tiers) => at_tiers(&args, tiers).await?,
        None => (None, None),
    };
    let known = plant.ask(args.id).await?;
    let of_the_farm = edge.is_some() || cloud.is_some();
    let mut stages = plant.stages(&known);
    anyhow::ensure!(
        of_the_farm || !stages.is_empty(),
        "{} {}: it may still be in a node's spool (holdfast edge nodes, or holdfast scada producer status, shows what \
         each holds), or its rows were removed after their retention",
        match (&tiers, plant.is_there()) {
            (Some(_), false) => "neither edge nor cloud knows",
            (Some(_), true) => "neither edge nor cloud, nor the plant, knows",
            (None, _) => "the plant does not know",
        },
        args.id
    );
    let mut note = None;
    if let Some(tiers) = tiers.filter(|_| of_the_farm || !plant.is_there()) {
        let asked = tiers.cloud.is_some();
        stages.splice(0..0, trail::stages(edge.as_ref(), cloud.as_ref(), asked));
        note = tiers.note;
    }
    let (producer, historian) = (known.producer, known.historian);
    let found = Found { event_id: args.id, stages, edge, cloud, producer, historian, note };
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
