//! Loading a section: precedence, validation, and typed values with their origin.

use crate::nearest::nearest;
use crate::secret::HIDDEN;
use crate::source::{Written, read_section};
use crate::{Error, Key, LiveSecret, Problem, Secret, kind, live};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
    },
    /// An environment variable.
    Env(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) => write!(f, "env {name}"),
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    text: Secret,
    origin: Origin,
    /// The file that holds the value, where it is not given itself.
    holder: Option<PathBuf>,
}

impl Entry {
    fn given(text: impl Into<String>, origin: Origin) -> Entry {
        Entry { text: Secret::new(text), origin, holder: None }
    }
}

/// A role's settings: every declared key with its effective value. All values have passed their [`Kind`].
///
/// [`Kind`]: crate::Kind
#[derive(Debug)]
pub struct Section {
    name: String,
    keys: &'static [Key],
    entries: BTreeMap<&'static str, Entry>,
}

impl Section {
    /// Reads `[name]` of the file (if there is one) and the environment, and checks every value.
    /// All problems come back together.
    pub fn load(
        file: Option<&Path>,
        name: &str,
        keys: &'static [Key],
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Section, Error> {
        let written = match file {
            Some(path) => read_section(path, name)?,
            None => BTreeMap::new(),
        };
        let mut problems = unknown_keys(name, keys, file, &written);
        let mut entries = BTreeMap::new();
        let sources = Sources { name, file, written: &written, env: &env };
        for key in keys {
            match sources.effective(key) {
                Ok(Some(entry)) => {
                    match key.kind.refuse(entry.text.expose()) {
                        None => drop(entries.insert(key.path, entry)),
                        Some(reason) => problems.push(refusal(name, key, &entry, &reason)),
                    };
                }
                Ok(None) if key.required => problems.push(Problem {
                    key: format!("{name}.{}", key.path),
                    origin: None,
                    reason: format!(
                        "is required and was not given: set it in [{name}] or as {}",
                        key.env_name(name)
                    ),
                }),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Error::Refused(problems));
        }
        Ok(Section { name: name.to_owned(), keys, entries })
    }

    /// The value of a key that has a default or is required.
    pub fn get(&self, path: &str) -> Result<Value<'_>, Error> {
        self.find(path)?.ok_or_else(|| Error::Undeclared {
            key: format!("{}.{path}", self.name),
            reason: "has no value and no default: ask for it with find".to_owned(),
        })
    }

    /// The value of a key that may be absent.
    pub fn find(&self, path: &str) -> Result<Option<Value<'_>>, Error> {
        let key = self.keys.iter().find(|key| key.path == path).ok_or_else(|| {
            let reason = "is not declared by its role".to_owned();
            Error::Undeclared { key: format!("{}.{path}", self.name), reason }
        })?;
        Ok(self.entries.get(path).map(|entry| Value { section: &self.name, key, entry }))
    }

    /// Where a role serves: the address under `listen`, which must be loopback unless the flag under `allow_remote` is set. What
    /// writes wants credentials anyway; but it is the operator who decides that other machines may try.
    pub fn listen(&self, listen: &str, allow_remote: &str) -> Result<SocketAddr, Error> {
        let text = self.get(listen)?.text();
        let mut found =
            text.to_socket_addrs().map_err(|error| self.refuse(listen, error.to_string()))?;
        let address = found.next().ok_or_else(|| self.refuse(listen, "names no address"))?;
        if !address.ip().is_loopback() && !self.get(allow_remote)?.flag()? {
            let why = "can be reached from other machines";
            return Err(
                self.refuse(listen, format!("{why}: set {allow_remote} = true if that is meant"))
            );
        }
        Ok(address)
    }

    /// Where to listen for this machine alone, if anywhere: what is served there asks for no credentials.
    pub fn find_local(&self, listen: &str) -> Result<Option<SocketAddr>, Error> {
        let Some(value) = self.find(listen)? else { return Ok(None) };
        let found = value.text().to_socket_addrs();
        let mut found = found.map_err(|error| self.refuse(listen, error.to_string()))?;
        let address = found.next().ok_or_else(|| self.refuse(listen, "names no address"))?;
        match address.ip().is_loopback() {
            true => Ok(Some(address)),
            false => Err(self.refuse(
                listen,
                "can be reached from other machines: use 127.0.0.1, and let an agent or a proxy with credentials pass it on",
            )),
        }
    }

    /// A problem with a value that only shows together with others, in the form of all other refusals.
    pub fn refuse(&self, path: &str, reason: impl Into<String>) -> Error {
        let origin = self.entries.get(path).map(|entry| entry.origin.to_string());
        let key = format!("{}.{path}", self.name);
        Error::Refused(vec![Problem { key, origin, reason: reason.into() }])
    }

    /// Every key with its shown value and origin, in the order of declaration. Secrets are hidden.
    pub fn shown(&self) -> impl Iterator<Item = (String, String, String)> + '_ {
        self.keys.iter().map(|key| {
            let path = format!("{}.{}", self.name, key.path);
            match self.entries.get(key.path) {
                None => (path, "(unset)".to_owned(), Origin::Default.to_string()),
                Some(entry) => (path, shown(key, entry), entry.origin.to_string()),
            }
        })
    }
}

/// One value, known to be of its key's kind.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    section: &'a str,
    key: &'a Key,
    entry: &'a Entry,
}

