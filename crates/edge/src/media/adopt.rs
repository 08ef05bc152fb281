//! An object without a row gets one, made of its key.

use event::id::{BarnId, DeviceId, FarmId, MediaId, TenantId};
use event::names::s3::{Ext, object_key};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use objects::Listed;

use super::complete::{Turn, hash_of, tell};
use super::{COLUMNS, Fault, Ids, Media, Row};

/// What a key of ours tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    ids: Ids,
    captured_at: Timestamp,
    ext: Ext,
}

/// Reads a key; one of another form is none of ours.
pub(super) fn read(key: &str) -> Option<Told> {
    let parts: Vec<&str> = key.split('/').collect();
    let [
        "tenants",
        tenant,
        "farms",
        farm,
        "barns",
        barn,
        "devices",
        device,
        "images",
        year,
        month,
        day,
        name,
    ] = parts[..]
    else {
        return None;
    };
    let (media, ext) = name.split_once('.')?;
    let ids = Ids {
        media: media.parse::<MediaId>().ok()?,
        tenant: tenant.parse::<TenantId>().ok()?,
        farm: farm.parse::<FarmId>().ok()?,
        barn: barn.parse::<BarnId>().ok()?,
        device: device.parse::<DeviceId>().ok()?,
        session: None,
    };
    let ext: Ext = ext.parse().ok()?;
    let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    let midnight = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let captured_at = minted_at(ids.media)
        .filter(|at| at.to_zoned(TimeZone::UTC).date() == date)
        .unwrap_or(midnight);
    let told = Told { ids, captured_at, ext };
    // Only a key that we would write ourselves is ours, to the last letter.
    (told.key() == key).then_some(told)
}

impl Told {
    fn key(&self) -> String {
        let Ids { media, tenant, farm, barn, device, session: _ } = self.ids;
        object_key(tenant, farm, barn, device, self.captured_at, media, self.ext)
    }
}

/// When an id of version 7 was minted.
fn minted_at(id: MediaId) -> Option<Timestamp> {
    let (seconds, nanos) = id.uuid().get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

/// Makes the row of an object, with its event. False when its id belongs to another row, or there is
/// nothing in it.
pub(super) async fn adopt(
    media: &Media,
    pool: &pg::Pool,
    object: &Listed,
    told: &Told,
) -> Result<bool, Fault> {
    let Some(size) = i64::try_from(object.size).ok().filter(|size| *size > 0) else {
        return Ok(false);
    };
    let head = match media.bucket.head(&object.key).await {
        Ok(head) => head,
        // Gone since it was listed.
        Err(objects::Error::NotFound) => return Ok(false),
        Err(error) => return Err(Fault::Store(error)),
    };
    let hash = match hash_of(media, &object.key, &head, Turn::Awaited).await {
        Ok(hash) => hash,
        // Gone, or another one, since it was listed: the next sweep looks again.
        Err(Fault::NotUploaded | Fault::Differs { .. }) => return Ok(false),
        Err(fault) => return Err(fault),
    };
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let insert = format!(
        "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket, object_key,
             etag, mime_type, size_bytes, captured_at, status, sha256, stored_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'stored', $12, now())
         ON CONFLICT DO NOTHING RETURNING {COLUMNS}"
    );
    let ids = &told.ids;
    let made = transaction
        .query_opt(
            &insert,
            &[
                &ids.media.uuid(),
                &ids.tenant.uuid(),
                &ids.farm.uuid(),
                &ids.barn.uuid(),
                &ids.device.uuid(),
                &media.bucket.name(),
                &object.key,
                &head.etag,
                &told.ext.mime_type(),
                &size,
                &told.captured_at,
                &hash.as_slice(),
            ],
        )
        .await?;
    let Some(row) = made else { return Ok(false) };
    tell(&transaction, &Row::read(&row)?, None).await?;
    transaction.commit().await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_ours_is_read_and_no_other() {
        let now = Timestamp::now();
        let ids = Ids {
            media: MediaId::mint(),
            tenant: TenantId::mint(),
            farm: FarmId::mint(),
            barn: BarnId::mint(),
            device: DeviceId::mint(),
            session: None,
        };
        let told = Told { ids, captured_at: now, ext: Ext::Png };
        let key = told.key();
        let read_back = read(&key).unwrap();
        assert_eq!((read_back.ids, read_back.ext), (ids, Ext::Png));
        assert_eq!(read_back.captured_at.duration_since(now).as_secs(), 0, "the id tells the time");
        let old: Timestamp = "2020-02-29T12:00:00Z".parse().unwrap();
        let late = Told { captured_at: old, ..told };
        let at = read(&late.key()).unwrap().captured_at;
        assert_eq!(at, "2020-02-29T00:00:00Z".parse().unwrap(), "uploaded long after it was taken");
        for other in [
            key.replace(".png", ".svg"),
            key.replace(".png", ".jpeg"),
            key.replace(".png", ".png.png"),
            key.replace("/images/", "/videos/"),
            key.replace("tenants/", "Tenants/"),
            key.replace("/images/20", "/images/020"),
            format!("/{key}"),
            format!("{key}/x"),
            key.to_uppercase(),
            late.key().replace("/02/29/", "/02/30/"),
            late.key().replace("/02/29/", "/2/29/"),
            "tenants/a".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(&other), None, "{other}");
        }
    }
}
