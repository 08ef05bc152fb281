//! The two object stores that images are copied between.

use objects::{Address, Bucket, Style};
use settings::Section;

/// From where to where objects are copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stores {
    /// The sites' store.
    pub source: Address,
    /// The cloud's store.
    pub store: Address,
}

impl Stores {
    /// Both, neither, or a refusal that says which key is missing.
    pub(crate) fn from_section(section: &Section) -> Result<Option<Stores>, settings::Error> {
        let there = |side: &str| section.find(&format!("media.{side}.url"));
        let (source, store) = match (there("source")?, there("store")?) {
            (None, None) => return Ok(None),
            (Some(_), None) => {
                let why = "is missing: media.source.url is set, and a copy needs both stores";
                return Err(section.refuse("media.store.url", why));
            }
            (None, Some(_)) => {
                let why = "is missing: media.store.url is set, and a copy needs both stores";
                return Err(section.refuse("media.source.url", why));
            }
            (Some(_), Some(_)) => (read(section, "source")?, read(section, "store")?),
        };
        Ok(Some(Stores { source, store }))
    }
}

fn read(section: &Section, side: &str) -> Result<Address, settings::Error> {
    let key = |name: &str| format!("media.{side}.{name}");
    let secret = |name: &str| match section.find(&key(name))? {
        Some(value) => Ok(value.secret().expose().to_owned()),
        None => Err(section.refuse(&key(name), "is missing: the store wants signed requests")),
    };
    let address = Address {
        url: section.get(&key("url"))?.parse()?,
        bucket: section.get(&key("bucket"))?.text(),
        region: section.get(&key("region"))?.text(),
        access_key: secret("access_key")?,
        secret_key: secret("secret_key")?,
        style: Style::Path,
    };
    match Bucket::new(&address) {
        Ok(_) => Ok(address),
        Err(why) => Err(section.refuse(&key("url"), why.to_string())),
    }
}
