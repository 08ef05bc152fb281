//! Simulated people whose weeks change: captures as a phone would send them, through intake and the object store.
//!
//! The first time everybody's whole week is sent; then, one after the other, a shift moves, goes elsewhere, comes or goes. A run that follows
//! goes on from what is stored.

use std::time::Duration;

use ::schedule::canonical::{Day, Shift};
use ::schedule::history;
use ::schedule::intake::{Intake, Kind};
use ::schedule::observation::Observation;
use anyhow::Context;
use jiff::civil::Date;
use rand::RngExt as _;

use crate::schedule::submit::send;

/// The people: number and name.
pub(crate) const PEOPLE: [(i64, &str); 3] = [(1001, "Anna"), (1002, "Ben"), (1003, "Chiara")];
/// Time from one capture of the first weeks to the next.
const FIRST_EVERY: Duration = Duration::from_millis(100);
/// How long nothing is tried after a failure.
const REST: Duration = Duration::from_secs(2);
const TITLES: [&str; 4] = ["early care", "late care", "night watch", "pharmacy"];
const PLACES: [&str; 4] = ["ward 3", "ward 5", "east gate", "main house"];
const CUSTOMERS: [&str; 2] = ["st. anna", "harbour clinic"];
const KINDS: [&str; 3] = ["regular", "on call", "overtime"];
const ZONE: &str = "Europe/Berlin";
/// Shifts move by this many minutes.
const STEP: u16 = 30;

/// What the simulation works with.
#[derive(Debug)]
pub(crate) struct People {
    pub(crate) intake: Intake,
    pub(crate) database: pg::Options,
    /// Time from one change to the next.
    pub(crate) every: Duration,
    /// The Monday of the week that changes.
    pub(crate) monday: Date,
}

impl People {
    /// Runs until dropped. What goes wrong is said and tried again.
    pub(crate) async fn run(self) {
        let http = reqwest::Client::new();
        loop {
            if let Err(error) = self.live(&http).await {
                tracing::warn!(error = %format!("{error:#}"), "simulated people rest for a while");
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn live(&self, http: &reqwest::Client) -> anyhow::Result<()> {
        let client = pg::connect(&self.database).await?;
        let mut weeks: Vec<(i64, Vec<Day>)> = Vec::new();
        for (user, _) in PEOPLE {
            let mut week = Vec::new();
            for date in self.monday.series(jiff::Span::new().days(1)).take(7) {
                let versions = history::versions(&client, user, date).await?;
                let known = versions.into_iter().next_back().map(|version| version.day);
                week.push(match known {
                    Some(day) => day,
                    None => {
                        let day = new_day(date);
                        self.capture(http, user, &day).await?;
                        tokio::time::sleep(FIRST_EVERY).await;
                        day
                    }
                });
            }
            weeks.push((user, week));
        }
        loop {
            tokio::time::sleep(self.every).await;
            let (user, week) = &mut weeks[rand::rng().random_range(0..PEOPLE.len())];
            let day =
                week.get_mut(rand::rng().random_range(0..7)).context("a week has seven days")?;
            change(day);
            self.capture(http, *user, day).await?;
        }
    }

    async fn capture(&self, http: &reqwest::Client, user: i64, day: &Day) -> anyhow::Result<()> {
        let seen = serde_json::to_vec(&Observation::from(day))?;
        send(&self.intake, http, user, None, vec![(Kind::Observation, seen)]).await?;
        Ok(())
    }
}

fn one(of: &[&str]) -> String {
    of[rand::rng().random_range(0..of.len())].to_owned()
}

fn clock(minutes: u16) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn minutes(clock: &str) -> u16 {
    let (hour, minute) = clock.split_once(':').unwrap_or((clock, "0"));
    hour.parse().unwrap_or(8) * 60 + minute.parse().unwrap_or(0)
}

/// A shift from this time on. It ends on the same day.
fn new_shift(start: u16) -> Shift {
    Shift {
        customer: one(&CUSTOMERS),
        end: clock(start + 4 * 60),
        ends_next_day: false,
        kind: KINDS[0].to_owned(),
        location: one(&PLACES),
        start: clock(start),
        title: one(&TITLES),
    }
}

fn new_day(schedule_date: Date) -> Day {
    let first = 6 * 60 + STEP * rand::rng().random_range(0..6);
    let second = 13 * 60 + STEP * rand::rng().random_range(0..6);
    let shifts = vec![new_shift(first), new_shift(second)];
    Day { schedule_date, shifts, timezone: ZONE.to_owned() }
}

/// Something happens to one shift of a day.
fn change(day: &mut Day) {
    let mut dice = rand::rng();
    if day.shifts.is_empty() {
        day.shifts.push(new_shift(8 * 60));
        return;
    }
    let which = dice.random_range(0..day.shifts.len());
    let shift = &mut day.shifts[which];
    match dice.random_range(0..6) {
        0 | 1 => {
            // Within the day, whichever way it moves.
            let start = minutes(&shift.start);
            let later = if start > 16 * 60 { start - 2 * STEP } else { start + STEP };
            *shift = Shift {
                start: clock(later),
                end: clock(later + 4 * 60),
                ends_next_day: false,
                ..shift.clone()
            };
        }
        2 => shift.location = one(&PLACES),
        3 => shift.title = one(&TITLES),
        4 => shift.kind = one(&KINDS),
        _ if day.shifts.len() > 1 => drop(day.shifts.remove(which)),
        _ => day.shifts.push(new_shift(17 * 60)),
    }
}

#[cfg(test)]
mod tests {
    use ::schedule::canonical::canonicalize;

    use super::*;

    #[test]
    fn every_day_can_be_read_however_often_it_changed() {
        let mut day = new_day(jiff::civil::date(2026, 11, 16));
        for _ in 0..2_000 {
            change(&mut day);
            let read = canonicalize(&Observation::from(&day)).unwrap();
            assert!((1..=3).contains(&read.shifts.len()), "{read:?}");
            assert!(read.shifts.iter().all(|shift| !shift.ends_next_day), "{read:?}");
        }
    }
}
