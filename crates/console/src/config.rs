//! The `[console]` section: every key once, with its default and what it means.
//!
//! Promise: a [`Config`] that was made can work as far as its values alone can tell; every token file was there and readable.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use event::id::NodeId;
use settings::{Key, Kind, LiveSecret, Secret, Section, joined};

use crate::alerts::Webhook;

/// The name of the section.
pub const SECTION: &str = "console";

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
/// More sites, or SCADA nodes, than this want more than one console.
const MAX_PLACES: usize = 200;

/// Every key of the section.
pub const KEYS: &[Key] =
    &joined::<{ OWN.len() + api::serve::KEYS.len() }>(&[OWN, &api::serve::KEYS]);

const OWN: &[Key] = &[
    Key::new(
        "database.url",
        Kind::Text,
        "Postgres of the cloud: its tokens are what people sign in with.",
    )
    .secret()
    .required(),
    Key::new(
        "database.ca_file",
        Kind::Text,
        "PEM certificates to trust; Postgres is then reached over TLS only.",
    ),
    Key::new("http.listen", Kind::HostPort, "Where the page and its API are served.")
        .default("127.0.0.1:8096"),
    Key::new(
        "http.allow_remote",
        Kind::Flag,
        "Whether http.listen may be reached from other machines.",
    )
    .default("false"),
    Key::new(
        "public_url",
        Kind::Text,
        "The address that people type, where a proxy stands before the console: https://console.example. With https, cookies are for TLS only.",
    ),
    Key::new(
        "sites",
        Kind::List,
        "The sites, each NAME=URL=TOKEN_FILE: the edge's API, and a file with a token of role operator of that edge.",
    )
    .default(""),
    Key::new("cloud.url", Kind::Text, "The cloud's API: http://host:port or https://…."),
    Key::new("cloud.token", Kind::Text, "A token of role operator of the cloud.").secret(),
    Key::new("historian.url", Kind::Text, "The historian's API: http://host:port or https://…."),
    Key::new("historian.token", Kind::Text, "A token of role operator of the historian.").secret(),
    Key::new(
        "producers",
        Kind::List,
        "SCADA nodes whose outboxes are watched, each NAME=URL or NAME=URL=TOKEN_FILE: where its /metrics can be read, and a file with its producer.http.metrics_token; on this machine none is needed.",
    )
    .default(""),
    Key::new(
        "ca_file",
        Kind::Text,
        "PEM certificates to trust at those it asks and at the alerts' webhook, beside those the system trusts.",
    ),
    Key::new("client_cert", Kind::Text, "PEM certificate to show them, where they ask for one."),
    Key::new("client_key", Kind::Text, "PEM key of that certificate."),
    Key::new(
        "schedule.url",
        Kind::Text,
        "The API of schedules (`holdfast schedule serve`): http://host:port or https://….",
    ),
    Key::new("schedule.token", Kind::Text, "A token of role viewer of schedules, for all tenants.")
        .secret(),
    Key::new(
        "alerts.webhook_url",
        Kind::Text,
        "Where alerts are posted to when they begin and end: http://… or https://….",
    )
    .secret(),
    Key::new(
        "alerts.webhook_secret",
        Kind::Text,
        "What these requests are signed with, by HMAC-SHA256.",
    )
    .secret(),
    Key::new(
        "alerts.state_file",
        Kind::Text,
        "Where it is kept what the webhook was told, so that a restart forgets nothing; without it what holds is told again.",
    ),
    Key::new(
        "up_control",
        Kind::Text,
        "The control socket of a `holdfast up`, whose links can then be cut from the page.",
    ),
    Key::new(
        "poll_every",
        Kind::Duration { min_ms: 100, max_ms: 60 * SECOND },
        "How often each upstream is asked.",
    )
    .default("1s"),
    Key::new(
        "session_life",
        Kind::Duration { min_ms: SECOND, max_ms: 30 * 24 * HOUR },
        "How long a sign-in lasts.",
    )
    .default("12h"),
];