impl Value<'_> {
    /// As text.
    pub fn text(&self) -> String {
        self.entry.text.expose().to_owned()
    }

    /// As a path.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.entry.text.expose())
    }

    /// As a secret.
    pub fn secret(&self) -> Secret {
        self.entry.text.clone()
    }

    /// As a secret that follows its file, if a file holds it.
    pub fn live_secret(&self) -> LiveSecret {
        LiveSecret::held(self.entry.text.clone(), self.entry.holder.clone())
    }

    /// As a time span.
    pub fn duration(&self) -> Result<Duration, Error> {
        self.read(kind::parse_duration)
    }

    /// As a number of bytes.
    pub fn size(&self) -> Result<u64, Error> {
        self.read(kind::parse_size)
    }

    /// As a flag.
    pub fn flag(&self) -> Result<bool, Error> {
        self.read(kind::parse_flag)
    }

    /// As anything that can be read from text: whole numbers, decimal numbers, ids, addresses.
    pub fn parse<T>(&self) -> Result<T, Error>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.read(|text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// As a list of texts, without empty ones.
    pub fn list(&self) -> Vec<String> {
        let items = self.entry.text.expose().split(',').map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.entry.origin
    }

    fn read<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Error> {
        parse(self.entry.text.expose()).map_err(|reason| {
            Error::Refused(vec![refusal(self.section, self.key, self.entry, &reason)])
        })
    }
}

fn shown(key: &Key, entry: &Entry) -> String {
    if key.secret { HIDDEN.to_owned() } else { entry.text.expose().to_owned() }
}

fn refusal(section: &str, key: &Key, entry: &Entry, reason: &str) -> Problem {
    let value = if key.secret { HIDDEN.to_owned() } else { clip(entry.text.expose()) };
    Problem {
        key: format!("{section}.{}", key.path),
        origin: Some(entry.origin.to_string()),
        reason: format!("is {value:?}: {reason}"),
    }
}

fn clip(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS).chain(['…']).collect()
}

fn unknown_keys(
    section: &str,
    keys: &[Key],
    file: Option<&Path>,
    written: &BTreeMap<String, Written>,
) -> Vec<Problem> {
    let file_keys: Vec<String> =
        keys.iter().filter(|key| key.secret).map(|key| format!("{}_file", key.path)).collect();
    let known = || keys.iter().map(|key| key.path).chain(file_keys.iter().map(String::as_str));
    let unknown = written.iter().filter(|(path, _)| known().all(|key| key != *path));
    unknown
        .map(|(path, value)| Problem {
            key: format!("{section}.{path}"),
            origin: file.map(|file| format!("{}:{}", file.display(), value.line)),
            reason: match nearest(path, known()) {
                Some(meant) => format!("is not a known key: did you mean {section}.{meant}?"),
                None => "is not a known key".to_owned(),
            },
        })
        .collect()
}

/// The places a value may come from, in order of precedence.
struct Sources<'a, E> {
    name: &'a str,
    file: Option<&'a Path>,
    written: &'a BTreeMap<String, Written>,
    env: &'a E,
}

impl<E: Fn(&str) -> Option<String>> Sources<'_, E> {
    fn effective(&self, key: &Key) -> Result<Option<Entry>, Problem> {
        let by_env = self.choose(key, self.in_env(key, ""), self.in_env(key, "_FILE"))?;
        if by_env.is_some() {
            return Ok(by_env);
        }
        let by_file =
            self.choose(key, self.in_file(key.path), self.in_file(&format!("{}_file", key.path)))?;
        if by_file.is_some() {
            return Ok(by_file);
        }
        Ok(key.default.map(|text| Entry::given(text, Origin::Default)))
    }

    /// Of a value and a file that holds the value, the one that is there; both is an error.
    fn choose(
        &self,
        key: &Key,
        value: Option<Entry>,
        holder: Option<Entry>,
    ) -> Result<Option<Entry>, Problem> {
        let holder = holder.filter(|_| key.secret);
        let problem = |origin: &Origin, reason: String| Problem {
            key: format!("{}.{}", self.name, key.path),
            origin: Some(origin.to_string()),
            reason,
        };
        match (value, holder) {
            (Some(_), Some(holder)) => Err(problem(
                &holder.origin,
                format!("is given both as a value and as {}_file: keep one", key.path),
            )),
            (value, None) => Ok(value),
            (None, Some(holder)) => {
                let file = PathBuf::from(holder.text.expose());
                let text = live::read(&file).map_err(|error| {
                    problem(&holder.origin, format!("cannot be read from {file:?}: {error}"))
                })?;
                Ok(Some(Entry { text, origin: holder.origin, holder: Some(file) }))
            }
        }
    }

    fn in_file(&self, path: &str) -> Option<Entry> {
        let (file, value) = (self.file?, self.written.get(path)?);
        let origin = Origin::File { path: file.to_owned(), line: value.line };
        Some(Entry::given(value.text.clone(), origin))
    }

    /// An empty variable counts as unset, as it does for most tools.
    fn in_env(&self, key: &Key, suffix: &str) -> Option<Entry> {
        let own = key.env_name(self.name);
        let names = std::iter::once(own.as_str()).chain(key.aliases.iter().copied());
        names.map(|name| format!("{name}{suffix}")).find_map(|name| {
            let text = (self.env)(&name).filter(|text| !text.is_empty())?;
            Some(Entry::given(text, Origin::Env(name)))
        })
    }
}
