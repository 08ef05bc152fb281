//! `holdfast status`: the whole system on one screen, and what of it needs a person.
//!
//! It asks whatever is configured, side by side: the roles over HTTP, the databases, the nodes' sockets, the bus, the disks. Each
//! answer has a time limit; what does not answer is a line that says so, and the rest is shown. It changes nothing.
//!
//! What is configured is found in [`places`], asked in [`look`], judged in [`judge`], drawn in [`show`]. The exit code is 0 when all is
//! well and 1 when something needs a person; each such thing is named with what to do next.

mod judge;
mod letters;
mod look;
pub(crate) mod own;
pub(crate) mod places;
pub(crate) mod plant;
mod show;
mod view;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use jiff::Timestamp;

use crate::output::say;
pub(crate) use look::free_bytes;
use places::Places;
pub(crate) use show::bytes as shown_bytes;
pub(crate) use view::Part;
use view::View;

/// Goes to the first line of a terminal and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// `holdfast status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast status                                  of the `up` here, or of what the environment configures
  holdfast status --config /etc/holdfast.toml      every section of the file
  holdfast status --data .holdfast --watch         again every two seconds
  holdfast status --json | jq '.needs[].next'
  holdfast status >/dev/null || mail -s 'the site needs somebody' ops@example.org </dev/null")]
pub(crate) struct Args {
    /// Look again and again, with so many seconds between.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    watch: Option<u64>,
    /// JSON instead of a screen; with --watch one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    places: places::PlaceArgs,
}

/// Looks, once or until Ctrl-C.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let places = Places::find(&args.places)?;
    let mut away = Away::default();
    let mut view = away.remember(Box::pin(look::look(&places)).await);
    print(&args, &view)?;
    if let Some(seconds) = args.watch {
        let mut stop = std::pin::pin!(crate::shutdown::requested()?);
        let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = &mut stop => break,
            }
            view = away.remember(Box::pin(look::look(&places)).await);
            print(&args, &view)?;
        }
    }
    anyhow::ensure!(view.needs.is_empty(), "{}", show::verdict(&view));
    Ok(())
}

fn print(args: &Args, view: &View) -> anyhow::Result<()> {
    if args.json {
        let text = match args.watch {
            Some(_) => serde_json::to_string(view)?,
            None => serde_json::to_string_pretty(view)?,
        };
        return say(&format!("{text}\n"));
    }
    let redraw = args.watch.is_some() && std::io::stdout().is_terminal();
    let (before, after) = match (redraw, args.watch) {
        (true, _) => (CLEAR, ""),
        (false, Some(_)) => ("", "\n"),
        (false, None) => ("", ""),
    };
    say(&format!("{before}{}{after}", show::screen(view)))?;
    std::io::stdout().flush().or_else(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error.into()),
    })
}

/// Since when parts have been away, as far as this process has seen it.
#[derive(Debug, Default)]
struct Away(BTreeMap<String, Timestamp>);

impl Away {
    /// Says of each part that is away since when, and forgets those that are back.
    fn remember(&mut self, mut view: View) -> View {
        for part in &mut view.parts {
            if part.answers {
                self.0.remove(&part.part);
                continue;
            }
            let first = *self.0.entry(part.part.clone()).or_insert(view.at);
            // One look says that it is away, not since when.
            part.away_since = part.away_since.or((first < view.at).then_some(first));
        }
        judge::judge(&mut view);
        view
    }
}

/// The variables of a shell, or none where a folder says everything.
pub(crate) fn nothing(_: &str) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: i64, answers: bool) -> View {
        let at = Timestamp::from_second(at).unwrap();
        let part = Part { part: "edge".to_owned(), answers, ..Part::default() };
        View { parts: vec![part], ..View::new(at) }
    }

    #[test]
    fn a_part_is_away_since_it_was_first_seen_so_and_until_it_is_back() {
        let mut away = Away::default();
        let since = |view: View| view.parts[0].away_since.map(Timestamp::as_second);
        assert_eq!(since(away.remember(seen(10, false))), None, "nobody knows yet");
        assert_eq!(since(away.remember(seen(12, false))), Some(10));
        assert_eq!(since(away.remember(seen(14, true))), None);
        assert_eq!(since(away.remember(seen(16, false))), None);
        assert_eq!(since(away.remember(seen(18, false))), Some(16));
    }
}