/// What is asked, and with what.
#[derive(Debug, Clone)]
pub struct Place {
    /// What it is called.
    pub name: String,
    /// `http://host:port`, without a slash at the end.
    pub url: String,
    /// What lets us in.
    pub token: LiveSecret,
}

/// What the console was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where tokens are looked up.
    pub database: pg::Options,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// What HTTP is served with, when it is not plain.
    pub tls: Option<api::serve::Tls>,
    /// Whom it trusts of those it asks, and who it says it is.
    pub trust: api::client::Tls,
    /// The address that people type.
    pub public_url: Option<String>,
    /// The sites.
    pub sites: Vec<Place>,
    /// The cloud.
    pub cloud: Option<Place>,
    /// The historian.
    pub historian: Option<Place>,
    /// SCADA nodes.
    pub producers: Vec<Place>,
    /// Schedules.
    pub schedule: Option<Place>,
    /// Where alerts are posted to.
    pub webhook: Option<Webhook>,
    /// The control socket of `up`.
    pub up_control: Option<PathBuf>,
    /// How often an upstream is asked.
    pub poll_every: Duration,
    /// How long a sign-in lasts.
    pub session_life: Duration,
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
        let public_url = section.find("public_url")?.map(|value| value.text());
        if let Some(url) = &public_url {
            check_url(url).map_err(|why| section.refuse("public_url", why))?;
        }
        Ok(Config {
            database: pg::Options {
                max_connections: 2,
                application_name: "holdfast-console".to_owned(),
                ca_file: section.find("database.ca_file")?.map(|value| value.path()),
                ..pg::Options::new(section.get("database.url")?.secret().expose())
            },
            listen: section.listen("http.listen", "http.allow_remote")?,
            tls: api::serve::Tls::from_section(section)?,
            trust: api::client::Tls::from_section(section, "")?,
            public_url: public_url.map(|url| url.trim_end_matches('/').to_owned()),
            sites: places(section, "sites", true)?,
            cloud: place(section, "cloud")?,
            historian: place(section, "historian")?,
            producers: places(section, "producers", false)?,
            schedule: place(section, "schedule")?,
            webhook: webhook(section)?,
            up_control: section.find("up_control")?.map(|value| value.path()),
            poll_every: section.get("poll_every")?.duration()?,
            session_life: section.get("session_life")?.duration()?,
        })
    }
}

/// A list of places; a token is always there, or may be left out.
fn places(
    section: &Section,
    key: &'static str,
    with_token: bool,
) -> Result<Vec<Place>, settings::Error> {
    let mut places: Vec<Place> = Vec::new();
    let refuse = |why: String| section.refuse(key, why);
    for text in section.get(key)?.list() {
        let parts: Vec<&str> = text.splitn(3, '=').map(str::trim).collect();
        let (name, url, file) = match parts[..] {
            [name, url, file] => (name, url, Some(file)),
            [name, url] if !with_token => (name, url, None),
            _ => return Err(refuse(format!("expected NAME=URL=TOKEN_FILE, and found {text:?}"))),
        };
        // The grammar of a node's id, because the name becomes a part of paths and of ids.
        name.parse::<NodeId>().map_err(|_| {
            refuse(format!("{name:?} is no name of a place: expected a-z, 0-9 and -"))
        })?;
        check_url(url).map_err(|why| refuse(format!("{name}: {why}")))?;
        let token = match file {
            None => LiveSecret::from(Secret::new("")),
            Some(file) => LiveSecret::of_file(Path::new(file))
                .map_err(|error| refuse(format!("{name}: {file} cannot be read: {error}")))?,
        };
        if places.iter().any(|place| place.name == name) {
            return Err(refuse(format!("{name} is there twice")));
        }
        places.push(Place {
            name: name.to_owned(),
            url: url.trim_end_matches('/').to_owned(),
            token,
        });
    }
    if places.len() > MAX_PLACES {
        return Err(refuse(format!("at most {MAX_PLACES}")));
    }
    Ok(places)
}

