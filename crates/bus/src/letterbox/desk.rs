//! How a process that serves operators works with a letterbox.
//!
//! Promises: a letterbox is looked at once at a time and for a tenth of the time at most, however many ask; a look that nobody waits for any
//! more ends all the same, so that the next asker finds it. While letters are replayed they are in hand and a look would not see them, so the
//! last one is answered. A replay runs in the background, says how far it is every second, and ends with the desk: what is not done then stays where it is.
//! Two replays never run at once here; that none runs elsewhere is the caller's part, before [`Desk::start`].
//!
//! It fails with [`LetterboxError`], which is remembered as long as a look is, so that a broker that is away is not asked by everybody.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::{Letterbox, LetterboxError};
use crate::dead_letter::by_cause_and;
use crate::{CauseGroup, DeadLetter, Filter, Progress, ReplayOptions};

/// The most letters that a look groups.
pub const LOOK_LIMIT: usize = 5_000;
/// A look is good for this long at least.
const FRESH: Duration = Duration::from_secs(5);
/// And for this many times as long as it took: a large letterbox is looked at less often.
const FRESH_TIMES: u32 = 10;
/// It ends after this long.
const LOOK_WITHIN: Duration = Duration::from_secs(90);
/// How long one waits for its turn that nothing can be answered instead of.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// How often a replay says how far it is.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// What a look found.
#[derive(Debug, Clone)]
pub struct Look<K> {
    /// The letters by the caller's key, queue, cause and routing key; the largest group first.
    pub groups: Vec<(K, CauseGroup)>,
    /// How many were looked at.
    pub looked_at: u64,
    /// How many there were.
    pub total: u64,
    /// When.
    pub at: Timestamp,
}

/// Where a replay says how it goes. It lives as long as the replay.
pub trait Record: Send + Sync {
    /// So far.
    fn note(&self, progress: Progress) -> BoxFuture<'_, ()>;

    /// How it ended; `failed` says why it ended early.
    fn finish(
        self: Box<Self>,
        progress: Progress,
        failed: Option<String>,
    ) -> BoxFuture<'static, ()>;
}

type Found<K> = Result<Arc<Look<K>>, Arc<LetterboxError>>;

/// A look that has ended.
struct Last<K> {
    at: Instant,
    good_for: Duration,
    found: Found<K>,
}

impl<K> Last<K> {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < self.good_for
    }
}

/// A letterbox that several people work with.
pub struct Desk<K> {
    shared: Arc<Shared<K>>,
    replay: Mutex<Option<AbortHandle>>,
}

struct Shared<K> {
    letterbox: Arc<dyn Letterbox>,
    key: fn(&DeadLetter) -> K,
    /// Who works with the letters: a look, or a replay.
    turn: Arc<Turn<()>>,
    last: Mutex<Option<Arc<Last<K>>>>,
}

impl<K> std::fmt::Debug for Desk<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl<K> Drop for Desk<K> {
    fn drop(&mut self) {
        let replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(replay) = replay {
            replay.abort();
        }
    }
}

