//! The `[schedule]` section: every key once, with its default and what it means.
//!
//! Promise: a [`Config`] that was made can work as far as its values alone can tell. It must not know the other roles' sections. It fails
//! with [`settings::Error`], which names the key, the value and the reason.

mod extract;
mod keys;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use objects::{Address, Bucket, Style};
use settings::Section;

pub use extract::Extraction;
pub use keys::{KEYS, SECTION};

use crate::deliver::{self, Channel, Telegram, Webhook};
use crate::intake::Limits;
use crate::worker;

/// What schedules were told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Postgres.
    pub database: pg::Options,
    /// How sessions are processed.
    pub worker: worker::Settings,
    /// How their images are read.
    pub extraction: Extraction,
    /// How messages are delivered; `None` leaves them to somebody else.
    pub deliver: Option<deliver::Settings>,
    /// Where intake is served.
    pub listen: SocketAddr,
    /// What it is served with, when it is not plain.
    pub tls: Option<api::serve::Tls>,
    /// The object store.
    pub store: Option<Store>,
    /// What intake takes.
    pub limits: Limits,
    /// Where the worker's metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
}

/// The object store.
#[derive(Debug, Clone)]
pub struct Store {
    /// As we reach it.
    pub inside: Address,
    /// As senders reach it.
    pub public: Address,
}

impl Config {
    /// Reads the section from a file and the environment.
    pub fn load(
        file: Option<&Path>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, settings::Error> {
        Config::from_section(&Section::load(file, SECTION, KEYS, env)?)
    }

    /// Takes the values of a section that was read with [`KEYS`].
    pub fn from_section(section: &Section) -> Result<Config, settings::Error> {
        let name = format!("schedule-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let poll: f64 = section.get("worker.poll_seconds")?.parse()?;
        let stop_grace = section.get("stop_grace")?.duration()?;
        let worker = worker::Settings {
            poll: Duration::from_secs_f64(poll),
            idle_timeout: section.get("worker.idle_timeout")?.duration()?,
            lease: section.get("worker.lease")?.duration()?,
            max_attempts: section.get("worker.max_attempts")?.parse()?,
            slots: section.get("worker.slots")?.parse()?,
            min_confidence: section.get("worker.min_confidence")?.parse()?,
            heartbeat: section.find("worker.heartbeat_file")?.map(|value| value.path()),
            stop_grace,
            ..worker::Settings::new(name.clone())
        };
        let store = store(section)?;
        let bucket = match &store {
            Some(store) => {
                let wrong =
                    |why: objects::Error| section.refuse("store.s3_endpoint", why.to_string());
                Some(Bucket::new(&store.inside).map_err(wrong)?)
            }
            None => None,
        };
        Ok(Config {
            database: pg::Options {
                application_name: "holdfast-schedule".to_owned(),
                ca_file: section.find("database.ca_file")?.map(|value| value.path()),
                ..pg::Options::new(section.get("database.url")?.secret().expose())
            },
            worker,
            extraction: Extraction::from_section(section, bucket)?,
            deliver: deliver(section, &name, stop_grace)?,
            listen: section.listen("http.listen", "http.allow_remote")?,
            tls: api::serve::Tls::from_section(section)?,
            store,
            limits: limits(section)?,
            metrics: section.find_local("metrics.listen")?,
        })
    }
}

fn limits(section: &Section) -> Result<Limits, settings::Error> {
    let limits = Limits {
        presign_ttl: section.get("intake.presign_ttl")?.duration()?,
        max_image_bytes: section.get("intake.max_image_size")?.size()?,
        max_images: section.get("intake.max_images")?.parse()?,
        sweep_after: section.get("intake.sweep_after")?.duration()?,
    };
    if limits.sweep_after <= limits.presign_ttl {
        let why = "is not longer than intake.presign_ttl: an upload could come after the sweep";
        return Err(section.refuse("intake.sweep_after", why));
    }
    Ok(limits)
}

fn deliver(
    section: &Section,
    name: &str,
    stop_grace: Duration,
) -> Result<Option<deliver::Settings>, settings::Error> {
    let to = section.get("deliver.to")?.text();
    let needed = |key: &'static str| {
        let missing = || section.refuse(key, format!("is missing: deliver.to is {to}"));
        section.find(key)?.map(|value| value.secret()).ok_or_else(missing)
    };
    let url = |key: &'static str, text: &str| {
        let url: reqwest::Url = text.parse().map_err(|_| section.refuse(key, "is no address"))?;
        match url.scheme() {
            "http" | "https" => Ok(url),
            _ => {
                Err(section.refuse(key, "expected an address that starts with http:// or https://"))
            }
        }
    };
    let channel = match to.as_str() {
        "webhook" => Channel::Webhook(Webhook {
            url: url("deliver.webhook_url", needed("deliver.webhook_url")?.expose())?,
            secret: section.find("deliver.webhook_secret")?.map(|value| value.secret()),
        }),
        "telegram" => {
            let token = needed("deliver.telegram_token")?;
            Telegram::check_token(&token)
                .map_err(|why| section.refuse("deliver.telegram_token", why))?;
            let address = section.get("deliver.telegram_url")?.text();
            Channel::Telegram(Telegram { url: url("deliver.telegram_url", &address)?, token })
        }
        _ => return Ok(None),
    };
    let ca_file = section.find("deliver.ca_file")?.map(|value| value.path());
    Ok(Some(deliver::Settings {
        trust: api::client::Tls { ca_file, client: None },
        timeout: section.get("deliver.timeout")?.duration()?,
        slots: section.get("deliver.slots")?.parse()?,
        lease: section.get("deliver.lease")?.duration()?,
        max_attempts: section.get("deliver.max_attempts")?.parse()?,
        stop_grace,
        ..deliver::Settings::new(name, channel)
    }))
}

