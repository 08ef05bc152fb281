//! Events without a sequence: what the edge believes the cloud has, and the cloud lacks; and what the cloud has that the edge
//! knows nothing of.
//!
//! Hours are compared by count and hash. A tenant with several sites has more in the cloud than here, so only a look at the ids
//! tells what is missing: it is done for hours that differ, and the edge's ids are read before the cloud is asked, so that an
//! acknowledged event that the cloud has not is lost there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use event::id::{EventId, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::remote::MAX_PAGES;
use super::tier::{Tier, Tiers};

/// The most events that are named; a repair comes back for the rest.
const MAX_NAMED: usize = 100_000;
/// Events that the edge is asked for with one statement.
const IDS_AT_ONCE: usize = 1_000;

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct BareReport {
    /// Hours with such events.
    pub(super) hours: u64,
    /// Hours in which the tiers do not hold the same.
    pub(super) differing_hours: u64,
    /// Such events that the edge holds as acknowledged.
    pub(super) events: u64,
    /// Acknowledged so long ago that the cloud need not remember them.
    pub(super) unchecked: u64,
    /// What the cloud lacks.
    pub(super) missing: Vec<Missing>,
    /// Events of weighings, images and results that the cloud has and this site's outbox does not; absent where the cloud
    /// cannot be asked. Nothing is wrong with them: they came after the backup that the site was restored from, or from
    /// another site of the tenant.
    pub(super) cloud_only: Option<Vec<Missing>>,
    /// What is sent again, or would be.
    pub(super) resent: u64,
    /// The tenants that have such events.
    #[serde(skip)]
    pub(super) tenants: Vec<TenantId>,
}

/// An event that one tier lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    pub(super) tenant_id: TenantId,
    pub(super) event_id: EventId,
}

/// Compares them; `None` where a tier cannot be asked for them.
pub(super) async fn check(
    tiers: &Tiers,
    tenant: Option<TenantId>,
) -> anyhow::Result<Option<BareReport>> {
    let (here, Some(there)) = (&tiers.edge, &tiers.cloud) else { return Ok(None) };
    let Some(hours) = here.bare_hours(tenant).await? else { return Ok(None) };
    let mut report = BareReport::default();
    for (tenant, hours) in hours {
        report.tenants.push(tenant);
        let names: Vec<i64> = hours.iter().map(|one| one.hour).collect();
        let (theirs, ttl) = there.hours(tenant, &names).await?;
        let since = remembered_since(ttl);
        let each = theirs.into_iter().map(|one| (one.hour, (one.count, one.hash)));
        let theirs: BTreeMap<i64, (u64, String)> = each.collect();
        for ours in hours {
            report.hours += 1;
            report.events += ours.bare;
            if theirs.get(&ours.hour) == Some(&(ours.count, ours.hash)) {
                continue;
            }
            report.differing_hours += 1;
            one_hour((here, there), (tenant, ours.hour), since, &mut report).await?;
        }
    }
    Ok(Some(report))
}

/// What the cloud was told by weighings, images and results, in the time that ingestion remembers, and the site does not
/// know of. The cloud's are read first: what the site tells meanwhile is not among them.
pub(super) async fn cloud_only(
    tiers: &Tiers,
    tenants: &BTreeSet<TenantId>,
) -> anyhow::Result<Option<Vec<Missing>>> {
    let (here, Some(there)) = (&tiers.edge, &tiers.cloud) else { return Ok(None) };
    let mut found = Vec::new();
    for tenant in tenants.iter().copied() {
        let (_, ttl) = there.hours(tenant, &[0]).await?;
        let Some(told) = there.told(tenant, remembered_since(ttl)).await? else { return Ok(None) };
        for part in told.chunks(IDS_AT_ONCE) {
            let unknown = here.unknown(tenant, part).await?;
            found.extend(
                unknown.into_iter().map(|event_id| Missing { tenant_id: tenant, event_id }),
            );
        }
    }
    Ok(Some(found))
}

async fn one_hour(
    (here, there): (&Tier, &Tier),
    (tenant, hour): (TenantId, i64),
    since: Timestamp,
    report: &mut BareReport,
) -> anyhow::Result<()> {
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let page = here.acked((tenant, hour), after).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        let (recent, old): (Vec<_>, Vec<_>) = page.into_iter().partition(|(_, at)| *at >= since);
        report.unchecked += old.len() as u64;
        let recent: Vec<EventId> = recent.into_iter().map(|(event, _)| event).collect();
        let lacking = there.lacking(tenant, &recent).await?;
        let room = MAX_NAMED.saturating_sub(report.missing.len());
        let each = lacking.into_iter().take(room);
        report.missing.extend(each.map(|event_id| Missing { tenant_id: tenant, event_id }));
    }
    Ok(())
}

fn remembered_since(ttl: Duration) -> Timestamp {
    let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
    Timestamp::now().checked_sub(ttl).unwrap_or(Timestamp::MIN)
}

/// Sends again what the cloud lacks. What was put back is on its way, and not missing any more.
pub(super) async fn repair(
    tiers: &Tiers,
    report: &mut BareReport,
    dry_run: bool,
) -> anyhow::Result<()> {
    let mut by_tenant: BTreeMap<TenantId, Vec<EventId>> = BTreeMap::new();
    for one in &report.missing {
        by_tenant.entry(one.tenant_id).or_default().push(one.event_id);
    }
    for (tenant, events) in by_tenant {
        report.resent += tiers.edge.put_back(tenant, &events, dry_run).await?;
    }
    if !dry_run {
        report.missing.clear();
    }
    Ok(())
}
