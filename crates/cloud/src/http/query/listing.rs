//! A list that can be asked for: its columns, its filters, its order.
//!
//! The texts of a [`Listing`] are written in this program; what the asker says is a parameter of the
//! statement, always.

use std::str::FromStr;

use pg::{About, Client};
use serde_json::{Value, json};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::parameters::Parameters;
use super::row;
use super::unavailable;
use crate::http::refused::Refused;

/// Rows of a page when nothing else is said.
const LIMIT: i64 = 100;
/// The most rows of a page.
const MAX_LIMIT: i64 = 1_000;
/// The longest text that is compared with a column.
const MAX_TEXT_CHARS: usize = 128;

/// What a parameter compares with a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Filter {
    /// The column of the same name is this id.
    Id(&'static str),
    /// The column of the same name is this text.
    Text(&'static str),
    /// The column of the same name is one of these words.
    Word(&'static str, &'static [&'static str]),
    /// The same, and it must be there.
    Needed(&'static str, &'static [&'static str]),
    /// The column of the same name is true, or false.
    Flag(&'static str),
    /// `from` and `to`: the column is a time in this range, the end not included.
    Range(&'static str),
    /// `from` and `to`: what begins with the first column and ends with the second lies in this range, if only in part.
    Overlap(&'static str, &'static str),
    /// `from` and `to`: the column is a day in this range, the end not included.
    Days(&'static str),
}

/// A list.
#[derive(Debug)]
pub(super) struct Listing {
    /// What is shown, each column under its name.
    pub(super) columns: &'static [&'static str],
    /// A table, or a statement in brackets; it has the column `tenant_id`.
    pub(super) table: &'static str,
    pub(super) filters: &'static [Filter],
    /// A key with its types, by which rows are ordered.
    pub(super) key: &'static [(&'static str, &'static str)],
    /// The newest first, unless asked otherwise.
    pub(super) newest_first: bool,
}

type Values = Vec<Box<dyn ToSql + Sync + Send>>;

/// A page to be fetched.
pub(super) struct Page {
    listing: &'static Listing,
    statement: String,
    /// After the tenant, which is the first.
    values: Values,
    limit: i64,
    /// It is after another page.
    goes_on: bool,
}

impl Filter {
    fn names(self) -> Vec<&'static str> {
        match self {
            Filter::Id(name) | Filter::Text(name) | Filter::Flag(name) => vec![name],
            Filter::Word(name, _) | Filter::Needed(name, _) => vec![name],
            Filter::Range(_) | Filter::Overlap(..) | Filter::Days(_) => vec!["from", "to"],
        }
    }
}

impl Listing {
    /// Every parameter that may be said.
    pub(super) fn parameters(&self) -> Vec<&'static str> {
        let mut names = vec!["tenant_id"];
        names.extend(self.filters.iter().flat_map(|filter| filter.names()));
        names.extend(["limit", "cursor", "order"]);
        names
    }

    /// The page that is asked for.
    pub(super) fn page(&'static self, parameters: &Parameters) -> Result<Page, Refused> {
        let mut values: Values = Vec::new();
        let mut conditions = String::from("tenant_id = $1");
        for filter in self.filters {
            filter.apply(parameters, &mut conditions, &mut values)?;
        }
        let limit = match parameters.get("limit") {
            None => LIMIT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| wrong("limit", &format!("an integer from 1 to {MAX_LIMIT}")))?,
        };
        let newest_first = match parameters.get("order") {
            None => self.newest_first,
            Some("asc") => false,
            Some("desc") => true,
            Some(_) => return Err(wrong("order", "asc or desc")),
        };
        let (direction, beyond) = if newest_first { ("DESC", "<") } else { ("ASC", ">") };
        if let Some(text) = parameters.get("cursor") {
            let place = row::read_cursor(text, self.key.len()).ok_or_else(|| {
                wrong("cursor", "the next_cursor of an earlier page of this list")
            })?;
            let mut casts = Vec::new();
            for ((_, kind), value) in self.key.iter().zip(place) {
                values.push(Box::new(value));
                casts.push(format!("${}::text::{kind}", values.len() + 1));
            }
            let names: Vec<&str> = self.key.iter().map(|(name, _)| *name).collect();
            conditions += &format!(" AND ({}) {beyond} ({})", names.join(", "), casts.join(", "));
        }
        let keys: Vec<String> =
            self.key.iter().map(|(name, _)| format!("({name})::text")).collect();
        let order: Vec<String> =
            self.key.iter().map(|(name, _)| format!("{name} {direction}")).collect();
        let statement = format!(
            "SELECT {}, ARRAY[{}] FROM {} q WHERE {conditions} ORDER BY {} LIMIT {}",
            self.columns.join(", "),
            keys.join(", "),
            self.table,
            order.join(", "),
            // One more says whether there is a next page.
            limit + 1
        );
        let goes_on = parameters.get("cursor").is_some();
        Ok(Page { listing: self, statement, values, limit, goes_on })
    }
}

impl Filter {
    fn apply(
        self,
        parameters: &Parameters,
        conditions: &mut String,
        values: &mut Values,
    ) -> Result<(), Refused> {
        let mut and = |column: &str, comparison: &str, value: Box<dyn ToSql + Sync + Send>| {
            values.push(value);
            // The tenant is the first.
            *conditions += &format!(" AND {column} {comparison} ${}", values.len() + 1);
        };
        match self {
            Filter::Id(name) => {
                if let Some(text) = parameters.get(name) {
                    let id = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
                    let id = id.ok_or_else(|| wrong(name, "a UUID of 36 characters"))?;
                    and(name, "=", Box::new(id));
                }
            }
            Filter::Text(name) => {
                if let Some(text) = parameters.get(name) {
                    let sound = (1..=MAX_TEXT_CHARS).contains(&text.chars().count())
                        && !text.chars().any(char::is_control);
                    if !sound {
                        return Err(wrong(name, "1 to 128 characters, none a control character"));
                    }
                    and(name, "=", Box::new(text.to_owned()));
                }
            }
            Filter::Word(name, words) | Filter::Needed(name, words) => {
                let expected = format!("one of {}", words.join(", "));
                match parameters.get(name) {
                    Some(text) if words.contains(&text) => {
                        and(name, "=", Box::new(text.to_owned()))
                    }
                    None if matches!(self, Filter::Word(..)) => {}
                    _ => return Err(wrong(name, &expected)),
                }
            }
            Filter::Flag(name) => {
                if let Some(text) = parameters.get(name) {
                    // Written into the statement, so that an index for rows with this flag serves it.
                    *conditions += match text {
                        "true" => format!(" AND {name}"),
                        "false" => format!(" AND NOT {name}"),
                        _ => return Err(wrong(name, "true or false")),
                    }
                    .as_str();
                }
            }
            Filter::Range(begins) | Filter::Overlap(begins, _) => {
                let ends = if let Filter::Overlap(_, ends) = self { ends } else { begins };
                let expected = "an RFC 3339 time with an offset, such as 2026-02-01T10:00:00Z";
                for (name, column, comparison) in [("from", ends, ">="), ("to", begins, "<")] {
                    if let Some(text) = parameters.get(name) {
                        let at = event::rfc3339(name, text);
                        and(column, comparison, Box::new(at.map_err(|_| wrong(name, expected))?));
                    }
                }
            }
            Filter::Days(column) => {
                for (name, comparison) in [("from", ">="), ("to", "<")] {
                    if let Some(text) = parameters.get(name) {
                        let day = jiff::civil::Date::from_str(text).ok();
                        let day = day.filter(|_| text.len() == "2026-02-01".len());
                        let day = day.ok_or_else(|| wrong(name, "a day such as 2026-02-01"))?;
                        and(column, comparison, Box::new(day));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Page {
    /// Asks the database.
    pub(super) async fn fetch(&self, client: &Client, tenant: Uuid) -> Result<Value, Refused> {
        let rows = async {
            let mut values: Vec<&(dyn ToSql + Sync)> = vec![&tenant];
            values.extend(self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)));
            // Not kept prepared: the plan should follow the values, and there are many texts.
            client.query(&self.statement, &values).await
        };
        let rows = rows.await.map_err(|error| match pg::about(&error) {
            // The other values were checked before; a cursor may hold what a type refuses.
            About::Data if self.goes_on => {
                wrong("cursor", "the next_cursor of an earlier page of this list")
            }
            _ => unavailable(&error.into()),
        })?;
        let columns = self.listing.columns.len();
        let shown = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let items: Result<Vec<Value>, _> =
            rows.iter().take(shown).map(|one| row::to_json(one, columns)).collect();
        let items = items.map_err(|error| unavailable(&error.into()))?;
        let next = rows.get(shown.saturating_sub(1)).filter(|_| rows.len() > shown);
        let next = next.map(|last| row::cursor(&last.get::<_, Vec<String>>(columns)));
        Ok(json!({"items": items, "next_cursor": next}))
    }
}

fn wrong(name: &str, expected: &str) -> Refused {
    Refused::malformed(Some(name), format!("{name} is not understood: expected {expected}"))
}
