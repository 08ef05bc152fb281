//! How the historian's tables stand, counted: for its summary, and for who looks from outside.

use tokio_postgres::Client;

const ALARMS: &str = "SELECT count(*) FILTER (WHERE state = 'active_unacknowledged'),
        count(*) FILTER (WHERE state = 'active_acknowledged'),
        count(*) FILTER (WHERE state = 'cleared_unacknowledged'),
        count(*) FILTER (WHERE shelved_until IS NOT NULL)
    FROM alarm_state";

const DEAD: &str = "SELECT count(*) FROM (SELECT FROM historian_dead_letters LIMIT $1) AS few";

/// What is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Alarms that are active and that nobody has acknowledged.
    pub active_unacknowledged: i64,
    /// Alarms that are active and acknowledged.
    pub active_acknowledged: i64,
    /// Alarms that are over and that nobody has acknowledged.
    pub cleared_unacknowledged: i64,
    /// Alarms on a shelf.
    pub shelved: i64,
    /// Dead letters, counted up to a limit.
    pub dead_letters: i64,
}

/// Counts; dead letters up to `limit`, because "so many or more" costs little at any number.
pub async fn standing(client: &Client, limit: i64) -> Result<Standing, pg::Error> {
    let alarms = client.query_one(ALARMS, &[]).await?;
    let dead = client.query_one(DEAD, &[&limit]).await?;
    Ok(Standing {
        active_unacknowledged: alarms.get(0),
        active_acknowledged: alarms.get(1),
        cleared_unacknowledged: alarms.get(2),
        shelved: alarms.get(3),
        dead_letters: dead.get(0),
    })
}
