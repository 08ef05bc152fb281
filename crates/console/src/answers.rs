//! Answers of upstreams that many browsers want, kept for a moment: however many ask, an upstream is asked once.
//!
//! A fault is kept too, for a second. An upstream that is away would otherwise be asked by everybody who waits, one after another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::upstream::Fault;

/// Answers kept of one kind; beyond it all are asked for again.
const MAX_KEPT: usize = 512;

/// How old a fault may be: whoever waits for an upstream to come back should not wait for us.
const FAULT_LIFE: Duration = Duration::from_secs(1);

type Answer<V> = Result<Arc<V>, Fault>;
type Place<V> = Arc<Mutex<Option<(Instant, Answer<V>)>>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Answers<K, V> {
    /// How old an answer may be.
    life: Duration,
    kept: Mutex<BTreeMap<K, Place<V>>>,
}

impl<K: Ord, V> Answers<K, V> {
    pub(crate) const fn new(life: Duration) -> Answers<K, V> {
        Answers { life, kept: Mutex::const_new(BTreeMap::new()) }
    }

    /// The answer for a key: the one that is kept, or what `ask` finds. Whoever comes second waits for the first one's answer.
    pub(crate) async fn get(
        &self,
        key: K,
        ask: impl AsyncFnOnce() -> Result<V, Fault>,
    ) -> Answer<V> {
        let place = self.place(key).await;
        let mut kept = place.lock().await;
        if let Some((answered, answer)) = &*kept
            && answered.elapsed() < self.life_of(answer)
        {
            return answer.clone();
        }
        let answer = ask().await.map(Arc::new);
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Somebody changed something: the next one asks again. An answer that is under way is for those who wait for it already.
    pub(crate) async fn forget(&self) {
        self.kept.lock().await.clear();
    }

    fn life_of(&self, answer: &Answer<V>) -> Duration {
        match answer {
            Ok(_) => self.life,
            Err(_) => self.life.min(FAULT_LIFE),
        }
    }

    async fn place(&self, key: K) -> Place<V> {
        let mut all = self.kept.lock().await;
        if !all.contains_key(&key) {
            // What is old is not held until somebody happens to ask for it again. One that is locked is being asked for.
            all.retain(|_, place| match place.try_lock() {
                Ok(kept) => kept.as_ref().is_some_and(|(at, one)| at.elapsed() < self.life_of(one)),
                Err(_) => true,
            });
            if all.len() >= MAX_KEPT {
                all.clear();
            }
        }
        Arc::clone(all.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn many_ask_once_and_an_absence_is_an_answer_too() {
        let answers: Answers<u8, usize> = Answers::new(LONG);
        let asked = AtomicUsize::new(0);
        let get = async |key: u8| {
            let ask = async || {
                tokio::task::yield_now().await;
                let before = asked.fetch_add(1, Ordering::Relaxed);
                match key {
                    0 => Ok(before),
                    _ => Err(Fault::Away("no connection".to_owned())),
                }
            };
            answers.get(key, ask).await
        };
        let found = join_all((0..50).map(|_| get(0))).await;
        assert!(found.iter().all(|answer| answer.as_deref().is_ok_and(|first| *first == 0)));
        let away = join_all((0..50).map(|_| get(1))).await;
        assert!(away.iter().all(Result::is_err));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        answers.forget().await;
        assert_eq!(*get(0).await.unwrap(), 2, "asked again");
    }

    #[tokio::test]
    async fn what_is_old_is_asked_again_and_not_held() {
        let answers: Answers<usize, usize> = Answers::new(Duration::ZERO);
        for turn in 0..3 {
            assert_eq!(*answers.get(0, async || Ok(turn)).await.unwrap(), turn);
        }
        for key in 1..2_000 {
            answers.get(key, async || Ok(key)).await.unwrap();
        }
        assert_eq!(answers.kept.lock().await.len(), 1, "those before it were old");
        let lasting: Answers<usize, usize> = Answers::new(LONG);
        for key in 0..2_000 {
            lasting.get(key, async || Ok(key)).await.unwrap();
        }
        assert!(lasting.kept.lock().await.len() <= MAX_KEPT);
    }
}
