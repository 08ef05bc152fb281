//! A word that is said once and heard by many: stop, or all is drained.

use tokio::sync::watch;

/// Who says it. When it is dropped, it counts as said.
#[derive(Debug)]
pub(crate) struct Sayer(watch::Sender<bool>);

/// Who hears it.
#[derive(Debug, Clone)]
pub(crate) struct Signal(watch::Receiver<bool>);

/// A word, not said yet.
pub(crate) fn signal() -> (Sayer, Signal) {
    let (sayer, hearer) = watch::channel(false);
    (Sayer(sayer), Signal(hearer))
}

impl Sayer {
    pub(crate) fn say(&self) {
        self.0.send_replace(true);
    }
}

impl Signal {
    pub(crate) async fn heard(&mut self) {
        let _ = self.0.wait_for(|said| *said).await;
    }

    pub(crate) fn is_said(&self) -> bool {
        *self.0.borrow()
    }
}
