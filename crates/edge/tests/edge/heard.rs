//! What a test's own thread logs. A test that hears it runs on one thread, so that it hears everything.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, Once};
use std::thread::ThreadId;

use tracing::Level;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::prelude::*;

/// Crates whose every line is heard. Of the libraries, and of the stores and clients that a test has in its own process, what an operator's log
/// shows unless told otherwise.
const OWN: [&str; 7] = ["api", "edge", "event", "lease", "mqtt", "objects", "pg"];

type Lines = Arc<Mutex<Vec<u8>>>;

static THREADS: LazyLock<Mutex<HashMap<ThreadId, Lines>>> = LazyLock::new(Mutex::default);
static LISTEN: Once = Once::new();

/// The log of a thread, from now on.
pub(crate) struct Heard(Lines);

impl Heard {
    pub(crate) fn here() -> Heard {
        // For the whole process, because a thread's own subscriber misses callsites that other tests meet first; it hears
        // the threads that ask for it alone.
        LISTEN.call_once(|| {
            let asked = dynamic_filter_fn(|metadata, _| {
                let own =
                    metadata.target().split("::").next().is_some_and(|name| OWN.contains(&name));
                (own || *metadata.level() <= Level::INFO)
                    && THREADS.lock().unwrap().contains_key(&std::thread::current().id())
            });
            let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Sink);
            tracing_subscriber::registry().with(layer.with_filter(asked)).init();
        });
        let lines = Lines::default();
        THREADS.lock().unwrap().insert(std::thread::current().id(), Arc::clone(&lines));
        Heard(lines)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(lines) = THREADS.lock().unwrap().get(&std::thread::current().id()) {
            lines.lock().unwrap().extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
