//! What the cloud accepted and has in no store, and bringing it back from the site.
//!
//! The cloud is asked for each hour that ingestion remembers. A repair notes the ids in the cloud first, so that the site's second copy,
//! a duplicate, is published again; then the site sends them. What the site no longer has stays open, and is said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud::ledger::stored::StoredHour;
use event::id::{Epoch, EventId, NodeId, TenantId};
use event::ledger::{RangeSet, Repair};
use jiff::Timestamp;
use serde::Serialize;

use super::tier::{Tier, Tiers};

/// The most events that are named; a repair comes back for the rest.
const MAX_NAMED: usize = 10_000;

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct StoredReport {
    /// Events that ingestion remembers and that are old enough to be stored.
    pub(super) remembered: u64,
    /// Accepted before the cloud kept what is needed to tell.
    pub(super) unchecked: u64,
    /// In no store.
    pub(super) unstored: u64,
    /// Those, up to a limit.
    pub(super) findings: Vec<Unstored>,
    /// There may be more than could be counted.
    pub(super) more: bool,
    /// What the site sends again, or would.
    pub(super) resent: u64,
}

/// An event that was accepted and is in no store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Unstored {
    pub(super) tenant_id: TenantId,
    pub(super) event_id: EventId,
    /// Whether the site can send it again; not known before a repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_site: Option<bool>,
}

impl StoredReport {
    /// Whether a repair may bring something back.
    pub(super) fn closable(&self) -> bool {
        self.more || self.findings.iter().any(|one| one.at_site != Some(false))
    }
}

/// Looks through every hour that ingestion remembers; `None` where the cloud cannot be asked for them.
pub(super) async fn check(
    tiers: &Tiers,
    tenants: BTreeSet<TenantId>,
    grace: Duration,
) -> anyhow::Result<Option<StoredReport>> {
    let Some(there) = &tiers.cloud else { return Ok(None) };
    let mut report = StoredReport::default();
    for tenant in tenants {
        let Some(hours) = there.stored(tenant, grace).await? else { return Ok(None) };
        for StoredHour { remembered, unchecked, unstored, event_ids, more, .. } in hours {
            report.remembered += remembered;
            report.unchecked += unchecked;
            report.unstored += unstored;
            let room = MAX_NAMED.saturating_sub(report.findings.len());
            report.more |= more || event_ids.len() > room;
            let named = event_ids.into_iter().take(room);
            report.findings.extend(named.map(|event_id| Unstored {
                tenant_id: tenant,
                event_id,
                at_site: None,
            }));
        }
    }
    Ok(Some(report))
}

/// Notes what is unstored in the cloud and sends it again from the site. What was sent is on its way, and not open any more.
pub(super) async fn repair(
    tiers: &Tiers,
    report: &mut StoredReport,
    dry_run: bool,
) -> anyhow::Result<()> {
    let Some(there) = &tiers.cloud else { return Ok(()) };
    let mut by_tenant: BTreeMap<TenantId, Vec<EventId>> = BTreeMap::new();
    for one in &report.findings {
        by_tenant.entry(one.tenant_id).or_default().push(one.event_id);
    }
    for (tenant, events) in by_tenant {
        let kept = at_site(&tiers.edge, tenant, &events).await?;
        let held: BTreeSet<EventId> = kept.iter().map(|one| one.event).collect();
        for one in report.findings.iter_mut().filter(|one| one.tenant_id == tenant) {
            one.at_site = Some(held.contains(&one.event_id));
        }
        let ids: Vec<EventId> = held.into_iter().collect();
        // First the note, then the event: a duplicate that nobody asked for is acknowledged and forgotten.
        there.ask_again(tenant, &ids, dry_run).await?;
        report.resent += send(&tiers.edge, tenant, kept, dry_run).await?;
    }
    if !dry_run {
        let before = report.findings.len();
        report.findings.retain(|one| one.at_site != Some(true));
        let sent = (before - report.findings.len()) as u64;
        report.unstored = report.unstored.saturating_sub(sent);
    }
    Ok(())
}

/// An event that the site has.
struct Kept {
    event: EventId,
    place: Option<(NodeId, Epoch, u64)>,
}

/// Which of these events the site can send again: a row of its outbox, or a reading.
async fn at_site(edge: &Tier, tenant: TenantId, events: &[EventId]) -> anyhow::Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for event in events {
        let Some(found) = edge.trace(*event, Some(tenant), None).await? else { continue };
        let text = |name: &str| found[name].as_str();
        let stream = text("stream").and_then(|text| text.parse::<NodeId>().ok());
        let epoch = text("epoch").and_then(|text| text.parse::<Epoch>().ok());
        let seq = found["seq"].as_u64();
        let place = stream.zip(epoch).zip(seq).map(|((stream, epoch), seq)| (stream, epoch, seq));
        let can_leave = match found["outbox"]["status"].as_str() {
            // A dead letter of the site is for an operator to redrive.
            Some(status) => !matches!(status, "dlq" | "failed"),
            // Only a reading with a sequence is made again from the site's own store.
            None => found["stored"] == true && place.is_some(),
        };
        if can_leave {
            kept.push(Kept { event: *event, place });
        }
    }
    Ok(kept)
}

/// Sends them: by sequence where they have one, by id otherwise. What waits at the site already is not counted.
async fn send(
    edge: &Tier,
    tenant: TenantId,
    kept: Vec<Kept>,
    dry_run: bool,
) -> anyhow::Result<u64> {
    let mut streams: BTreeMap<(NodeId, Epoch), RangeSet> = BTreeMap::new();
    let mut bare = Vec::new();
    for Kept { event, place } in kept {
        match place {
            Some((stream, epoch, seq)) => {
                streams.entry((stream, epoch)).or_default().insert(seq, seq);
            }
            None => bare.push(event),
        }
    }
    let mut sent = 0;
    if !bare.is_empty() {
        sent += edge.put_back(tenant, &bare, dry_run).await?;
    }
    for ((stream, epoch), seqs) in streams {
        let resync = seqs.ranges().to_vec();
        let (resend, adopt, adopt_lost, retell) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let what = Repair { stream, epoch, resend, adopt, adopt_lost, resync, retell, dry_run };
        sent += edge.repair(&what).await?.resent;
    }
    Ok(sent)
}

/// The hours in which ingestion may have accepted what it still remembers.
pub(super) fn hours(ttl: Duration) -> std::ops::RangeInclusive<i64> {
    let hour = |second: i64| second.div_euclid(3_600);
    let now = Timestamp::now().as_second();
    let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    // The cloud's clock may be a little ahead of ours.
    hour(now.saturating_sub(ttl)) - 1..=hour(now) + 1
}
