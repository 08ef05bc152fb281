//! Which event came under each of 64 sequences: the ledger's memory.
//!
//! A slot holds 8 bytes of the ledger's own hash of sequence and event id; zero means that nothing
//! was received. Pages are small so that a few events of a stream rewrite little.

use event::id::EventId;
use event::ledger::Digest;

/// Sequences in a page.
pub(crate) const PAGE_LEN: u64 = 64;
const SLOT_BYTES: usize = 8;
const SLOTS: usize = 64;

/// The page that a sequence belongs to.
pub(crate) fn page_of(seq: u64) -> u64 {
    seq / PAGE_LEN
}

/// An event as a slot remembers it. Never zero.
pub(crate) fn mark(digest: Digest) -> u64 {
    digest.mark()
}

/// The digest of one event, which blocks add up and slots remember.
pub(crate) fn digest_of(seq: u64, event: EventId) -> Digest {
    let mut digest = Digest::new();
    digest.add(seq, event);
    digest
}

/// The slots of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    slots: [u64; SLOTS],
    pub(crate) changed: bool,
}

impl Default for Page {
    fn default() -> Page {
        Page { slots: [0; SLOTS], changed: false }
    }
}

impl Page {
    /// A page as it was stored. `None` if it has another size.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Page> {
        let mut page = Page::default();
        let (chunks, rest) = bytes.as_chunks::<SLOT_BYTES>();
        if chunks.len() != SLOTS || !rest.is_empty() {
            return None;
        }
        for (slot, chunk) in page.slots.iter_mut().zip(chunks) {
            *slot = u64::from_be_bytes(*chunk);
        }
        Some(page)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.slots.iter().flat_map(|slot| slot.to_be_bytes()).collect()
    }

    /// What came under a sequence; zero for nothing.
    pub(crate) fn get(&self, seq: u64) -> u64 {
        self.slots.get(index(seq)).copied().unwrap_or(0)
    }

    /// Remembers what came first under a sequence.
    pub(crate) fn set(&mut self, seq: u64, mark: u64) {
        if let Some(slot) = self.slots.get_mut(index(seq)) {
            *slot = mark;
            self.changed = true;
        }
    }

    /// The sequences of page number `page` that were received.
    pub(crate) fn received(&self, page: u64) -> impl Iterator<Item = u64> + '_ {
        let first = page.saturating_mul(PAGE_LEN);
        (first..).zip(&self.slots).filter(|(_, slot)| **slot != 0).map(|(seq, _)| seq)
    }
}

fn index(seq: u64) -> usize {
    usize::try_from(seq % PAGE_LEN).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_round_trips_and_names_what_was_received() {
        let mut page = Page::default();
        page.set(130, mark(digest_of(130, EventId::mint())));
        page.set(191, 7);
        let again = Page::from_bytes(&page.to_bytes()).unwrap();
        assert_eq!((again.get(130), again.get(191)), (page.get(130), 7));
        assert_eq!(again.received(page_of(130)).collect::<Vec<_>>(), [130, 191]);
        assert_eq!(Page::from_bytes(&[0; 511]), None);
    }
}
