//! Why something went to quarantine instead of the store.

/// The code in `ingress_quarantine.reason` and in the metrics. docs/spec/edge-tables.md lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The topic is none of ours, or its node id breaks the grammar.
    Topic,
    /// The body is larger than a message may be, as received or after decompression.
    TooLarge,
    /// The body cannot be read: bad compression, bad JSON, another version, a broken rule of
    /// batches.
    Unreadable,
    /// The node is not registered.
    UnknownNode,
    /// The node has been shut out.
    DisabledNode,
    /// The event breaks a rule of its envelope or payload.
    InvalidEvent,
    /// The event names another tenant than its node belongs to.
    TenantMismatch,
    /// The event's id belongs to another tenant's event.
    IdTaken,
    /// The sequences leave more holes than the ledger keeps.
    TooManyIslands,
    /// The database refuses the row.
    Refused,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 10] = [
        Reason::Topic,
        Reason::TooLarge,
        Reason::Unreadable,
        Reason::UnknownNode,
        Reason::DisabledNode,
        Reason::InvalidEvent,
        Reason::TenantMismatch,
        Reason::IdTaken,
        Reason::TooManyIslands,
        Reason::Refused,
    ];

    /// The code.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Topic => "topic",
            Reason::TooLarge => "too_large",
            Reason::Unreadable => "unreadable",
            Reason::UnknownNode => "unknown_node",
            Reason::DisabledNode => "disabled_node",
            Reason::InvalidEvent => "invalid_event",
            Reason::TenantMismatch => "tenant_mismatch",
            Reason::IdTaken => "id_taken",
            Reason::TooManyIslands => "too_many_islands",
            Reason::Refused => "refused_by_database",
        }
    }
}

/// What is wrong, for a machine and for a person. The detail never holds a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub reason: Reason,
    /// The sentence.
    pub detail: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal { reason, detail: detail.into() }
    }
}
