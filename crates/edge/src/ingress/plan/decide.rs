//! Holding each record against what the database knows of its id.

use std::collections::{BTreeMap, HashMap, HashSet};

use event::id::{DeviceId, Epoch, EventId, NodeId, TenantId};
use event::ledger::{Digest, RangeSet, block_of};
use event::wire::{State, Status};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::{Account, Accounted, Judged, Standing, Stream, Tally};
use crate::ingress::check::{BadEvent, Checked, Content, Event, Item};
use crate::ingress::{Reason, Refusal};

/// A sample time further ahead than this is a wrong clock, and says nothing about freshness.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// What the database knows of the event ids in question.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Ids that the dedupe cache did not have.
    pub(crate) fresh: HashSet<(TenantId, EventId)>,
    /// Of the suspicious ones, those that are stored, and whose they are.
    pub(crate) stored: HashMap<EventId, TenantId>,
    /// Of the suspicious ones, those whose sequence was received as a record in
    /// quarantine, or adopted from the cloud: no event of theirs is stored.
    pub(crate) quarantined: HashSet<(NodeId, Epoch, u64)>,
}

/// Every row to write.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) events: Vec<EventRow<'a>>,
    /// What to add to the blocks.
    pub(crate) blocks: BTreeMap<(Stream, u64), Digest>,
    pub(crate) quarantined: BTreeMap<[u8; 32], Quarantined<'a>>,
    pub(crate) nodes: BTreeMap<&'a NodeId, NodeChange>,
    pub(crate) devices: BTreeMap<(TenantId, DeviceId), DeviceChange<'a>>,
    pub(crate) statuses: BTreeMap<&'a NodeId, StatusChange<'a>>,
    /// Sequences that are received and have no event of their own for the cloud.
    pub(crate) kept: BTreeMap<(TenantId, Stream, Kept), RangeSet>,
    pub(crate) tally: Tally,
}

/// Why a sequence was received and has no event of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// Its record is in quarantine.
    Quarantined,
    /// Its event came under another sequence before: a sampler's retry.
    Duplicate,
}

impl Kept {
    /// The word in `ledger_tombstone.reason`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kept::Quarantined => "quarantined",
            Kept::Duplicate => "duplicate",
        }
    }
}

/// An event to store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventRow<'a> {
    pub(crate) event: &'a Event,
    pub(crate) node: &'a NodeId,
    pub(crate) place: Option<(Epoch, u64)>,
    pub(crate) received_at: Timestamp,
}

/// A record or a message for quarantine.
#[derive(Debug)]
pub(crate) struct Quarantined<'a> {
    pub(crate) message: &'a Checked,
    pub(crate) place: Option<(Epoch, u64)>,
    pub(crate) event_id: Option<EventId>,
    /// Whether this row is the edge's copy.
    pub(crate) accounted: bool,
    pub(crate) refusal: Refusal,
    pub(crate) body: std::borrow::Cow<'a, [u8]>,
    pub(crate) body_bytes: usize,
    pub(crate) times: i64,
    pub(crate) last_at: Timestamp,
}

/// What changes for a node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeChange {
    pub(crate) last_rx_at: Option<Timestamp>,
    pub(crate) last_sample_ts: Option<Timestamp>,
    pub(crate) stored: i64,
    pub(crate) recovered: i64,
    pub(crate) cloned: i64,
}

/// What changes for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceChange<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) last_rx_at: Timestamp,
    pub(crate) last_sample_ts: Option<Timestamp>,
}

/// The latest status of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusChange<'a> {
    pub(crate) status: &'a Status,
    pub(crate) received_at: Timestamp,
    pub(crate) retained: bool,
}

/// Gives every record its outcome and lists the rows.
pub(crate) fn decide<'a>(
    accounted: &Accounted<'a>,
    accounts: &mut BTreeMap<Stream, Account>,
    mut known: Known,
) -> Plan<'a> {
    let mut plan = Plan::default();
    plan.tally.lost = accounted.lost;
    for message in accounted.messages {
        plan.hear(message);
        if let Content::Refused(refused) = &message.content {
            plan.refuse(message, refused.refusal.clone());
        }
    }
    for (message, refusal) in &accounted.refused {
        plan.refuse(message, refusal.clone());
    }
    for judged in &accounted.records {
        plan.record(judged, accounts, &mut known);
    }
    plan
}

