//! A message by the Telegram Bot API's `sendMessage`. The token is in the address, so no address is ever shown.

use std::time::Duration;

use reqwest::{Client, Url};
use serde::{Deserialize, Serialize};
use settings::Secret;

use super::answer::{Answer, body, bounded};
use super::table::Message;

/// The longest text, in UTF-16 units, which is how Telegram counts.
const MAX_TEXT: usize = 4096;
/// The most of Telegram's words that are kept.
const MAX_WORDS: usize = 200;

/// A bot.
#[derive(Debug, Clone)]
pub struct Telegram {
    /// Where the Bot API is.
    pub url: Url,
    /// The bot's token.
    pub token: Secret,
}

#[derive(Serialize)]
struct SendMessage<'a> {
    chat_id: i64,
    text: &'a str,
}

/// What the Bot API answers, whatever the status.
#[derive(Debug, Default, Deserialize)]
struct Said {
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    error_code: u16,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

impl Telegram {
    /// Checks that the token can be part of an address.
    pub fn check_token(token: &Secret) -> Result<(), &'static str> {
        let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'-');
        match token.expose() {
            text if text.is_empty() || text.len() > 200 => Err("has no token's length"),
            text if !text.bytes().all(sound) => Err("has a character that no token has"),
            _ => Ok(()),
        }
    }

    pub(super) async fn send(&self, client: &Client, message: &Message, chat_id: i64) -> Answer {
        let base = self.url.as_str().trim_end_matches('/');
        let url = format!("{base}/bot{}/sendMessage", self.token.expose());
        let text = cut(&message.message);
        // Two fields of text and number: nothing that could fail.
        let bytes = serde_json::to_vec(&SendMessage { chat_id, text: &text }).unwrap_or_default();
        let request = client.post(url).header("content-type", "application/json").body(bytes);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Answer::lost(error),
        };
        let status = response.status().as_u16();
        match body(response).await {
            Ok(bytes) => judge(status, &bytes),
            Err(error) => Answer::lost(error),
        }
    }
}

fn judge(status: u16, bytes: &[u8]) -> Answer {
    let Ok(said) = serde_json::from_slice::<Said>(bytes) else {
        return Answer::down(format!("Telegram answers {status}, and not in its own words"));
    };
    if said.ok && (200..300).contains(&status) {
        return Answer::Has;
    }
    let number = if said.error_code == 0 { status } else { said.error_code };
    // The words are Telegram's own and short; they do not repeat the message.
    let words: String =
        said.description.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect();
    match number {
        400 | 403 => {
            let reason = if number == 403 { "blocked" } else { "refused" };
            Answer::Never { reason, code: format!("TELEGRAM_{number}"), message: words }
        }
        401 | 404 => Answer::down(format!(
            "Telegram answers {number}: see whether schedule.deliver.telegram_token is the bot's"
        )),
        _ => Answer::Down {
            why: format!("Telegram answers {number}: {words}"),
            retry_after: said.parameters.retry_after.map(|s| bounded(Duration::from_secs(s))),
        },
    }
}

/// The text as far as Telegram takes it.
fn cut(text: &str) -> String {
    if text.encode_utf16().count() <= MAX_TEXT {
        return text.to_owned();
    }
    let mut units = 1;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= MAX_TEXT
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_about_the_user_or_telegram() {
        assert_eq!(judge(200, br#"{"ok":true,"result":{"message_id":1}}"#), Answer::Has);
        let blocked = br#"{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}"#;
        assert_eq!(
            judge(403, blocked),
            Answer::Never {
                reason: "blocked",
                code: "TELEGRAM_403".to_owned(),
                message: "Forbidden: bot was blocked by the user".to_owned()
            }
        );
        let busy = br#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":7}}"#;
        let Answer::Down { retry_after, .. } = judge(429, busy) else { panic!("not down") };
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
        for (status, said) in [(502, "<html>"), (404, "{}"), (401, "{\"ok\":false}"), (200, "{}")] {
            assert!(matches!(judge(status, said.as_bytes()), Answer::Down { .. }), "{status}");
        }
    }

    #[test]
    fn a_long_text_is_cut_by_the_units_that_telegram_counts() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"😀".repeat(3000));
        assert!(long.ends_with('…') && long.encode_utf16().count() <= MAX_TEXT);
        assert_eq!(cut(&"a".repeat(4096)).len(), 4096);
        assert_eq!(cut(&"a".repeat(4097)).chars().count(), 4096);
    }

    #[test]
    fn a_token_is_part_of_an_address() {
        assert!(Telegram::check_token(&Secret::new("123456:AAH-x_y")).is_ok());
        for wrong in ["", "a/b", "a?b", "a b", "a#b"] {
            assert!(Telegram::check_token(&Secret::new(wrong)).is_err(), "{wrong}");
        }
    }
}
