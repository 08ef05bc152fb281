//! What is asked: query parameters and bodies, read strictly. Pure. Other services read theirs by the
//! same rules.
//!
//! An unknown parameter or field is refused, because a filter that was misspelt would act on more than
//! was meant.

use std::fmt::Display;
use std::str::FromStr;

use api::Refused;
use event::id::{EventId, NodeId, TenantId};
use jiff::Timestamp;
use serde::Deserialize;

use super::body::json;
use crate::sync::admin::PACE_SECONDS;
use crate::sync::admin::{
    DEFAULT_LIMIT, Filter, GiveUp, MAX_BECAUSE_CHARS, MAX_IDS, MAX_LIMIT, MAX_PAGE, Redrive,
    Status, Unclaim,
};

/// The longest reason, type or name in a filter.
const MAX_WORD_CHARS: usize = 200;

/// Reads the parameters of the list.
pub(super) fn filter(query: &str) -> Result<Filter, Refused> {
    let mut filter = Filter::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "status" => {
                for word in value.split(',') {
                    filter.status.push(parse(&name, word)?);
                }
            }
            "tenant_id" => filter.tenant_id = Some(parse(&name, &value)?),
            "reason" => filter.reason = Some(word(&name, &value)?),
            "event_type" => filter.event_type = Some(word(&name, &value)?),
            "device_id" => filter.device_id = Some(parse(&name, &value)?),
            "stream" => filter.stream = Some(parse::<NodeId>(&name, &value)?.to_string()),
            "since" => filter.since = Some(parse(&name, &value)?),
            "until" => filter.until = Some(parse(&name, &value)?),
            "after" => filter.after = Some(parse(&name, &value)?),
            "limit" => filter.limit = Some(limit(parse(&name, &value)?, MAX_PAGE)?),
            _ => return Err(unknown(&name)),
        }
    }
    if filter.status.len() > Status::ALL.len() {
        return Err(Refused::malformed(Some("status"), "status names a state twice"));
    }
    Ok(filter)
}

/// Reads the parameters of the stats: whether acked rows are counted, and over how many seconds the pace is taken.
pub(super) fn stats(query: &str) -> Result<(bool, f64), Refused> {
    let (mut acked, mut pace) = (false, PACE_SECONDS);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "acked" => acked = parse(&name, &value)?,
            "pace_seconds" => {
                let seconds: u16 = parse(&name, &value)?;
                if !(1..=3_600).contains(&seconds) {
                    let message = "pace_seconds must be from 1 to 3600";
                    return Err(Refused::malformed(Some("pace_seconds"), message));
                }
                pace = f64::from(seconds);
            }
            _ => return Err(unknown(&name)),
        }
    }
    Ok((acked, pace))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedriveBody {
    #[serde(default)]
    ids: Vec<EventId>,
    reason: Option<String>,
    tenant_id: Option<TenantId>,
    failed_after: Option<Timestamp>,
    failed_before: Option<Timestamp>,
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
    #[serde(default)]
    dry_run: bool,
    /// For a give-up, and for nothing else.
    because: Option<String>,
}

/// Reads the body of a redrive.
pub(super) fn redrive(body: &[u8]) -> Result<Redrive, Refused> {
    let read: RedriveBody = json(body)?;
    if read.because.is_some() {
        let message = "a redrive has no because: it belongs to a give-up";
        return Err(Refused::malformed(Some("because"), message));
    }
    dead_letters(read)
}

/// Reads the body of a give-up: that of a redrive, and why.
pub(super) fn give_up(body: &[u8]) -> Result<GiveUp, Refused> {
    let mut read: RedriveBody = json(body)?;
    let because = read.because.take().map(|text| text.trim().to_owned()).unwrap_or_default();
    if !(1..=MAX_BECAUSE_CHARS).contains(&because.chars().count())
        || because.contains(char::is_control)
    {
        let message = format!(
            "because must say why they are given up: 1 to {MAX_BECAUSE_CHARS} characters of text"
        );
        return Err(Refused::malformed(Some("because"), message));
    }
    Ok(GiveUp { which: dead_letters(read)?, because })
}

