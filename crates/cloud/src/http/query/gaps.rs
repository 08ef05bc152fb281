//! Known gaps: what tiers declared, and how much of it is still lost.

use super::listing::Filter::{Flag, Id, Overlap, Text, Word};
use super::listing::Listing;

/// Every declaration, with how many of its sequences are lost now: those in the frontier's `lost`, a sorted list of first, last, first, last. Only the pairs
/// around the range are unpacked, because a frontier may hold very many. Cut to the range, every end adds and every beginning takes away, and what lies
/// outside cancels itself. Without a frontier nothing says that any came.
///
/// The three reasons are no loss (docs/spec/edge-cloud.md). They are named once more as a condition of their own, in the words of the index
/// `ledger_tombstone_loss`: a site that keeps its readings declares that very often, and losses are found without reading those rows.
pub(super) const TOMBSTONES: Listing = Listing {
    columns: &[
        "stream",
        "epoch",
        "from_seq",
        "to_seq",
        "count",
        "lost",
        "first_at",
        "last_at",
        "reason",
        "origin",
        "recorded_at",
    ],
    table: "(SELECT t.*, l.lost,
             t.reason NOT IN ('quarantined', 'duplicate', 'kept_at_site') AND l.lost > 0 AS loss,
             coalesce(t.first_at, t.last_at, t.recorded_at) AS began_at,
             coalesce(t.last_at, t.first_at, t.recorded_at) AS ended_at
         FROM ledger_tombstone t
         LEFT JOIN ledger_frontier f USING (tenant_id, stream, epoch)
         CROSS JOIN LATERAL (SELECT width_bucket(t.from_seq, f.lost) AS before,
             width_bucket(t.to_seq, f.lost) AS until) p
         CROSS JOIN LATERAL (SELECT CASE
                 WHEN t.reason IN ('quarantined', 'duplicate', 'kept_at_site') THEN 0
                 WHEN f.lost IS NULL THEN t.count
                 ELSE coalesce(sum(CASE WHEN n % 2 = 1
                     THEN -least(greatest(at, t.from_seq), t.to_seq + 1)
                     ELSE least(greatest(at + 1, t.from_seq), t.to_seq + 1) END), 0)
             END::bigint AS lost
             FROM unnest(f.lost[greatest(p.before - 1, 0) / 2 * 2 + 1:p.until + p.until % 2])
                 WITH ORDINALITY AS around (at, n)) l)",
    filters: &[
        Text("stream"),
        Id("epoch"),
        Text("reason"),
        Word("origin", &["node", "edge", "cloud"]),
        Flag("loss"),
        Overlap("began_at", "ended_at"),
    ],
    key: &[
        ("recorded_at", "timestamptz"),
        ("stream", "text"),
        ("epoch", "uuid"),
        ("from_seq", "bigint"),
        ("to_seq", "bigint"),
        ("reason", "text"),
        ("origin", "text"),
    ],
    newest_first: true,
};
