//! Alarm floods: more than an operator can follow.
//!
//! ISA-18.2: more than ten alarms in ten minutes at one operator position begin a flood, fewer than five end it.

use std::str::FromStr;

const BEGINS_ABOVE: i64 = 10;
const ENDS_BELOW: i64 = 5;

/// What one operator looks after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// A plant.
    Plant,
    /// An area of a plant.
    Area,
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Position, String> {
        match text {
            "plant" => Ok(Position::Plant),
            "area" => Ok(Position::Area),
            _ => Err("expected plant or area".to_owned()),
        }
    }
}

/// Whether there is a flood, given whether there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// It begins.
    Begins,
    /// It goes on.
    GoesOn,
    /// It ends.
    Ends,
    /// There is none.
    None,
}

impl Flood {
    /// Judges the announcements of ten minutes.
    pub fn judge(was: bool, announced: i64) -> Flood {
        match (was, announced) {
            (false, n) if n > BEGINS_ABOVE => Flood::Begins,
            (false, _) => Flood::None,
            (true, n) if n < ENDS_BELOW => Flood::Ends,
            (true, _) => Flood::GoesOn,
        }
    }
}

/// Compares the last ten minutes with the floods that are known.
pub(super) async fn watch(
    transaction: &pg::Transaction<'_>,
    position: Position,
) -> Result<(), pg::Error> {
    let expression = match position {
        Position::Plant => "plant::text",
        Position::Area => "plant || '.' || area",
    };
    let query = format!(
        "SELECT position, coalesce(n, 0), f.id IS NOT NULL
         FROM (SELECT {expression} AS position, count(*) AS n FROM alarm_journal
               WHERE announced AND recorded_at > now() - interval '10 minutes' GROUP BY 1) AS counted
         FULL JOIN (SELECT id, position FROM alarm_floods WHERE ended_at IS NULL) AS f USING (position)"
    );
    for row in transaction.query(&query, &[]).await? {
        let (position, announced): (String, i64) = (row.get(0), row.get(1));
        match Flood::judge(row.get(2), announced) {
            Flood::Begins => {
                transaction
                    .execute(
                        "INSERT INTO alarm_floods (position, peak) VALUES ($1, $2)",
                        &[&position, &announced],
                    )
                    .await?;
                tracing::warn!(position, announced, "an alarm flood begins");
            }
            Flood::GoesOn => {
                transaction
                    .execute(
                        "UPDATE alarm_floods SET peak = $2
                         WHERE position = $1 AND ended_at IS NULL AND peak < $2",
                        &[&position, &announced],
                    )
                    .await?;
            }
            Flood::Ends => {
                transaction
                    .execute(
                        "UPDATE alarm_floods SET ended_at = now()
                         WHERE position = $1 AND ended_at IS NULL",
                        &[&position],
                    )
                    .await?;
                tracing::info!(position, "the alarm flood is over");
            }
            Flood::None => {}
        }
    }
    Ok(())
}

/// At how many positions a flood goes on.
pub(crate) async fn floods(client: &pg::Client) -> Result<i64, pg::Error> {
    let query = "SELECT count(*) FROM alarm_floods WHERE ended_at IS NULL";
    Ok(client.query_one(query, &[]).await?.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_in_ten_minutes_is_not_a_flood_yet_and_five_is_one_still() {
        assert_eq!(Flood::judge(false, 10), Flood::None);
        assert_eq!(Flood::judge(false, 11), Flood::Begins);
        assert_eq!(Flood::judge(true, 5), Flood::GoesOn);
        assert_eq!(Flood::judge(true, 4), Flood::Ends);
    }
}