fn dead_letters(read: RedriveBody) -> Result<Redrive, Refused> {
    if read.ids.len() > MAX_IDS {
        let message = format!("ids are more than the limit of {MAX_IDS}");
        return Err(Refused::malformed(Some("ids"), message));
    }
    let redrive = Redrive {
        ids: read.ids,
        reason: read.reason.map(|text| word("reason", &text)).transpose()?,
        tenant_id: read.tenant_id,
        failed_after: read.failed_after,
        failed_before: read.failed_before,
        limit: limit(read.limit.unwrap_or(DEFAULT_LIMIT), MAX_LIMIT)?,
        dry_run: read.dry_run,
    };
    if redrive.is_narrowed() == read.all {
        let message = "say which dead letters: ids, reason, tenant_id, failed_after, failed_before; \
                       or all, and none of these";
        return Err(Refused::malformed(None, message));
    }
    Ok(redrive)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnclaimBody {
    tenant_id: Option<TenantId>,
    claimed_by: Option<String>,
    limit: Option<u32>,
    #[serde(default)]
    dry_run: bool,
}

/// Reads the body of an unclaim; an empty one means every stuck row.
pub(super) fn unclaim(body: &[u8]) -> Result<Unclaim, Refused> {
    let read: UnclaimBody = json(if body.is_empty() { b"{}" } else { body })?;
    Ok(Unclaim {
        tenant_id: read.tenant_id,
        claimed_by: read.claimed_by.map(|text| word("claimed_by", &text)).transpose()?,
        limit: limit(read.limit.unwrap_or(DEFAULT_LIMIT), MAX_LIMIT)?,
        dry_run: read.dry_run,
    })
}

pub(crate) fn parse<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Refused> {
    text.parse()
        .map_err(|error| Refused::malformed(Some(name), format!("{name} cannot be read: {error}")))
}

pub(crate) fn word(name: &str, text: &str) -> Result<String, Refused> {
    if (1..=MAX_WORD_CHARS).contains(&text.chars().count()) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    let message = format!("{name} must be 1 to {MAX_WORD_CHARS} characters of text");
    Err(Refused::malformed(Some(name), message))
}

pub(crate) fn limit(limit: u32, most: u32) -> Result<u32, Refused> {
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    Err(Refused::malformed(Some("limit"), format!("limit must be from 1 to {most}")))
}

pub(crate) fn unknown(name: &str) -> Refused {
    let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    Refused::malformed(Some(&name), format!("there is no parameter {name:?}: see /api/docs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_says_what_it_means() {
        for body in ["{}", r#"{"all":false}"#, r#"{"all":true,"reason":"invalid"}"#] {
            assert!(redrive(body.as_bytes()).is_err(), "{body}");
        }
        for body in [r#"{"reasn":"x"}"#, r#"{"all":true,"limit":0}"#, r#"{"reason":""}"#, "[1]"] {
            assert!(redrive(body.as_bytes()).is_err(), "{body}");
        }
        assert!(redrive(br#"{"all":true}"#).is_ok_and(|what| !what.is_narrowed()));
        let what = redrive(br#"{"reason":"invalid","limit":10000,"dry_run":true}"#).unwrap();
        assert!(what.dry_run && what.limit == 10_000 && what.is_narrowed());
    }

    #[test]
    fn a_give_up_says_why() {
        for because in ["\"\"", "\"  \"", "null", "\"a\\u0007b\""] {
            let body = format!("{{\"all\":true,\"because\":{because}}}");
            assert_eq!(give_up(body.as_bytes()).unwrap_err().field.as_deref(), Some("because"));
        }
        let long = format!(r#"{{"all":true,"because":"{}"}}"#, "a".repeat(501));
        assert!(give_up(long.as_bytes()).is_err());
        assert!(give_up(br#"{"because":"of the flood"}"#).is_err(), "it must be said which");
        let what = give_up(br#"{"reason":"invalid","because":" a test rig "}"#).unwrap();
        assert_eq!((what.because.as_str(), what.which.is_narrowed()), ("a test rig", true));
        let refused = redrive(br#"{"all":true,"because":"x"}"#).unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("because"));
    }

    #[test]
    fn parameters_that_are_not_known_or_not_right_are_refused() {
        for query in ["statsu=dlq", "status=dead", "limit=0", "limit=501", "since=now", "stream=A"]
        {
            let field = query.split('=').next();
            assert_eq!(filter(query).unwrap_err().field.as_deref(), field, "{query}");
        }
        let found = filter("status=dlq,failed&limit=500&reason=too%20large").unwrap();
        assert_eq!(found.status, [Status::Dlq, Status::Failed]);
        assert_eq!((found.limit, found.reason.as_deref()), (Some(500), Some("too large")));
        assert!(stats("acked=true").unwrap().0 && stats("acked=2").is_err());
        assert_eq!(stats("pace_seconds=10").unwrap(), (false, 10.0));
        assert!(stats("pace_seconds=0").is_err() && stats("pace=1").is_err());
    }
}
