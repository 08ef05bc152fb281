//! What is asked: query parameters, each known, each once, read strictly. Pure.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use api::Refused;
use api::tokens::{Tenants, Token};
use axum::http::StatusCode;
use event::id::{DeviceId, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

use super::csv::MAX_ROWS;
use super::query::{Cursor, MAX_PAGE, MAX_RANGE, Range, Resolution};
use super::series;

/// Points of a page when nothing else is said.
const POINTS: u32 = 5_000;
/// Series of a page when nothing else is said.
const SERIES: u32 = 100;
/// The longest value; ids, times and cursors are shorter.
const MAX_VALUE_BYTES: usize = 200;

/// What was asked, by name.
#[derive(Debug)]
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn read(query: &str, known: &[&'static str]) -> Result<Parameters, Refused> {
        let mut found = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some(name) = known.iter().find(|one| **one == name) else {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                let message = format!("there is no such parameter: expected {}", known.join(", "));
                return Err(Refused::malformed(Some(&shown), message));
            };
            if value.len() > MAX_VALUE_BYTES {
                return Err(wrong(name, &format!("at most {MAX_VALUE_BYTES} bytes")));
            }
            if found.insert((*name).to_owned(), value.into_owned()).is_some() {
                return Err(Refused::malformed(Some(name), format!("{name} is there twice")));
            }
        }
        Ok(Parameters(found))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn need(&self, name: &str) -> Result<&str, Refused> {
        let missing = || Refused::malformed(Some(name), format!("{name} is missing"));
        self.get(name).ok_or_else(missing)
    }

    fn parse<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Refused> {
        let parse =
            |text: &str| text.parse().map_err(|error: T::Err| wrong(name, &error.to_string()));
        self.get(name).map(parse).transpose()
    }

    fn metric(&self) -> Result<Option<String>, Refused> {
        let Some(text) = self.get("metric_type") else { return Ok(None) };
        let rule = event::farm::rules::metric_type("metric_type", text);
        rule.map_err(|error| Refused::malformed(Some("metric_type"), error.to_string()))?;
        Ok(Some(text.to_owned()))
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, Refused> {
        let expected = "an RFC 3339 time with an offset, such as 2026-02-01T10:00:00Z";
        let read = |text| event::rfc3339(name, text).map_err(|_| wrong(name, expected));
        self.get(name).map(read).transpose()
    }

    fn number(&self, name: &str, most: u64) -> Result<Option<u64>, Refused> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number
            .map(Some)
            .ok_or_else(|| wrong(name, &format!("expected an integer from 1 to {most}")))
    }
}

fn wrong(name: &str, expected: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} cannot be read: {expected}"))
}

/// Whose data is asked for. It may be left out when the token names one tenant.
pub(super) fn tenant(token: &Token, named: Option<TenantId>) -> Result<TenantId, Refused> {
    let about = |refused: Refused| refused.about(Some("tenant_id".to_owned()));
    match (named, &token.tenants) {
        (Some(tenant), tenants) if tenants.allow(tenant) => Ok(tenant),
        (Some(_), _) => {
            let message = "tenant_id is not among the tenants of this token";
            Err(about(Refused::new(StatusCode::FORBIDDEN, "forbidden", message)))
        }
        (None, Tenants::Only(tenants)) if tenants.len() == 1 => Ok(tenants[0]),
        (None, _) => {
            let message = "tenant_id is missing: this token is good for several, name one";
            Err(about(Refused::malformed(None, message)))
        }
    }
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// A page.
    Json {
        /// Its points at the most.
        limit: u32,
    },
    /// All of it.
    Csv {
        /// Its rows at the most.
        rows: u64,
        /// Whether known gaps are rows too.
        gaps: bool,
    },
}

/// A range that is asked for.
#[derive(Debug)]
pub(super) struct Points {
    pub(super) range: Range,
    pub(super) after: Option<Cursor>,
    pub(super) format: Format,
}

/// Reads what is asked of `GET /api/v1/telemetry`.
pub(super) fn points(token: &Token, query: &str, now: Timestamp) -> Result<Points, Refused> {
    let known = [
        "tenant_id",
        "device_id",
        "metric_type",
        "from",
        "to",
        "resolution",
        "limit",
        "after",
        "format",
        "gaps",
    ];
    let asked = Parameters::read(query, &known)?;
    let tenant = tenant(token, asked.parse("tenant_id")?)?;
    asked.need("device_id")?;
    asked.need("metric_type")?;
    asked.need("from")?;
    let from = asked.time("from")?.unwrap_or(now);
    let to = asked.time("to")?.unwrap_or(now);
    let span = to.duration_since(from);
    if !span.is_positive() {
        return Err(Refused::malformed(Some("to"), "to is not after from"));
    }
    if span > MAX_RANGE {
        return Err(Refused::malformed(Some("from"), "the range is longer than 3660 days"));
    }
    let after: Option<Cursor> = asked.parse("after")?;
    let named = match asked.get("resolution") {
        None | Some("auto") => None,
        Some(_) => asked.parse("resolution")?,
    };
    let resolution = match (after, named) {
        (Some(after), Some(named)) if after.resolution != named => {
            let message = "after is of another resolution than the one asked for";
            return Err(Refused::malformed(Some("after"), message));
        }
        (Some(after), _) => after.resolution,
        (None, named) => named.unwrap_or_else(|| Resolution::automatic(span)),
    };
    let format = match asked.get("format") {
        None | Some("json") => {
            let limit = asked.number("limit", u64::from(MAX_PAGE))?;
            let limit = limit.and_then(|limit| u32::try_from(limit).ok());
            Format::Json { limit: limit.unwrap_or(POINTS) }
        }
        Some("csv") if after.is_some() => {
            return Err(Refused::malformed(Some("after"), "CSV has no pages: leave after out"));
        }
        Some("csv") => Format::Csv {
            rows: asked.number("limit", MAX_ROWS)?.unwrap_or(MAX_ROWS),
            gaps: match asked.get("gaps") {
                None | Some("count") => false,
                Some("rows") => true,
                Some(_) => return Err(wrong("gaps", "expected count or rows")),
            },
        },
        Some(_) => return Err(wrong("format", "expected json or csv")),
    };
    if asked.get("gaps").is_some() && matches!(format, Format::Json { .. }) {
        return Err(Refused::malformed(Some("gaps"), "JSON has the gaps: leave gaps out"));
    }
    let device: Option<DeviceId> = asked.parse("device_id")?;
    let range = Range {
        tenant: tenant.uuid(),
        device: device.map_or_else(Uuid::nil, DeviceId::uuid),
        metric: asked.metric()?.unwrap_or_default(),
        from,
        to,
        resolution,
    };
    Ok(Points { range, after, format })
}

/// Reads what is asked of the lists of series.
pub(super) fn series(token: &Token, query: &str) -> Result<series::Ask, Refused> {
    let known = ["tenant_id", "device_id", "metric_type", "limit", "after"];
    let asked = Parameters::read(query, &known)?;
    let limit = asked.number("limit", u64::from(series::MAX_PAGE))?;
    let limit = limit.and_then(|limit| u32::try_from(limit).ok());
    Ok(series::Ask {
        tenant: tenant(token, asked.parse("tenant_id")?)?.uuid(),
        device: asked.parse::<DeviceId>("device_id")?.map(DeviceId::uuid),
        metric: asked.metric()?,
        after: asked.parse("after")?,
        limit: limit.unwrap_or(SERIES),
    })
}
