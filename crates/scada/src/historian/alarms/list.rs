//! Alarms as a person at the machine sees them.

use std::str::FromStr;

use event::scada::{AssetName, Tag};
use jiff::Timestamp;
use serde::Serialize;

use super::Key;

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let bad = || "expected PLANT.AREA.UNIT.TAG, each of A-Z, 0-9 and underscore".to_owned();
        let words: Vec<&str> = text.split('.').collect();
        let [plant, area, unit, tag] = words[..] else { return Err(bad()) };
        for name in [plant, area, unit] {
            name.parse::<AssetName>().map_err(|_| bad())?;
        }
        tag.parse::<Tag>().map_err(|_| bad())?;
        let [plant, area, unit, tag] = [plant, area, unit, tag].map(str::to_owned);
        Ok(Key { plant, area, unit, tag })
    }
}

/// Which alarms are meant.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// This one.
    pub key: Option<Key>,
    /// Of this plant.
    pub plant: Option<String>,
    /// Those that are normal too.
    pub all: bool,
    /// The most.
    pub limit: i64,
}

/// An alarm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlarmView {
    /// The site.
    pub plant: String,
    /// The area of the site.
    pub area: String,
    /// The work unit of the area.
    pub unit_name: String,
    /// The alarm.
    pub tag: String,
    /// Where it stands.
    pub state: String,
    /// How bad it is.
    pub severity: String,
    /// The value of its latest message.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// When it was last raised.
    pub last_raised_at: Option<Timestamp>,
    /// Until when it is shelved.
    pub shelved_until: Option<Timestamp>,
    /// Who shelved it.
    pub shelved_by: Option<String>,
    /// Who acknowledged it.
    pub acknowledged_by: Option<String>,
    /// Whether it comes and goes too often.
    pub chattering: bool,
}

impl AlarmView {
    /// Which alarm it is.
    pub fn key(&self) -> Key {
        Key {
            plant: self.plant.clone(),
            area: self.area.clone(),
            unit: self.unit_name.clone(),
            tag: self.tag.clone(),
        }
    }
}

/// Those that are meant, the latest raised first.
pub async fn list(client: &pg::Client, shown: &Shown) -> Result<Vec<AlarmView>, pg::Error> {
    let part = |get: fn(&Key) -> &String| shown.key.as_ref().map(get);
    let rows = client
        .query(
            "SELECT plant, area, unit_name, tag, state, severity, value, unit, last_raised_at, shelved_until,
                 shelved_by, acknowledged_by, coalesce(chattering_until > now(), false)
             FROM alarm_state
             WHERE ($1::text IS NULL OR plant = $1) AND ($2 OR state <> 'normal')
               AND ($3::text IS NULL OR (plant, area, unit_name, tag) = ($3, $4, $5, $6))
             ORDER BY last_raised_at DESC NULLS LAST, plant, area, unit_name, tag LIMIT $7",
            &[
                &shown.plant,
                &shown.all,
                &part(|key| &key.plant),
                &part(|key| &key.area),
                &part(|key| &key.unit),
                &part(|key| &key.tag),
                &shown.limit,
            ],
        )
        .await?;
    let view = |row: &tokio_postgres::Row| AlarmView {
        plant: row.get(0),
        area: row.get(1),
        unit_name: row.get(2),
        tag: row.get(3),
        state: row.get(4),
        severity: row.get(5),
        value: row.get(6),
        unit: row.get(7),
        last_raised_at: row.get(8),
        shelved_until: row.get(9),
        shelved_by: row.get(10),
        acknowledged_by: row.get(11),
        chattering: row.get(12),
    };
    Ok(rows.iter().map(view).collect())
}