impl<'a> Plan<'a> {
    fn record(
        &mut self,
        judged: &Judged<'a>,
        accounts: &mut BTreeMap<Stream, Account>,
        known: &mut Known,
    ) {
        let Some(node) = &judged.message.node_id else {
            return;
        };
        let stream = judged.place.map(|(epoch, seq)| ((node.clone(), epoch), seq));
        let event_id = match judged.item {
            Item::Valid(event) => Some(event.envelope.event_id),
            Item::Bad(bad) => bad.event_id,
        };
        let first_here = matches!(judged.standing, Standing::New | Standing::Recovered);
        if let (true, Some((stream, seq)), Some(id)) = (first_here, &stream, event_id) {
            self.blocks.entry((stream.clone(), block_of(*seq))).or_default().add(*seq, id);
        }
        let account = stream.as_ref().and_then(|(stream, _)| accounts.get_mut(stream));
        let new_place = stream.as_ref().filter(|_| first_here);
        let outcome = match judged.item {
            Item::Valid(event) => {
                self.see(judged.message, node, event);
                outcome(judged, node, event, known)
            }
            Item::Bad(bad) => Outcome::Bad(bad),
        };
        let change = self.nodes.entry(node).or_default();
        match outcome {
            Outcome::Duplicate => {
                self.tally.duplicate += 1;
                self.keep(judged, new_place, Kept::Duplicate);
            }
            Outcome::Store(event, how) => {
                self.events.push(EventRow {
                    event,
                    node,
                    place: judged.place,
                    received_at: judged.message.received_at,
                });
                change.stored += 1;
                match how {
                    How::Plain => self.tally.stored += 1,
                    How::Recovered => {
                        self.tally.recovered += 1;
                        change.recovered += 1;
                    }
                    How::Cloned => {
                        self.tally.cloned += 1;
                        change.cloned += 1;
                    }
                }
                if let Some(account) = account {
                    account.stored += 1;
                    account.changed = true;
                }
            }
            Outcome::Taken(event) => {
                let detail = "its event_id belongs to an event of another tenant".to_owned();
                let body = event.envelope.to_json().into_bytes();
                let bad = Quarantined {
                    message: judged.message,
                    place: judged.place,
                    event_id,
                    accounted: true,
                    refusal: Refusal::new(Reason::IdTaken, detail),
                    body_bytes: body.len(),
                    body: body.into(),
                    times: 1,
                    last_at: judged.message.received_at,
                };
                self.keep(judged, new_place, Kept::Quarantined);
                self.set_aside(judged, bad, account);
            }
            Outcome::Bad(bad) => {
                let bad = Quarantined {
                    message: judged.message,
                    place: judged.place,
                    event_id,
                    accounted: true,
                    refusal: bad.refusal.clone(),
                    body: bad.body.as_ref().into(),
                    body_bytes: bad.body_bytes,
                    times: 1,
                    last_at: judged.message.received_at,
                };
                self.keep(judged, new_place, Kept::Quarantined);
                self.set_aside(judged, bad, account);
            }
        }
    }

    /// Takes note of a sequence that is new here and that no event will show the cloud.
    fn keep(&mut self, judged: &Judged<'a>, place: Option<&(Stream, u64)>, why: Kept) {
        if let (Some((stream, seq)), Some(entry)) = (place, &judged.message.entry) {
            let key = (entry.tenant_id, stream.clone(), why);
            self.kept.entry(key).or_default().insert(*seq, *seq);
        }
    }

    /// A record goes to quarantine. One whose sequence was received before is there already, or is
    /// a clone's.
    fn set_aside(
        &mut self,
        judged: &Judged<'a>,
        bad: Quarantined<'a>,
        account: Option<&mut Account>,
    ) {
        match (judged.standing, account) {
            (Standing::Received, _) => self.tally.duplicate += 1,
            (_, account) => {
                self.tally.quarantine(bad.refusal.reason);
                if let Some(account) = account {
                    account.quarantined += 1;
                    account.changed = true;
                }
            }
        }
        let node = bad.message.node_id.as_ref().map_or("", NodeId::as_str);
        let place = bad.place.map(|(epoch, seq)| (epoch.uuid(), seq));
        let key = match place {
            Some((epoch, seq)) => {
                let seq = seq.to_be_bytes();
                key(&[b"record", node.as_bytes(), epoch.as_bytes(), &seq, &bad.body])
            }
            None => key(&[b"event", node.as_bytes(), &bad.body]),
        };
        self.quarantined.entry(key).or_insert(bad);
    }

