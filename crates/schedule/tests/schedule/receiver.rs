//! A real HTTP server of a test, on a port of its own, that does to each request what the test says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// By name in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn key(&self) -> &str {
        &self.headers["idempotency-key"]
    }
}

/// What is done to a request.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    /// Answered with a status, headers and a body.
    Say(u16, &'static str, &'static str),
    /// The connection is closed without an answer.
    Drop,
    /// Nothing is ever answered.
    Hang,
}

pub(crate) const OK: Do = Do::Say(200, "", "{\"ok\":true}");

/// The server, until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    serving: JoinHandle<()>,
}

impl Receiver {
    /// `decide` gets the request and how many came before it.
    pub(crate) async fn start(
        decide: impl Fn(&Received, usize) -> Do + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Receiver::on(listener, decide)
    }

    pub(crate) fn on(
        listener: TcpListener,
        decide: impl Fn(&Received, usize) -> Do + Send + Sync + 'static,
    ) -> Receiver {
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (list, decide) = (received.clone(), Arc::new(decide));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (list, decide) = (list.clone(), decide.clone());
                connections.spawn(async move {
                    let _ = answer(stream, &list, &*decide).await;
                });
            }
        });
        Receiver { address, received, serving }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    mut stream: TcpStream,
    list: &Mutex<Vec<Received>>,
    decide: &(dyn Fn(&Received, usize) -> Do + Send + Sync),
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    while bytes.len() < head + 4 + length {
        stream.read_buf(&mut bytes).await?;
    }
    let request = Received { path, headers, body: bytes[head + 4..].to_vec() };
    let said = {
        let mut list = list.lock().unwrap();
        let said = decide(&request, list.len());
        list.push(request);
        said
    };
    match said {
        Do::Drop => {}
        Do::Hang => std::future::pending().await,
        Do::Say(status, more, body) => {
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} said\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
            );
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await?;
        }
    }
    Ok(())
}
