//! Waiting for a condition, never for time.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Short at first, because most conditions hold within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What a probe of [`eventually`] may answer.
///
/// A `bool` holds when true, an `Option` when there is something, and a `Result` when it is `Ok` of
/// something that holds, so that `Ok(false)` is waited on and not taken for success.
pub trait Condition {
    /// What is there when the condition holds.
    type Value;

    /// The value, or in words why the condition does not hold yet.
    fn settle(self) -> std::result::Result<Self::Value, String>;
}

impl Condition for bool {
    type Value = ();

    fn settle(self) -> std::result::Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

impl Condition for () {
    type Value = ();

    fn settle(self) -> std::result::Result<(), String> {
        Ok(())
    }
}

impl<T> Condition for Option<T> {
    type Value = T;

    fn settle(self) -> std::result::Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<C: Condition, E: Debug> Condition for std::result::Result<C, E> {
    type Value = C::Value;

    fn settle(self) -> std::result::Result<C::Value, String> {
        match self {
            Ok(condition) => condition.settle(),
            Err(error) => Err(format!("{error:?}")),
        }
    }
}

/// Asks `probe` again and again until its condition holds, and returns the value. After `within` it
/// gives up with an error that says what was waited for and what was there last; a probe that
/// returns `Err(what it saw)` makes that readable.
///
/// The probe is asked at least once, and it is not broken off: a probe that can hang needs a bound
/// of its own.
pub async fn eventually<C: Condition>(
    within: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> C,
) -> Result<C::Value> {
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        match probe().await.settle() {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= deadline => {
                bail!("waited {within:?} for {what}; last seen: {last}");
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn waits_until_it_holds() {
        let mut asked = 0;
        let value = eventually(LONG, "the third answer", async || {
            asked += 1;
            (asked == 3).then_some("here")
        })
        .await
        .unwrap();
        assert_eq!((value, asked), ("here", 3));
    }

    #[tokio::test]
    async fn ok_of_false_is_not_success() {
        let mut asked = 0;
        eventually(LONG, "true", async || {
            asked += 1;
            Ok::<bool, String>(asked == 2)
        })
        .await
        .unwrap();
        assert_eq!(asked, 2);
    }

    #[tokio::test]
    async fn the_error_says_what_was_missing() {
        let error = eventually(Duration::ZERO, "five rows", async || {
            Err::<(), String>("4 rows".to_owned())
        })
        .await
        .unwrap_err()
        .to_string();
        assert!(error.contains("five rows") && error.contains("4 rows"), "{error}");
    }
}
