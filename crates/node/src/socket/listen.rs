//! The listening socket: one node a path, a bounded number of samplers.

use super::connection;
use crate::config::Identity;
use crate::vitals::Vitals;
use spool::Spool;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

/// Bytes of all samplers that may be on their way to the disk. Half of what the spool's own queue takes, so
/// that it is never found full and nobody is refused for want of a queue.
const BYTES_TO_DISK: u32 = 2 * 1024 * 1024;
/// What a submission counts at least, which bounds how many there are.
const MIN_SUBMISSION: u32 = 1024;

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A node answers at this path.
    #[error("another node answers at {path}: stop it first, or give this one its own socket", path = .0.display())]
    Taken(PathBuf),
    /// Something that is not a socket is in the way; it is left alone.
    #[error("{path} is there and is not a socket: move it away", path = .0.display())]
    NotASocket(PathBuf),
    /// The system refuses.
    #[error("cannot open the sampler socket {path}: {source}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Opens the socket. A file that a dead node left behind is replaced; a living node's is not.
pub(crate) fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(ListenError::Taken(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        },
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let group_only = std::fs::Permissions::from_mode(0o660);
    std::fs::set_permissions(path, group_only).map_err(failed)?;
    Ok(listener)
}

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Samplers {
    pub(super) identity: Arc<Identity>,
    pub(super) vitals: Arc<Vitals>,
    spool: Spool,
    to_disk: Arc<Semaphore>,
    connections: usize,
}

impl Samplers {
    pub(crate) fn new(
        identity: Identity,
        vitals: Arc<Vitals>,
        spool: Spool,
        connections: usize,
    ) -> Samplers {
        let to_disk = Arc::new(Semaphore::new(BYTES_TO_DISK as usize));
        Samplers { identity: Arc::new(identity), vitals, spool, to_disk, connections }
    }

    /// Accepts until told to stop; then every pending reply is written before it returns.
    pub(crate) async fn serve(self, listener: UnixListener, mut stop: watch::Receiver<bool>) {
        let mut open: JoinSet<()> = JoinSet::new();
        loop {
            while open.try_join_next().is_some() {
                self.vitals.sampler(false);
            }
            tokio::select! {
                () = told_to_stop(&mut stop) => break,
                Some(_) = open.join_next() => { self.vitals.sampler(false); }
                accepted = listener.accept(), if open.len() < self.connections => match accepted {
                    Ok((stream, _)) => {
                        self.vitals.sampler(true);
                        open.spawn(connection::serve(stream, self.clone(), stop.clone()));
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely. Give others the time to close some.
                        tracing::warn!(%error, "cannot accept a sampler");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {
            self.vitals.sampler(false);
        }
    }

    /// Hands records to the spool; the receiver hears of them after the sync.
    pub(super) async fn submit(
        &self,
        records: Vec<(u8, Vec<u8>)>,
    ) -> oneshot::Receiver<Result<RangeInclusive<u64>, spool::Error>> {
        let (sender, receiver) = oneshot::channel();
        let bytes: usize = records.iter().map(|(_, bytes)| bytes.len()).sum();
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(MIN_SUBMISSION, BYTES_TO_DISK);
        // The semaphore is never closed, so there is always a permit in the end.
        let permit = Arc::clone(&self.to_disk).acquire_many_owned(permits).await;
        let done = Box::new(move |outcome| {
            drop(permit);
            // A sampler that has gone does not hear of it; it will send again.
            let _ = sender.send(outcome);
        });
        if let Err(error) = self.spool.try_submit(records, done) {
            let (sender, receiver) = oneshot::channel();
            let _ = sender.send(Err(error));
            return receiver;
        }
        receiver
    }
}

/// Ready once the node stops; also if nobody is left to say so.
pub(super) async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