fn place(section: &Section, name: &'static str) -> Result<Option<Place>, settings::Error> {
    let (at, with) = (format!("{name}.url"), format!("{name}.token"));
    let Some(url) = section.find(&at)? else { return Ok(None) };
    let url = url.text();
    check_url(&url).map_err(|why| section.refuse(&at, why))?;
    let token = section.find(&with)?.ok_or_else(|| {
        section.refuse(&with, format!("is required with console.{name}.url, or a file of it"))
    })?;
    let url = url.trim_end_matches('/').to_owned();
    Ok(Some(Place { name: name.to_owned(), url, token: token.live_secret() }))
}

fn webhook(section: &Section) -> Result<Option<Webhook>, settings::Error> {
    let (at, secret) = ("alerts.webhook_url", section.find("alerts.webhook_secret")?);
    let Some(url) = section.find(at)? else {
        return match secret {
            Some(_) => Err(section.refuse(at, "is missing: there is a secret for it")),
            None => Ok(None),
        };
    };
    let sound = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let url = url.secret().expose().parse().ok().filter(sound);
    let wrong = || section.refuse(at, "expected an address that starts with http:// or https://");
    Ok(Some(Webhook {
        url: url.ok_or_else(wrong)?,
        secret: secret.map(|value| value.secret()),
        state_file: section.find("alerts.state_file")?.map(|value| value.path()),
    }))
}

fn check_url(text: &str) -> Result<(), String> {
    let expected = || "expected http://host:port or https://host".to_owned();
    let url: reqwest::Url = text.parse().map_err(|_| expected())?;
    let sound = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    sound.then_some(()).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        let url = ("HOLDFAST_CONSOLE_DATABASE_URL", "postgres:///cloud?password=tulip");
        Config::load(None, |name| {
            Some([url].iter().chain(pairs).find(|(key, _)| *key == name)?.1.to_owned())
        })
    }

    #[test]
    fn sites_are_read_with_their_tokens_and_what_cannot_work_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "hf_tulip\n").unwrap();
        let (one, two) = (
            format!("north=http://north:8091/={}", file.display()),
            format!("south=https://south={}", file.display()),
        );
        let config = load(&[("HOLDFAST_CONSOLE_SITES", &format!("{one},{two}"))]).unwrap();
        assert_eq!(config.sites[0].url, "http://north:8091");
        assert_eq!(config.sites[1].token.current().expose(), "hf_tulip");
        let press = load(&[("HOLDFAST_CONSOLE_PRODUCERS", "press=http://127.0.0.1:8094")]).unwrap();
        assert_eq!(press.producers[0].url, "http://127.0.0.1:8094");
        assert!(config.cloud.is_none() && config.listen.ip().is_loopback());
        assert!(!format!("{config:?}").contains("tulip"));
        for (pairs, said) in [
            (vec![("HOLDFAST_CONSOLE_SITES", "north")], "NAME=URL=TOKEN_FILE"),
            (vec![("HOLDFAST_CONSOLE_SITES", "No Name=http://a=b")], "no name of a place"),
            (vec![("HOLDFAST_CONSOLE_SITES", "n=http://a=/nowhere/at/all")], "cannot be read"),
            (vec![("HOLDFAST_CONSOLE_PRODUCERS", "press")], "producers"),
            (vec![("HOLDFAST_CONSOLE_CLOUD_URL", "cloud")], "cloud.url"),
            (vec![("HOLDFAST_CONSOLE_CLOUD_URL", "http://cloud")], "cloud.token"),
            (vec![("HOLDFAST_CONSOLE_HTTP_LISTEN", "0.0.0.0:1")], "allow_remote"),
            (vec![("HOLDFAST_CONSOLE_ALERTS_WEBHOOK_URL", "ftp://tulip")], "webhook_url"),
            (vec![("HOLDFAST_CONSOLE_ALERTS_WEBHOOK_SECRET", "tulip")], "webhook_url"),
        ] {
            let error = load(&pairs).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("tulip"), "{error}");
        }
        let twice = load(&[("HOLDFAST_CONSOLE_SITES", &format!("{one},{one}"))]).unwrap_err();
        assert!(twice.to_string().contains("twice"));
    }
}
