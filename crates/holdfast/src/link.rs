//! `holdfast link …`: cut and restore the links of the nodes and of the site that `up` runs, from a second terminal.

use std::path::PathBuf;

use anyhow::Context;
use event::id::NodeId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::output::{say, say_json};
use crate::up::links::{CONTROL_SOCKET, Cable, DEFAULT_DATA, Reply, Request};

/// `holdfast link`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast link cut barn-1 barn-2
  holdfast link cut cloud              the site's own, to the cloud
  holdfast link deaf-down barn-3       its data arrives, the acknowledgements do not
  holdfast link restore                all of them
  holdfast link cut --json | jq -r '.links[]'")]
pub(crate) struct Args {
    /// What to do with the link.
    #[arg(value_enum)]
    set: Cable,
    /// The nodes, or `cloud` for the site's uplink; all of them when none is named.
    nodes: Vec<NodeId>,
    /// The data folder of the `up` that runs.
    #[arg(long, default_value = DEFAULT_DATA)]
    data: PathBuf,
    /// JSON instead of a line for each.
    #[arg(long)]
    json: bool,
}

/// Sends the request to the `up` that runs and prints what changed.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let socket = args.data.join(CONTROL_SOCKET);
    let stream = UnixStream::connect(&socket).await.with_context(|| {
        format!(
            "no `holdfast up` answers on {}: start it, or name its folder with --data",
            socket.display()
        )
    })?;
    let (reader, mut writer) = stream.into_split();
    let request = Request::Set { set: args.set, nodes: args.nodes };
    writer.write_all(format!("{}\n", serde_json::to_string(&request)?).as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).await?;
    match serde_json::from_str(&line).context("`up` went away before it answered")? {
        Reply::Changed(links) if args.json => {
            say_json(&serde_json::json!({ "set": args.set, "links": links }))
        }
        Reply::Changed(links) => {
            let done = match args.set {
                Cable::Restore => "restored",
                Cable::Cut => "cut",
                Cable::Stall => "stalled",
                Cable::Slow => "slowed down",
                Cable::DeafUp => "what it sends is lost",
                Cable::DeafDown => "what it should hear is lost",
            };
            links.iter().try_for_each(|link| say(&format!("{link}: {done}\n")))
        }
        Reply::States(_) => anyhow::bail!("`up` answered something else than was asked"),
        Reply::Refused(why) => anyhow::bail!(why),
    }
}