    /// A message goes to quarantine whole. What has the same key is one row, and counted.
    fn refuse(&mut self, message: &'a Checked, refusal: Refusal) {
        self.tally.quarantine(refusal.reason);
        let (body, body_bytes, only_copy): (&[u8], _, _) = match &message.content {
            Content::Refused(refused) => (&refused.body, refused.body_bytes, refused.only_copy),
            // A batch that the ledger cannot take: the node has it, and its beginning would tell a
            // person nothing.
            _ => (&[], 0, false),
        };
        let node = message.node_id.as_ref().map_or("", NodeId::as_str).as_bytes();
        let reason = refusal.reason;
        let not_let_in = matches!(reason, Reason::UnknownNode | Reason::DisabledNode);
        let word = reason.as_str().as_bytes();
        let key = match not_let_in && !only_copy {
            true => key(&[b"node", node, word]),
            false => key(&[b"message", node, word, body]),
        };
        let row = self.quarantined.entry(key).or_insert_with(|| Quarantined {
            message,
            place: None,
            event_id: None,
            accounted: false,
            refusal,
            body: body.into(),
            body_bytes,
            times: 0,
            last_at: message.received_at,
        });
        row.times += 1;
        row.last_at = row.last_at.max(message.received_at);
    }

    /// Takes note that a registered node was heard.
    fn hear(&mut self, message: &'a Checked) {
        let (Some(node), Some(_)) = (&message.node_id, &message.entry) else {
            return;
        };
        let mut alive = !message.retained;
        if let Content::Status(status) = &message.content {
            // The last will is the broker's word, not the node's.
            alive &= status.state == State::Online;
            let received_at = message.received_at;
            let change = StatusChange { status, received_at, retained: message.retained };
            let latest = self.statuses.entry(node).or_insert(change);
            if latest.received_at <= received_at {
                *latest = change;
            }
        }
        if alive {
            let change = self.nodes.entry(node).or_default();
            change.last_rx_at = change.last_rx_at.max(Some(message.received_at));
        }
    }

    /// Takes note that a device's sample was seen.
    fn see(&mut self, message: &'a Checked, node: &'a NodeId, event: &'a Event) {
        let envelope = &event.envelope;
        let unset = event.telemetry.as_ref().is_some_and(|telemetry| telemetry.clock_unset);
        let horizon = message.received_at.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
        let sample = (!unset && envelope.occurred_at <= horizon).then_some(envelope.occurred_at);
        let change = self.nodes.entry(node).or_default();
        change.last_sample_ts = change.last_sample_ts.max(sample);
        let (Some(device), false) = (envelope.device_id, message.retained) else {
            return;
        };
        let last_rx_at = message.received_at;
        let new = DeviceChange { node, last_rx_at, last_sample_ts: sample };
        let device = self.devices.entry((envelope.tenant_id, device)).or_insert(new);
        if device.last_rx_at <= last_rx_at {
            device.last_rx_at = last_rx_at;
            device.node = node;
        }
        device.last_sample_ts = device.last_sample_ts.max(sample);
    }
}

enum How {
    Plain,
    Recovered,
    Cloned,
}

enum Outcome<'a> {
    Duplicate,
    Store(&'a Event, How),
    Taken(&'a Event),
    Bad(&'a BadEvent),
}

fn outcome<'a>(
    judged: &Judged<'a>,
    node: &NodeId,
    event: &'a Event,
    known: &mut Known,
) -> Outcome<'a> {
    let (tenant, id) = (event.envelope.tenant_id, event.envelope.event_id);
    // The first record that brings an id uses it up: the next one is a duplicate, in this
    // transaction too.
    if !known.fresh.remove(&(tenant, id)) {
        return Outcome::Duplicate;
    }
    match known.stored.get(&id) {
        Some(owner) if *owner == tenant => return Outcome::Duplicate,
        Some(_) => return Outcome::Taken(event),
        None => known.stored.insert(id, tenant),
    };
    let how = match (judged.standing, judged.place) {
        (Standing::New | Standing::Bare, _) => How::Plain,
        (Standing::Recovered, _) => How::Recovered,
        // Received as a record that was not valid then, and is now: no clone.
        (Standing::Received, Some((epoch, seq)))
            if known.quarantined.contains(&(node.clone(), epoch, seq)) =>
        {
            How::Plain
        }
        (Standing::Received, _) => How::Cloned,
    };
    Outcome::Store(event, how)
}

/// A key over parts; each part's length is in it, so that no two lists of parts look the same.
fn key(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
