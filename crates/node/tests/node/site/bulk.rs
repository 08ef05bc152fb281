//! The edge's HTTP side, with a memory instead of a database.

use super::edge::Memory;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use event::wire::Limits;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "node-secret-that-is-never-shown";

#[derive(Default)]
pub(crate) struct Served {
    pub(crate) memory: Memory,
    pub(crate) posts: u64,
    /// Answers to give before anything is taken.
    pub(crate) refusals: VecDeque<StatusCode>,
}

/// A listening edge.
pub(crate) struct BulkEdge {
    pub(crate) addr: SocketAddr,
    served: Arc<Mutex<Served>>,
    task: JoinHandle<()>,
}

impl BulkEdge {
    pub(crate) async fn start() -> BulkEdge {
        let served = Arc::new(Mutex::new(Served::default()));
        let app = Router::new()
            .route("/api/v1/nodes/{node}/backfill", post(take))
            .layer(DefaultBodyLimit::max(Limits::HTTP.wire_bytes))
            .with_state(Arc::clone(&served));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        BulkEdge { addr, served, task }
    }

    pub(crate) fn served(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for BulkEdge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(
    State(served): State<Arc<Mutex<Served>>>,
    Path(node): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let mut served = served.lock().unwrap();
    served.posts += 1;
    assert_eq!(node, super::NODE);
    assert_eq!(headers["content-type"], "application/json");
    if headers["authorization"] != format!("Bearer {SECRET}") {
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    if let Some(refusal) = served.refusals.pop_front() {
        return (refusal, String::new());
    }
    let ack = served.memory.take(&body, &Limits::HTTP);
    (StatusCode::OK, ack.to_json())
}
