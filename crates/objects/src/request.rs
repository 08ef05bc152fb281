//! One request: signed, sent within a time limit, tried again when the store is the reason.
//!
//! Every request is signed in its address, as a presigned one is, so that there is one way of signing.

use std::time::Duration;

use bytes::Bytes;
use instant_xml::FromXml;
use reqwest::{Method, Response, Url};

use crate::{Bucket, Error};

/// How long a signed address of ours works: longer than any one request takes.
pub(crate) const SIGNED_FOR: Duration = Duration::from_secs(600);
/// How long one request may take, with its body; reading goes by silence.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);
/// How often a request is tried.
const ATTEMPTS: u32 = 3;
/// The pause after the first failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The largest answer that is read to understand it: a full page of keys has less.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// What is sent beside the address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Headers; those that are signed are in the address as well.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

impl Bucket {
    /// Sends a request, and again if the store is away. `address` signs anew for each attempt.
    pub(crate) async fn send(
        &self,
        request: Request,
        address: impl Fn() -> Url,
    ) -> Result<Response, Error> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self.attempt(&request, address()).await {
                Err(error) if error.is_passing() => {
                    // Some of the pause is random, so that many who failed together come apart.
                    tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        self.attempt(&request, address()).await
    }

    async fn attempt(&self, request: &Request, address: Url) -> Result<Response, Error> {
        let mut sending = self.client().request(request.method.clone(), address);
        if request.method != Method::GET {
            // A large object takes its time; one that stops coming is given up by the client's own limit.
            sending = sending.timeout(WITHIN);
        }
        for (name, value) in &request.headers {
            sending = sending.header(*name, value);
        }
        if matches!(request.method, Method::PUT | Method::POST) {
            // An empty body would go without its length otherwise, which S3 refuses.
            sending =
                sending.header("content-length", request.body.len()).body(request.body.clone());
        }
        let answer = sending.send().await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        // The store's word is worth having; the verdict does not wait for it.
        let said = text(answer).await.unwrap_or_default();
        Err(Error::from_answer(status, &code(&said)))
    }
}

/// A body, of a bounded size.
pub(crate) async fn body(mut answer: Response, limit: u64) -> Result<Vec<u8>, Error> {
    let mut whole = Vec::new();
    while let Some(part) = answer.chunk().await? {
        if (whole.len() + part.len()) as u64 > limit {
            return Err(Error::TooLarge { limit });
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

/// An answer that is text for us.
pub(crate) async fn text(answer: Response) -> Result<String, Error> {
    let bytes = body(answer, MAX_ANSWER_BYTES).await?;
    String::from_utf8(bytes).map_err(|error| Error::Answer(error.to_string()))
}

#[derive(FromXml)]
#[xml(rename = "Error")]
struct Said {
    #[xml(rename = "Code")]
    code: String,
}

/// The store's word in the body of a refusal.
pub(crate) fn code(said: &str) -> String {
    instant_xml::from_str::<Said>(said).map(|said| said.code).unwrap_or_default()
}