fn store(section: &Section) -> Result<Option<Store>, settings::Error> {
    let Some(endpoint) = section.find("store.s3_endpoint")? else { return Ok(None) };
    let secret = |key: &str| match section.find(key)? {
        Some(value) => Ok(value.secret().expose().to_owned()),
        None => Err(section.refuse(key, "is missing: the store wants signed requests")),
    };
    let inside = Address {
        url: endpoint.parse()?,
        bucket: section.get("store.s3_bucket")?.text(),
        region: section.get("store.s3_region")?.text(),
        access_key: secret("store.s3_access_key")?,
        secret_key: secret("store.s3_secret_key")?,
        style: match section.get("store.s3_style")?.text().as_str() {
            "host" => Style::VirtualHost,
            _ => Style::Path,
        },
    };
    let public = match section.find("store.s3_public_endpoint")? {
        Some(url) => Address { url: url.parse()?, ..inside.clone() },
        None => inside.clone(),
    };
    Bucket::new(&public)
        .map_err(|why| section.refuse("store.s3_public_endpoint", why.to_string()))?;
    Ok(Some(Store { inside, public }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        let url = ("HOLDFAST_SCHEDULE_DATABASE_URL", "postgres:///s?password=tulip");
        let pairs: Vec<_> = pairs.iter().copied().chain([url]).collect();
        Config::load(None, |name| Some(pairs.iter().find(|(key, _)| *key == name)?.1.to_owned()))
    }

    #[test]
    fn the_documented_variable_and_the_defaults() {
        let config = load(&[]).unwrap();
        assert_eq!(config.worker.poll, Duration::from_secs(5));
        assert!(config.deliver.is_none() && config.store.is_none() && config.metrics.is_none());
        assert!(config.listen.ip().is_loopback());
        let config = load(&[("WORKER_POLL_SECONDS", "0.5")]).unwrap();
        assert_eq!(config.worker.poll, Duration::from_millis(500));
        assert!(load(&[("WORKER_POLL_SECONDS", "soon")]).is_err());
        assert!(load(&[("WORKER_POLL_SECONDS", "0")]).is_err());
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_key_and_without_secrets() {
        for (pairs, said) in [
            (&[("HOLDFAST_SCHEDULE_DELIVER_TO", "webhook")][..], "deliver.webhook_url"),
            (&[("HOLDFAST_SCHEDULE_DELIVER_TO", "telegram")], "deliver.telegram_token"),
            (&[("HOLDFAST_SCHEDULE_EXTRACT_METHOD", "fixture")], "extract.fixture_file"),
            (&[("HOLDFAST_SCHEDULE_EXTRACT_METHOD", "ocr")], "store.s3_endpoint"),
            (&[("HOLDFAST_SCHEDULE_EXTRACT_METHOD", "command")], "store.s3_endpoint"),
            (&[("HOLDFAST_SCHEDULE_STORE_S3_ENDPOINT", "http://s3")], "store.s3_access_key"),
            (
                &[
                    ("HOLDFAST_SCHEDULE_DELIVER_TO", "telegram"),
                    ("TELEGRAM_BOT_TOKEN", "daffodil/x"),
                ],
                "deliver.telegram_token",
            ),
            (
                &[
                    ("HOLDFAST_SCHEDULE_DELIVER_TO", "webhook"),
                    ("HOLDFAST_SCHEDULE_DELIVER_WEBHOOK_URL", "ftp://daffodil"),
                ],
                "deliver.webhook_url",
            ),
            (&[("HOLDFAST_SCHEDULE_HTTP_LISTEN", "0.0.0.0:1")], "http.allow_remote"),
            (&[("HOLDFAST_SCHEDULE_INTAKE_SWEEP_AFTER", "10m")], "intake.sweep_after"),
            (&[("HOLDFAST_SCHEDULE_METRICS_LISTEN", "0.0.0.0:1")], "metrics.listen"),
        ] {
            let error = load(pairs).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("daffodil"), "{error}");
        }
        let config = load(&[
            ("HOLDFAST_SCHEDULE_DELIVER_TO", "webhook"),
            ("HOLDFAST_SCHEDULE_DELIVER_WEBHOOK_URL", "https://host/daffodil"),
            ("HOLDFAST_SCHEDULE_DELIVER_WEBHOOK_SECRET", "rose"),
        ]);
        let shown = format!("{:?}", config.unwrap());
        assert!(!["tulip", "daffodil", "rose"].iter().any(|word| shown.contains(word)), "{shown}");
    }
}
