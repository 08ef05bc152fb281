//! What a destination said, and what of it is read. Shared by the channels.

use std::error::Error as _;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Response;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// However long a destination asks to be left alone, it is tried again after this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// The most of an answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The destination has it.
    Has,
    /// It will never take it.
    Never { reason: &'static str, code: String, message: String },
    /// It did not take it, and may another time.
    NotNow { code: String, message: String },
    /// Nothing about the message: the destination, or the way to it.
    Down { why: String, retry_after: Option<Duration> },
}

impl Answer {
    pub(super) fn down(why: impl Into<String>) -> Answer {
        Answer::Down { why: why.into(), retry_after: None }
    }

    /// The request did not get through. An address may hold a token, so the outer words, which repeat it, are left out.
    pub(super) fn lost(error: reqwest::Error) -> Answer {
        let kind = match () {
            () if error.is_timeout() => "no answer in time",
            () if error.is_connect() => "no connection",
            () => "the request was cut off",
        };
        let mut innermost = error.source();
        while let Some(deeper) = innermost.and_then(std::error::Error::source) {
            innermost = Some(deeper);
        }
        Answer::down(match innermost {
            Some(source) => format!("{kind}: {source}"),
            None => kind.to_owned(),
        })
    }
}

/// A pause within reason.
pub(super) fn bounded(asked: Duration) -> Duration {
    asked.min(MAX_RETRY_AFTER)
}

/// Seconds or a date, as the standard has it.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            Duration::try_from(date.duration_since(now)).unwrap_or_default()
        }
    };
    Some(bounded(asked))
}

/// The body of an answer, up to the limit. What is beyond it is not waited for.
pub(super) async fn body(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = MAX_ANSWER_BYTES - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if bytes.len() == MAX_ANSWER_BYTES {
            break;
        }
    }
    Ok(bytes)
}
