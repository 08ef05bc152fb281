//! Images of the site against what the cloud has of them.
//!
//! The site's images are read before the cloud is asked. An image that the cloud does not know is missing there only if the event
//! that told of it is nowhere on its way.

use std::collections::{BTreeMap, HashMap};

use cloud::copies::HeldCopy;
use edge::ledger::media::StoredImage;
use event::id::{EventId, MediaId, TenantId};
use serde::Serialize;
use uuid::Uuid;

use super::remote::MAX_PAGES;
use super::tier::{Tier, Tiers};

/// The most images that are named; a repair comes back for the rest.
const MAX_NAMED: usize = 10_000;

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct CopyReport {
    /// Images whose object the site has.
    pub(super) images: u64,
    /// Whether the cloud makes copies.
    pub(super) copies: bool,
    /// Of these, copied by the cloud and the same.
    pub(super) copied: u64,
    /// Known to the cloud and not copied yet, or not known there yet and on its way.
    pub(super) on_the_way: u64,
    /// What is wrong.
    pub(super) findings: Vec<CopyFinding>,
    /// Told of again, or would be.
    pub(super) told: u64,
}

/// An image that is not in the cloud as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct CopyFinding {
    pub(super) tenant_id: TenantId,
    pub(super) media_id: MediaId,
    pub(super) matter: CopyMatter,
}

/// What is wrong with an image in the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CopyMatter {
    /// The cloud does not know it, and nothing tells of it.
    Missing,
    /// The cloud gave up copying it.
    Failed,
    /// The cloud has another size or hash.
    Differs,
}

/// Compares them; `None` where a tier cannot be asked for them.
pub(super) async fn check(
    tiers: &Tiers,
    tenant: Option<TenantId>,
) -> anyhow::Result<Option<CopyReport>> {
    let Some(there) = &tiers.cloud else { return Ok(None) };
    let mut report = CopyReport::default();
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let Some(page) = tiers.edge.images(tenant, after).await? else { return Ok(None) };
        let Some(last) = page.last() else { break };
        after = Some(last.media_id);
        let mut by_tenant: BTreeMap<TenantId, Vec<StoredImage>> = BTreeMap::new();
        for image in page {
            by_tenant.entry(image.tenant_id).or_default().push(image);
        }
        for (tenant, images) in by_tenant {
            if !one_page((&tiers.edge, there), tenant, &images, &mut report).await? {
                return Ok(None);
            }
        }
    }
    Ok(Some(report))
}

/// False: this cloud is older than the question.
async fn one_page(
    (here, there): (&Tier, &Tier),
    tenant: TenantId,
    images: &[StoredImage],
    report: &mut CopyReport,
) -> anyhow::Result<bool> {
    let ids: Vec<MediaId> = images.iter().map(|image| image.media_id).collect();
    let Some((copies, held)) = there.copies(tenant, &ids).await? else { return Ok(false) };
    report.copies = copies;
    report.images += images.len() as u64;
    let held: HashMap<Uuid, HeldCopy> = held.into_iter().map(|one| (one.media_id, one)).collect();
    let mut unknown = Vec::new();
    for image in images {
        let matter = match held.get(&image.media_id.uuid()) {
            None => {
                unknown.push(image.media_id);
                continue;
            }
            Some(copy) => judge(image, copy),
        };
        match matter {
            Verdict::Copied => report.copied += 1,
            Verdict::Waits => report.on_the_way += 1,
            Verdict::Wrong(matter) => report.name(tenant, image.media_id, matter),
        }
    }
    let moving = on_the_way((here, there), tenant, &unknown).await?;
    for image in unknown {
        match moving.contains(&image) {
            true => report.on_the_way += 1,
            false => report.name(tenant, image, CopyMatter::Missing),
        }
    }
    Ok(true)
}

impl CopyReport {
    fn name(&mut self, tenant_id: TenantId, media_id: MediaId, matter: CopyMatter) {
        if self.findings.len() < MAX_NAMED {
            self.findings.push(CopyFinding { tenant_id, media_id, matter });
        }
    }
}

enum Verdict {
    Copied,
    Waits,
    Wrong(CopyMatter),
}

fn judge(image: &StoredImage, copy: &HeldCopy) -> Verdict {
    let other_hash = image.sha256.is_some() && image.sha256 != copy.sha256;
    match copy.copy_status.as_str() {
        _ if copy.size_bytes != image.size_bytes => Verdict::Wrong(CopyMatter::Differs),
        "copied" if other_hash => Verdict::Wrong(CopyMatter::Differs),
        "copied" => Verdict::Copied,
        "failed" => Verdict::Wrong(CopyMatter::Failed),
        _ => Verdict::Waits,
    }
}

/// Which images are told of by an event that waits at the site, or that the cloud has and has not stored yet.
async fn on_the_way(
    (here, there): (&Tier, &Tier),
    tenant: TenantId,
    images: &[MediaId],
) -> anyhow::Result<Vec<MediaId>> {
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let events = here.image_events(tenant, images).await?;
    let acked: Vec<EventId> =
        events.iter().filter(|one| one.status == "acked").map(|one| one.event_id).collect();
    let lacking = there.lacking(tenant, &acked).await?;
    // What is a dead letter at the site is for an operator to redrive: it is not lost either.
    let moving = events.iter().filter(|one| !lacking.contains(&one.event_id));
    Ok(moving.map(|one| one.media_id).collect())
}

/// Tells the cloud again of what it does not know. That is on its way then, and not missing any more.
pub(super) async fn repair(
    tiers: &Tiers,
    report: &mut CopyReport,
    dry_run: bool,
) -> anyhow::Result<()> {
    let mut by_tenant: BTreeMap<TenantId, Vec<MediaId>> = BTreeMap::new();
    let missing = report.findings.iter().filter(|one| one.matter == CopyMatter::Missing);
    for one in missing {
        by_tenant.entry(one.tenant_id).or_default().push(one.media_id);
    }
    for (tenant, images) in by_tenant {
        report.told += tiers.edge.tell_again(tenant, &images, dry_run).await?;
    }
    if !dry_run {
        report.findings.retain(|one| one.matter != CopyMatter::Missing);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_the_same_by_size_and_hash() {
        let image = |sha256: Option<&str>| StoredImage {
            tenant_id: TenantId::mint(),
            media_id: MediaId::mint(),
            size_bytes: 7,
            sha256: sha256.map(str::to_owned),
        };
        let copy = |status: &str, size: i64| HeldCopy {
            tenant_id: Uuid::nil(),
            media_id: Uuid::nil(),
            copy_status: status.to_owned(),
            size_bytes: size,
            copied_at: None,
            sha256: (status == "copied").then(|| "ab".to_owned()),
        };
        let differs =
            |image, copy| matches!(judge(&image, &copy), Verdict::Wrong(CopyMatter::Differs));
        assert!(matches!(judge(&image(Some("ab")), &copy("copied", 7)), Verdict::Copied));
        assert!(matches!(judge(&image(None), &copy("copied", 7)), Verdict::Copied));
        assert!(differs(image(Some("cd")), copy("copied", 7)));
        assert!(differs(image(None), copy("pending", 8)), "its event told of another size");
        assert!(matches!(judge(&image(Some("ab")), &copy("copying", 7)), Verdict::Waits));
        let failed = judge(&image(Some("ab")), &copy("failed", 7));
        assert!(matches!(failed, Verdict::Wrong(CopyMatter::Failed)));
    }
}