impl<K: Ord + Send + Sync + 'static> Desk<K> {
    /// A desk at this letterbox; `key` says what letters are grouped by besides queue, cause and routing key.
    pub fn new(letterbox: Arc<dyn Letterbox>, key: fn(&DeadLetter) -> K) -> Desk<K> {
        let (turn, last) = (Arc::new(Turn::new(())), Mutex::new(None));
        Desk { shared: Arc::new(Shared { letterbox, key, turn, last }), replay: Mutex::new(None) }
    }

    /// The dead letters by cause, as they are or were a moment ago.
    pub async fn look(&self) -> Found<K> {
        if let Some(last) = self.shared.last().filter(|last| last.is_fresh()) {
            return last.found.clone();
        }
        let turn = match Arc::clone(&self.shared.turn).try_lock_owned() {
            Ok(turn) => turn,
            Err(_) => match self.last() {
                Some(look) => return Ok(look),
                None => {
                    let turn = Arc::clone(&self.shared.turn).lock_owned();
                    let turn = tokio::time::timeout(TURN_WITHIN, turn).await;
                    turn.map_err(|_| Arc::new(LetterboxError::InUse))?
                }
            },
        };
        let shared = Arc::clone(&self.shared);
        let looking = tokio::spawn(async move { shared.look(turn).await });
        // It ends badly only while the process does.
        looking
            .await
            .unwrap_or_else(|error| Err(Arc::new(LetterboxError::Store(error.to_string()))))
    }

    /// What the last look found that worked, however old it is.
    pub fn last(&self) -> Option<Arc<Look<K>>> {
        self.shared.last().and_then(|last| last.found.clone().ok())
    }

    /// Has somebody look again when the last look is older than this, and does not wait for it.
    pub fn refresh(&self, older_than: Duration) {
        if self.shared.last().is_some_and(|last| last.at.elapsed() < older_than) {
            return;
        }
        if let Ok(turn) = Arc::clone(&self.shared.turn).try_lock_owned() {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move { shared.look(turn).await.map(drop) });
        }
    }

    /// Begins a replay in the background.
    pub fn start(&self, options: ReplayOptions, record: Box<dyn Record>) {
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(async move { shared.replay(options, record).await });
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        *replay = Some(task.abort_handle());
    }
}

impl<K: Ord> Shared<K> {
    fn last(&self) -> Option<Arc<Last<K>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, last: Option<Arc<Last<K>>>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    async fn look(&self, turn: OwnedMutexGuard<()>) -> Found<K> {
        // Somebody may have looked while this one waited for its turn.
        if let Some(last) = self.last().filter(|last| last.is_fresh()) {
            return last.found.clone();
        }
        let (everything, began) = (Filter::default(), Instant::now());
        let listed = self.letterbox.list(&everything, LOOK_LIMIT);
        let found = match tokio::time::timeout(LOOK_WITHIN, listed).await {
            Ok(Ok(listing)) => Ok(Arc::new(Look {
                groups: by_cause_and(&listing.letters, self.key),
                looked_at: listing.scanned,
                total: listing.total,
                at: Timestamp::now(),
            })),
            Ok(Err(error)) => Err(Arc::new(error)),
            Err(_) => Err(Arc::new(LetterboxError::TooLong(LOOK_WITHIN.as_secs()))),
        };
        if let Err(error) = &found {
            tracing::warn!(%error, "dead letters cannot be looked at");
        }
        let good_for = match &found {
            Ok(_) => (began.elapsed() * FRESH_TIMES).max(FRESH),
            Err(_) => FRESH,
        };
        self.keep(Some(Arc::new(Last { at: Instant::now(), good_for, found: found.clone() })));
        drop(turn);
        found
    }

