//! What a role declares about each of its keys.

use crate::Kind;

/// A key of a role's section. Declare all keys of a role in one `const` list.
///
/// ```
/// use settings::{Key, Kind};
/// const KEYS: &[Key] = &[
///     Key::new("mqtt.address", Kind::Text, "The broker.").default("mqtt://127.0.0.1:1883"),
///     Key::new("mqtt.password", Kind::Text, "The node's password.").secret(),
///     Key::new("dedupe_ttl_hours", Kind::Integer { min: 1, max: 8760 }, "Dedupe cache.")
///         .default("72")
///         .alias(&["INGRESS_DEDUPE_TTL_HOURS"]),
/// ];
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) doc: &'static str,
    pub(crate) default: Option<&'static str>,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) secret: bool,
    pub(crate) required: bool,
}

impl Key {
    /// A key that may be absent. `path` is dotted where the key sits in a nested table.
    pub const fn new(path: &'static str, kind: Kind, doc: &'static str) -> Key {
        Key { path, kind, doc, default: None, aliases: &[], secret: false, required: false }
    }

    /// The value when neither file nor environment has one.
    pub const fn default(mut self, text: &'static str) -> Key {
        self.default = Some(text);
        self
    }

    /// Further environment names; they are tried after the derived one, in order.
    pub const fn alias(mut self, names: &'static [&'static str]) -> Key {
        self.aliases = names;
        self
    }

    /// Hides the value wherever settings are shown, and adds the key `<path>_file`, which names a file that
    /// holds the value.
    pub const fn secret(mut self) -> Key {
        self.secret = true;
        self
    }

    /// Refuses a configuration without this key.
    pub const fn required(mut self) -> Key {
        self.required = true;
        self
    }

    /// The environment name: `HOLDFAST_` + section + path, upper case, dots and dashes as underscores.
    pub fn env_name(&self, section: &str) -> String {
        let mut name = String::from("HOLDFAST_");
        for c in section.chars().chain(['.']).chain(self.path.chars()) {
            name.push(if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        }
        name
    }
}

/// The keys of several lists, one list after the other: a role's parts declare their own. `N` is how many they are.
pub const fn joined<const N: usize>(lists: &[&[Key]]) -> [Key; N] {
    let mut all = [Key::new("", Kind::Text, ""); N];
    let (mut list, mut at) = (0, 0);
    while list < lists.len() {
        let mut key = 0;
        while key < lists[list].len() {
            all[at] = lists[list][key];
            at += 1;
            key += 1;
        }
        list += 1;
    }
    assert!(at == N, "N is not the number of keys");
    all
}

/// The keys of a section as a Markdown table, for the documentation.
pub fn reference(section: &str, keys: &[Key]) -> String {
    let mut text = format!(
        "## `[{section}]`\n\n| key | default | environment | meaning |\n|---|---|---|---|\n"
    );
    for key in keys {
        let default = match (key.default, key.required) {
            (Some(value), _) => format!("`{value}`"),
            (None, true) => "required".to_owned(),
            (None, false) => "none".to_owned(),
        };
        let mut names = format!("`{}`", key.env_name(section));
        for alias in key.aliases {
            names.push_str(&format!(", `{alias}`"));
        }
        let by_file = if key.secret { " Or give a file with `…_file`." } else { "" };
        let doc = key.doc;
        text.push_str(&format!("| `{}` | {default} | {names} | {doc}{by_file} |\n", key.path));
    }
    text
}
