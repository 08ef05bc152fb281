//! Holding messages against the frontiers.

use std::collections::{BTreeMap, BTreeSet};

use event::id::Epoch;
use event::ledger::{FrontierError, Seen};
use event::wire::Gap;

use super::{Account, Stream};
use crate::ingress::check::{Checked, Content, Item, Record};
use crate::ingress::{Reason, Refusal};

/// How a record's sequence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not accounted for until now.
    New,
    /// Received before.
    Received,
    /// Declared lost, and here after all.
    Recovered,
    /// It has none: a bare event.
    Bare,
}

/// One record, with where it came from and how its sequence stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged<'a> {
    pub(crate) message: &'a Checked,
    /// Epoch and sequence; a bare event has none.
    pub(crate) place: Option<(Epoch, u64)>,
    pub(crate) standing: Standing,
    pub(crate) item: &'a Item,
}

/// The messages, held against the frontiers.
#[derive(Debug, Default)]
pub(crate) struct Accounted<'a> {
    pub(crate) messages: &'a [Checked],
    pub(crate) records: Vec<Judged<'a>>,
    pub(crate) gaps: Vec<(&'a Checked, Epoch, &'a Gap)>,
    /// Messages that the ledger cannot take.
    pub(crate) refused: Vec<(&'a Checked, Refusal)>,
    /// Every stream that a batch was taken from: each gets an ack.
    pub(crate) touched: BTreeSet<Stream>,
    /// Sequences newly declared lost.
    pub(crate) lost: u64,
}

/// Takes note of every sequence and gap. A batch that the ledger cannot take changes nothing.
pub(crate) fn account<'a>(
    messages: &'a [Checked],
    accounts: &mut BTreeMap<Stream, Account>,
) -> Accounted<'a> {
    let mut accounted = Accounted { messages, ..Accounted::default() };
    for message in messages {
        match &message.content {
            Content::Batch { epoch, records, gaps } => {
                let Some(node) = &message.node_id else {
                    continue;
                };
                let stream = (node.clone(), *epoch);
                let account = accounts.entry(stream.clone()).or_default();
                match observe(account, records, gaps) {
                    Ok((standings, lost)) => {
                        let judged =
                            records.iter().zip(standings).map(|(record, standing)| Judged {
                                message,
                                place: Some((*epoch, record.seq)),
                                standing,
                                item: &record.item,
                            });
                        accounted.records.extend(judged);
                        accounted.gaps.extend(gaps.iter().map(|gap| (message, *epoch, gap)));
                        accounted.lost += lost;
                        accounted.touched.insert(stream);
                    }
                    Err(error) => {
                        let refusal = Refusal::new(Reason::TooManyIslands, error.to_string());
                        accounted.refused.push((message, refusal));
                    }
                }
            }
            Content::Event(item) => {
                let standing = Standing::Bare;
                accounted.records.push(Judged { message, place: None, standing, item });
            }
            Content::Status(_) | Content::Refused(_) => {}
        }
    }
    accounted
}

fn observe(
    account: &mut Account,
    records: &[Record],
    gaps: &[Gap],
) -> Result<(Vec<Standing>, u64), FrontierError> {
    // Tried on a copy: a batch is taken whole or not at all.
    let mut frontier = account.frontier.clone();
    let mut standings = Vec::with_capacity(records.len());
    for record in records {
        standings.push(match frontier.observe(record.seq)? {
            Seen::New => Standing::New,
            Seen::Duplicate => Standing::Received,
            Seen::Recovered => Standing::Recovered,
        });
    }
    let mut lost = 0;
    for gap in gaps {
        lost += frontier.declare_lost(gap.from_seq, gap.to_seq)?;
    }
    if frontier != account.frontier {
        account.frontier = frontier;
        account.changed = true;
    }
    Ok((standings, lost))
}
