//! The object stores that images are copied between: those of the sites, and the cloud's.

use std::collections::BTreeMap;
use std::path::Path;

use event::id::TenantId;
use objects::{Address, Bucket, Style};
use settings::Section;
use uuid::Uuid;

/// The most tenants with a store of their own.
const MAX_SOURCES: usize = 1_000;

/// From where to where objects are copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stores {
    /// The sites' store, for every tenant that has none of its own.
    pub source: Address,
    /// The stores of tenants whose sites have their own.
    pub sources: BTreeMap<Uuid, Address>,
    /// The cloud's store.
    pub store: Address,
}

impl Stores {
    /// One store for all sites, and the cloud's.
    pub fn new(source: Address, store: Address) -> Stores {
        Stores { source, sources: BTreeMap::new(), store }
    }

    /// Both, neither, or a refusal that says which key is missing.
    pub(crate) fn from_section(section: &Section) -> Result<Option<Stores>, settings::Error> {
        let there = |side: &str| section.find(&format!("media.{side}.url"));
        let (source, store) = match (there("source")?, there("store")?) {
            (None, None) => {
                if !section.get("media.sources")?.list().is_empty() {
                    let why = "is missing: media.sources is set, and other tenants' images need a store too";
                    return Err(section.refuse("media.source.url", why));
                }
                return Ok(None);
            }
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
        let sources = of_tenants(section, &source)?;
        Ok(Some(Stores { source, sources, store }))
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
        style: match section.get(&key("style"))?.text().as_str() {
            "host" => Style::VirtualHost,
            _ => Style::Path,
        },
    };
    match Bucket::new(&address) {
        Ok(_) => Ok(address),
        Err(why) => Err(section.refuse(&key("url"), why.to_string())),
    }
}

/// `media.sources`: what is not said there, region and style, is as for the others.
fn of_tenants(
    section: &Section,
    others: &Address,
) -> Result<BTreeMap<Uuid, Address>, settings::Error> {
    let refuse = |why: String| section.refuse("media.sources", why);
    let mut sources = BTreeMap::new();
    for text in section.get("media.sources")?.list() {
        let parts: Vec<&str> = text.splitn(4, '=').map(str::trim).collect();
        let [tenant, url, bucket, file] = parts[..] else {
            return Err(refuse(format!("expected TENANT=URL=BUCKET=KEY_FILE, and found {text:?}")));
        };
        let id: TenantId = tenant.parse().map_err(|error| refuse(format!("{tenant:?} {error}")))?;
        let url = url.parse().map_err(|_| {
            refuse(format!("{tenant}: {url:?} is no address: expected http://… or https://…"))
        })?;
        let (access_key, secret_key) =
            keys(Path::new(file)).map_err(|why| refuse(format!("{tenant}: {file} {why}")))?;
        let bucket = bucket.to_owned();
        let address = Address { url, bucket, access_key, secret_key, ..others.clone() };
        Bucket::new(&address).map_err(|why| refuse(format!("{tenant}: {why}")))?;
        if sources.insert(id.uuid(), address).is_some() {
            return Err(refuse(format!("{tenant} is there twice")));
        }
    }
    match sources.len() <= MAX_SOURCES {
        true => Ok(sources),
        false => Err(refuse(format!("at most {MAX_SOURCES}"))),
    }
}

/// A file of two lines: the access key, and the secret key.
fn keys(file: &Path) -> Result<(String, String), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines[..] {
        [access, secret] => Ok((access.to_owned(), secret.to_owned())),
        _ => Err("must have two lines: the access key, and the secret key".to_owned()),
    }
}

/// The buckets that are read from.
#[derive(Debug)]
pub(super) struct Sources {
    all: Bucket,
    own: BTreeMap<Uuid, Bucket>,
}

impl Sources {
    pub(super) fn new(stores: &Stores) -> Result<Sources, objects::Error> {
        let mut own = BTreeMap::new();
        for (tenant, address) in &stores.sources {
            own.insert(*tenant, Bucket::new(address)?);
        }
        Ok(Sources { all: Bucket::new(&stores.source)?, own })
    }

    /// Where the images of a tenant are.
    pub(super) fn of(&self, tenant: Uuid) -> &Bucket {
        self.own.get(&tenant).unwrap_or(&self.all)
    }

    /// Whether that is a store of the tenant's own.
    pub(super) fn is_own(&self, tenant: Uuid) -> bool {
        self.own.contains_key(&tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "0190f1a8-7c21-7b3e-9b0e-00000000000a";

    fn load(pairs: &[(&str, String)]) -> Result<Option<Stores>, settings::Error> {
        let section = Section::load(None, "cloud", crate::config::KEYS, |name| {
            let key = name.strip_prefix("HOLDFAST_CLOUD_")?;
            let given = pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| value.clone());
            given.or_else(|| match key {
                "DATABASE_URL" => Some("postgres://u@localhost/d".to_owned()),
                "MEDIA_SOURCE_URL" | "MEDIA_STORE_URL" => Some("http://store.example".to_owned()),
                "MEDIA_SOURCE_ACCESS_KEY" | "MEDIA_SOURCE_SECRET_KEY" => Some("all".to_owned()),
                "MEDIA_STORE_ACCESS_KEY" | "MEDIA_STORE_SECRET_KEY" => Some("cloud".to_owned()),
                _ => None,
            })
        })?;
        Stores::from_section(&section)
    }

    fn key_file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_tenant_may_have_a_store_of_its_own_and_the_others_have_one() {
        let file = key_file("its-key\nits-secret\n");
        let own = format!("{TENANT}=https://site.example=frames={}", file.path().display());
        let stores = load(&[("MEDIA_SOURCES", own), ("MEDIA_SOURCE_STYLE", "host".to_owned())]);
        let stores = stores.unwrap().unwrap();
        let tenant: Uuid = TENANT.parse().unwrap();
        let address = &stores.sources[&tenant];
        assert_eq!(
            (address.url.as_str(), address.bucket.as_str()),
            ("https://site.example/", "frames")
        );
        assert_eq!(
            (address.access_key.as_str(), address.secret_key.as_str()),
            ("its-key", "its-secret")
        );
        assert_eq!((address.style, stores.source.style), (Style::VirtualHost, Style::VirtualHost));
        assert_eq!(stores.store.style, Style::Path, "each side has its own");
        let sources = Sources::new(&stores).unwrap();
        assert_eq!((sources.of(tenant).name(), sources.is_own(tenant)), ("frames", true));
        let other = Uuid::now_v7();
        assert_eq!((sources.of(other).name(), sources.is_own(other)), ("media", false));
    }

    #[test]
    fn a_list_that_cannot_be_used_is_refused_in_words() {
        let (sound, short) = (key_file("a\nb\n"), key_file("a\n"));
        let entry = |tenant: &str, url: &str, file: &Path| {
            format!("{tenant}={url}=frames={}", file.display())
        };
        let once = entry(TENANT, "http://site.example", sound.path());
        for (list, why) in [
            (format!("{TENANT}=http://site.example"), "TENANT=URL=BUCKET=KEY_FILE"),
            (entry("farm", "http://site.example", sound.path()), "farm"),
            (entry(TENANT, "nowhere", sound.path()), "is no address"),
            (entry(TENANT, "http://site.example", short.path()), "two lines"),
            (entry(TENANT, "http://site.example", Path::new("/nowhere")), "cannot be read"),
            (format!("{once},{once}"), "twice"),
        ] {
            let said = load(&[("MEDIA_SOURCES", list.clone())]).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("media.sources"), "{list}: {said}");
        }
    }
}