    async fn replay(&self, options: ReplayOptions, record: Box<dyn Record>) {
        let _turn = self.turn.lock().await;
        let told = Mutex::new(Progress::default());
        let now = || *told.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = |progress: Progress| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) =
                progress.changing(!options.dry_run);
        };
        let mut note = tokio::time::interval(NOTE_EVERY);
        note.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut replay = self.letterbox.replay(&options, &tell);
        let done = loop {
            tokio::select! {
                done = &mut replay => break done,
                _ = note.tick() => record.note(now()).await,
            }
        };
        drop(replay);
        let failed = match done {
            Ok(report) => {
                for (message_id, why) in &report.kept {
                    tracing::warn!(message_id, why, "a dead letter stays");
                }
                None
            }
            Err(error) => {
                tracing::warn!(%error, "a replay of dead letters has ended early");
                Some(error.to_string())
            }
        };
        // What was looked at before is not so any more.
        self.keep(None);
        record.finish(now(), failed).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::{Notify, mpsc};

    use super::*;
    use crate::{Cause, Listing, Message, Replayed};

    /// A letterbox that is told when to go on.
    #[derive(Default)]
    struct Slow {
        looks: AtomicU64,
        go_on: Notify,
    }

    impl Letterbox for Slow {
        fn list<'a>(
            &'a self,
            _filter: &'a Filter,
            _limit: usize,
        ) -> BoxFuture<'a, Result<Listing, LetterboxError>> {
            Box::pin(async move {
                self.looks.fetch_add(1, Ordering::SeqCst);
                self.go_on.notified().await;
                let letter = DeadLetter {
                    message: Message::json("e", "k", "m-1", "{}"),
                    queue: Some("q".to_owned()),
                    cause: Cause::new("a", "why"),
                    attempts: 1,
                    replayed: 0,
                    dead_lettered_at: None,
                    deaths: Vec::new(),
                };
                Ok(Listing { letters: vec![letter], scanned: 1, total: 1 })
            })
        }

        fn replay<'a>(
            &'a self,
            _options: &'a ReplayOptions,
            tell: &'a super::super::Tell<'a>,
        ) -> BoxFuture<'a, Result<Replayed, LetterboxError>> {
            Box::pin(async move {
                tell(Progress { seen: 1, total: 2, matched: 1, changed: 1 });
                self.go_on.notified().await;
                Err(LetterboxError::Store("it broke".to_owned()))
            })
        }
    }

    struct Told(mpsc::Sender<(Progress, Option<String>)>);

    impl Record for Told {
        fn note(&self, _progress: Progress) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn finish(
            self: Box<Self>,
            progress: Progress,
            failed: Option<String>,
        ) -> BoxFuture<'static, ()> {
            Box::pin(async move { self.0.send((progress, failed)).await.unwrap() })
        }
    }

    fn desk() -> (Arc<Slow>, Arc<Desk<()>>) {
        let slow = Arc::new(Slow::default());
        let letterbox: Arc<dyn Letterbox> = Arc::clone(&slow) as _;
        (slow, Arc::new(Desk::new(letterbox, |_| ())))
    }

    #[tokio::test]
    async fn many_askers_share_one_look_and_one_that_left_does_not_end_it() {
        let (slow, desk) = desk();
        let impatient = Arc::clone(&desk);
        let impatient = tokio::spawn(async move { impatient.look().await.map(drop) });
        while slow.looks.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        impatient.abort();
        let asked = (0..10).map(|_| desk.look());
        let asked = futures_util::future::join_all(asked);
        slow.go_on.notify_one();
        for look in asked.await {
            assert_eq!((look.unwrap().total, slow.looks.load(Ordering::SeqCst)), (1, 1));
        }
    }

    #[tokio::test]
    async fn while_letters_are_in_hand_the_last_look_is_answered_and_the_end_is_told() {
        let (slow, desk) = desk();
        slow.go_on.notify_one();
        desk.look().await.unwrap();
        let (sender, mut ended) = mpsc::channel(1);
        let options = ReplayOptions { dry_run: false, ..ReplayOptions::default() };
        desk.start(options.clone(), Box::new(Told(sender.clone())));
        while desk.shared.turn.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        desk.refresh(Duration::ZERO);
        assert_eq!(desk.look().await.unwrap().total, 1);
        assert_eq!(slow.looks.load(Ordering::SeqCst), 1, "nobody looks meanwhile");
        slow.go_on.notify_one();
        let (progress, failed) = ended.recv().await.unwrap();
        assert_eq!((progress.changed, failed.as_deref()), (1, Some("it broke")));
        assert!(desk.last().is_none(), "what was seen before is not so any more");
        // A dry run has changed nothing.
        desk.start(ReplayOptions { dry_run: true, ..options }, Box::new(Told(sender)));
        slow.go_on.notify_one();
        assert_eq!(ended.recv().await.unwrap().0.changed, 0);
    }

    #[tokio::test]
    async fn a_replay_ends_with_its_desk() {
        let (_, desk) = desk();
        let (sender, mut ended) = mpsc::channel(1);
        desk.start(ReplayOptions::default(), Box::new(Told(sender)));
        drop(desk);
        assert!(ended.recv().await.is_none(), "it was cut off, and told nobody");
    }
}
