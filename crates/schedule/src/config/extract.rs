//! The `extract.*` keys: how images are read. One more way is one more word here and one more variant of [`Photographs`].

use objects::Bucket;
use settings::Section;

use crate::worker::{Fixture, Photographs, Reader, Stored};

/// The words of `extract.method`.
pub(super) const METHODS: &[&str] = &["none", "fixture"];

/// What reads the sessions.
pub(super) fn reader(section: &Section, bucket: Option<Bucket>) -> Result<Reader, settings::Error> {
    let noise = section.find("extract.noise_seed")?.map(|value| value.parse()).transpose()?;
    let photographs = match section.get("extract.method")?.text().as_str() {
        "fixture" => {
            let path = section.find("extract.fixture_file")?.ok_or_else(|| {
                section.refuse("extract.fixture_file", "is missing: extract.method is fixture")
            })?;
            Photographs::Fixture(Fixture { path: path.path(), noise })
        }
        _ => Photographs::Unread,
    };
    Ok(Reader { stored: bucket.map(|bucket| Stored { bucket, noise }), photographs })
}
