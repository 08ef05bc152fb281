//! What another historian sends: judged and stored as from a bus, and not sent on.

use std::collections::BTreeMap;

use api::Refused;
use api::tokens::{Role, Token};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bus::Message;

use super::{Bearer, Http, unavailable};
use crate::historian::federation::{Answer, MAX_EVENTS, Request, Verdict};
use crate::historian::offsets::Moved;
use crate::historian::record::{REFUSED, Record};
use crate::historian::write::Way;

pub(super) async fn receive(
    State(http): State<Http>,
    Extension(token): Bearer,
    body: Bytes,
) -> Response {
    match http.receive(&token, &body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(refused) => refused.into_response(),
    }
}

impl Http {
    async fn receive(&self, token: &Token, body: &[u8]) -> Result<Answer, Refused> {
        if !matches!(token.role, Role::Edge | Role::Admin) {
            let message = "this token may not write: use one of role edge";
            return Err(Refused::forbidden(message));
        }
        let request: Request = serde_json::from_slice(body).map_err(|_| {
            Refused::malformed(None, "expected {\"events\": [{\"schema_version\", \"event\"}]}")
        })?;
        if request.events.len() > MAX_EVENTS {
            return Err(Refused::too_large(format!("more than {MAX_EVENTS} events")));
        }
        let mut read = Vec::with_capacity(request.events.len());
        for sent in &request.events {
            let body = Bytes::copy_from_slice(sent.event.get().as_bytes());
            let version = sent.schema_version.iter();
            let headers: BTreeMap<String, String> =
                version.map(|text| ("schema_version".to_owned(), text.clone())).collect();
            let message = Message { headers, ..Message::json("federation", "", "-", body) };
            read.push(Record::read(&message));
        }
        let records: Vec<Record> =
            read.iter().filter_map(|one| one.as_ref().ok()).cloned().collect();
        let way = Way { redelivered: false, federated: true };
        let stored = self.service.writer.store_moving(&records, &Moved::default(), way).await;
        let mut stored = match stored {
            Ok(stored) => stored,
            // One of them is to blame; each alone says which.
            Err(error) if error.about() == pg::About::Data => {
                return self.one_by_one(read).await;
            }
            Err(error) => return Err(unavailable(&error)),
        };
        let results = read.into_iter().map(|one| match one {
            Err(cause) => Verdict::Refused { code: cause.code },
            // The same event twice in one request was new once.
            Ok(record) if stored.new.remove(&record.envelope.event_id.uuid()) => Verdict::Stored,
            Ok(_) => Verdict::Duplicate,
        });
        Ok(Answer { results: results.collect() })
    }

    async fn one_by_one(&self, read: Vec<Result<Record, bus::Cause>>) -> Result<Answer, Refused> {
        let way = Way { redelivered: true, federated: true };
        let mut results = Vec::with_capacity(read.len());
        for one in read {
            let record = match one {
                Ok(record) => record,
                Err(cause) => {
                    results.push(Verdict::Refused { code: cause.code });
                    continue;
                }
            };
            let one = std::slice::from_ref(&record);
            match self.service.writer.store_moving(one, &Moved::default(), way).await {
                Ok(stored) if stored.new.is_empty() => results.push(Verdict::Duplicate),
                Ok(_) => results.push(Verdict::Stored),
                Err(error) if error.about() == pg::About::Data => {
                    results.push(Verdict::Refused { code: REFUSED.to_owned() });
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Ok(Answer { results })
    }
}
