//! A door before an object store: one request, or its answer, waits there until the test has seen it.
//!
//! It passes bytes on as they are, so signatures hold: whoever is led through it signs for the door's address. A client waits for the
//! answer before it sends the next request on a connection, so a request begins where a piece of bytes begins.

use std::sync::Arc;

use anyhow::{Context, Result};
use objects::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PIECE_BYTES: usize = 64 << 10;

/// What is held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The request: the store does not hear of it.
    Request,
    /// The answer: the store has done it, and whoever asked does not know.
    Answer,
}

/// Which request: its method, a part of its path and query, and what of it is held up.
#[derive(Debug, Clone, Copy)]
pub struct Knock {
    /// Such as `PUT`.
    pub method: &'static str,
    /// Such as `/manifest.json`.
    pub target: &'static str,
    /// It, or its answer.
    pub held: Held,
}

impl Knock {
    fn is(&self, piece: &[u8]) -> bool {
        let line = piece.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let Some(target) = line.strip_prefix(self.method).and_then(|rest| rest.strip_prefix(' '))
        else {
            return false;
        };
        target.ends_with(" HTTP/1.1") && target.contains(self.target)
    }
}

#[derive(Debug, Default)]
struct State {
    wanted: watch::Sender<Option<Knock>>,
    /// How many have been held up.
    waiting: watch::Sender<usize>,
}

/// The door. Dropped, it is gone with what waits there.
#[derive(Debug)]
pub struct StoreDoor {
    address: Address,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

impl StoreDoor {
    /// A door before a bucket. It lets everything through.
    pub async fn before(store: &Address) -> Result<StoreDoor> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let to = store.url.socket_addrs(|| None)?;
        let to = *to.first().context("the store has no address")?;
        let mut address = store.clone();
        address.url = format!("http://{}", listener.local_addr()?).parse()?;
        let state = Arc::<State>::default();
        let door = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let door = Arc::clone(&door);
                tokio::spawn(async move {
                    if let Ok(store) = TcpStream::connect(to).await {
                        let _ = pass(client, store, &door).await;
                    }
                });
            }
        });
        Ok(StoreDoor { address, state, serving })
    }

    /// The bucket behind it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Closes it for one kind of request.
    pub fn close_for(&self, knock: Knock) {
        self.state.waiting.send_replace(0);
        self.state.wanted.send_replace(Some(knock));
    }

    /// Opens it. Who waits there goes on; nothing is passed on for one that is gone.
    pub fn open(&self) {
        self.state.wanted.send_replace(None);
    }

    /// Whether somebody waits there.
    pub fn is_knocked_at(&self) -> bool {
        *self.state.waiting.borrow() > 0
    }
}

impl Drop for StoreDoor {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Passes bytes both ways until either side ends.
async fn pass(mut client: TcpStream, mut store: TcpStream, door: &State) -> std::io::Result<()> {
    let (mut asked, mut answered) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut hold_answer = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let piece = &asked[..read?];
                if piece.is_empty() {
                    return Ok(());
                }
                let knock = door.wanted.borrow().filter(|knock| knock.is(piece));
                let held = knock.map(|knock| knock.held);
                hold_answer |= held == Some(Held::Answer);
                let mut rest = Vec::new();
                if held == Some(Held::Request) {
                    let Some(more) = wait(&mut client, door).await? else { return Ok(()) };
                    rest = more;
                }
                store.write_all(piece).await?;
                store.write_all(&rest).await?;
            }
            read = store.read(&mut answered) => {
                let piece = &answered[..read?];
                if piece.is_empty() {
                    return Ok(());
                }
                if std::mem::take(&mut hold_answer) {
                    let Some(rest) = wait(&mut client, door).await? else { return Ok(()) };
                    store.write_all(&rest).await?;
                }
                client.write_all(piece).await?;
            }
        }
    }
}

/// Says that somebody is here, and waits until the door is opened: what has come of the request meanwhile. `None` when who waited is
/// gone.
async fn wait(client: &mut TcpStream, door: &State) -> std::io::Result<Option<Vec<u8>>> {
    let mut wanted = door.wanted.subscribe();
    door.waiting.send_modify(|waiting| *waiting += 1);
    let (mut rest, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
    loop {
        tokio::select! {
            // Looked at first: a door that is opened after a kill must find nobody.
            biased;
            read = client.read(&mut piece) => match read? {
                0 => return Ok(None),
                read => rest.extend_from_slice(&piece[..read]),
            },
            opened = wanted.wait_for(Option::is_none) => return Ok(opened.is_ok().then_some(rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_its_first_line() {
        let knock = Knock { method: "PUT", target: "/manifest.json", held: Held::Request };
        assert!(knock.is(b"PUT /b/edge/manifest.json?x=1 HTTP/1.1\r\nhost: a\r\n\r\n{}"));
        assert!(!knock.is(b"GET /b/edge/manifest.json HTTP/1.1\r\n\r\n"));
        assert!(!knock.is(b"PUT /b/other HTTP/1.1\r\nx: /manifest.json\r\n\r\n"));
        assert!(!knock.is(b"PUT bytes of a body /manifest.json"));
    }
}
