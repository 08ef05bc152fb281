//! A message as an HTTP POST, signed.

use api::signature::{self, sign};
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use settings::Secret;

use super::answer::{Answer, retry_after};
use super::table::Message;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SIGNATURE: HeaderName = HeaderName::from_static(signature::HEADER);

/// Where messages are posted to.
#[derive(Clone)]
pub struct Webhook {
    /// The address.
    pub url: Url,
    /// What requests are signed with.
    pub secret: Option<Secret>,
}

impl std::fmt::Debug for Webhook {
    /// Without the path, which with many receivers is the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

impl Webhook {
    pub(super) async fn send(&self, client: &Client, message: &Message) -> Answer {
        let Ok(key) = HeaderValue::from_str(&message.notification_id) else {
            let message = "notification_id has a character that no HTTP header can have".to_owned();
            let code = "UNSENDABLE_ID".to_owned();
            return Answer::Never { reason: "unsendable", code, message };
        };
        // Texts, numbers and what was JSON before: nothing that could fail.
        let body = serde_json::to_vec(message).unwrap_or_default();
        let mut request = client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(IDEMPOTENCY_KEY, key);
        if let Some(secret) = &self.secret {
            request = request.header(SIGNATURE, sign(secret, Timestamp::now().as_second(), &body));
        }
        match request.body(body).send().await {
            Err(error) => Answer::lost(error),
            Ok(response) => {
                let wait = retry_after(response.headers(), Timestamp::now());
                judge(response.status(), wait)
            }
        }
    }
}

fn judge(status: StatusCode, retry_after: Option<std::time::Duration>) -> Answer {
    let (number, code) = (status.as_u16(), format!("HTTP_{}", status.as_u16()));
    match number {
        200..300 => Answer::Has,
        400 | 410 | 413 | 422 => {
            let message = format!("the webhook refuses this message with {number}");
            Answer::Never { reason: "refused", code, message }
        }
        401 | 403 | 404 | 405 | 407 | 408 | 425 | 429 => Answer::Down {
            why: format!("the webhook answers {number}{}", advice(status)),
            retry_after,
        },
        402..500 => {
            let message = format!("the webhook did not take this message: {number}");
            Answer::NotNow { code, message }
        }
        _ => Answer::Down { why: format!("the webhook answers {number}"), retry_after },
    }
}

/// What a person can do about an answer, where that is clear.
fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ": see whether schedule.deliver.webhook_secret is the receiver's"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            ": see whether schedule.deliver.webhook_url is the receiver's address"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_about_the_message_or_the_destination() {
        let code = |number| judge(StatusCode::from_u16(number).unwrap(), None);
        for number in [200, 202, 204] {
            assert_eq!(code(number), Answer::Has);
        }
        for number in [400, 410, 413, 422] {
            assert!(matches!(code(number), Answer::Never { .. }), "{number}");
        }
        for number in [402, 409, 415, 451] {
            assert!(matches!(code(number), Answer::NotNow { .. }), "{number}");
        }
        for number in [101, 301, 308, 401, 403, 404, 408, 425, 429, 500, 503] {
            assert!(matches!(code(number), Answer::Down { .. }), "{number}");
        }
    }
}
