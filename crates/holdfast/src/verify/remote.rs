//! A tier behind HTTP: requests with a token, and lists page by page.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The most pages of one list; a loop beyond it would be a server's fault.
pub(super) const MAX_PAGES: usize = 100_000;

/// A tier behind HTTP.
pub(crate) struct Remote {
    client: reqwest::Client,
    base: String,
    token: String,
}

impl Remote {
    /// A tier at an address. Its certificate may come from an authority of the file `ca`.
    pub(super) fn new(url: &str, variable: &str, ca: Option<&Path>) -> anyhow::Result<Remote> {
        let token = std::env::var(variable)
            .with_context(|| format!("{variable} is not set: make a token with holdfast token"))?;
        let trust = api::client::Tls { ca_file: ca.map(Path::to_owned), client: None };
        let builder = reqwest::Client::builder().timeout(Duration::from_secs(120));
        let client = trust.apply(builder)?.build().context("make an HTTP client")?;
        Ok(Remote { client, base: url.trim_end_matches('/').to_owned(), token })
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Option<Value>> {
        let asked = request.bearer_auth(&self.token).send().await;
        let answer = asked.with_context(|| format!("ask {}", self.base))?;
        let status = answer.status();
        let body: Value = answer.json().await.unwrap_or_default();
        match status.as_u16() {
            200 => Ok(Some(body)),
            404 if body["error"]["code"] == "not_found" => Ok(None),
            _ => anyhow::bail!(
                "{} answers {status}: {}",
                self.base,
                body["error"]["message"].as_str().unwrap_or("no reason is given")
            ),
        }
    }

    pub(super) async fn find(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<Option<Value>> {
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.base))
            .with_context(|| format!("{} is no address", self.base))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.answer(self.client.get(url)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<T> {
        let request = self.client.post(format!("{}{path}", self.base)).json(body);
        let answer = self.answer(request).await?;
        let answer = answer.context("there is no such node, or it is another tenant's")?;
        Ok(serde_json::from_value(answer)?)
    }

    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        member: &str,
    ) -> anyhow::Result<Vec<T>> {
        let mut page = self.find(path, query).await?.unwrap_or_default();
        Ok(serde_json::from_value(page[member].take())?)
    }

    /// Every page of a list.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        member: &str,
    ) -> anyhow::Result<Vec<T>> {
        let mut found = Vec::new();
        let mut query = query.to_vec();
        for _ in 0..MAX_PAGES {
            let mut page = self.find(path, &query).await?.unwrap_or_default();
            let part: Vec<T> = serde_json::from_value(page[member].take())?;
            found.extend(part);
            let after = match &page["next_after"] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => break,
            };
            query.retain(|(name, _)| *name != "after");
            query.push(("after", after));
        }
        Ok(found)
    }
}
