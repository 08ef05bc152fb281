//! The documented columns, by name, type and nullability, and that everything beside them can be left out.

use std::collections::BTreeMap;

use crate::site::Site;

/// Table, and its columns: a `?` at the end of a type means that it may be null.
const DOCUMENTED: [(&str, &[(&str, &str)]); 7] = [
    (
        "capture_session",
        &[
            ("id", "uuid"),
            ("user_id", "int8"),
            ("state", "capture_session_state"),
            ("created_at", "timestamptz"),
            ("error", "text?"),
            ("locked_at", "timestamptz?"),
            ("locked_by", "text?"),
        ],
    ),
    (
        "capture_image",
        &[
            ("id", "uuid"),
            ("session_id", "uuid"),
            ("sequence", "int4"),
            ("r2_key", "text"),
            ("telegram_message_id", "int8?"),
            ("created_at", "timestamptz"),
        ],
    ),
    (
        "day_schedule",
        &[("user_id", "int8"), ("schedule_date", "date"), ("current_version", "int4")],
    ),
    (
        "schedule_version",
        &[
            ("user_id", "int8"),
            ("schedule_date", "date"),
            ("version", "int4"),
            ("session_id", "uuid"),
            ("payload", "jsonb"),
            ("payload_hash", "text"),
            ("created_at", "timestamptz"),
        ],
    ),
    (
        "day_snapshot",
        &[
            ("user_id", "int8"),
            ("schedule_date", "date"),
            ("snapshot_payload", "jsonb"),
            ("source_session_id", "uuid"),
            ("updated_at", "timestamptz"),
        ],
    ),
    (
        "schedule_event",
        &[
            ("event_id", "uuid"),
            ("user_id", "int8"),
            ("schedule_date", "date"),
            ("event_type", "text"),
            ("location_fingerprint", "text"),
            ("customer_fingerprint", "text"),
            ("old_value_hash", "text"),
            ("new_value_hash", "text"),
            ("old_value", "jsonb?"),
            ("new_value", "jsonb?"),
            ("detected_at", "timestamptz"),
            ("source_session_id", "uuid"),
        ],
    ),
    (
        "schedule_notification",
        &[
            ("notification_id", "text"),
            ("user_id", "int8"),
            ("schedule_date", "date"),
            ("source_session_id", "uuid"),
            ("status", "text"),
            ("notification_type", "text"),
            ("message", "text"),
            ("event_ids", "jsonb"),
            ("created_at", "timestamptz"),
            ("sent_at", "timestamptz?"),
        ],
    ),
];

#[tokio::test]
async fn every_documented_column_is_there_and_every_other_can_be_left_out() {
    let site = Site::new("columns").await;
    let rows = site
        .client
        .query(
            "SELECT table_name::text, column_name::text,
                udt_name::text || CASE is_nullable WHEN 'YES' THEN '?' ELSE '' END,
                is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'
             FROM information_schema.columns WHERE table_schema = 'schedule_ingest'",
            &[],
        )
        .await
        .unwrap();
    let mut columns: BTreeMap<(String, String), (String, bool)> =
        rows.iter().map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3)))).collect();
    for (table, documented) in DOCUMENTED {
        for (column, expected) in documented {
            let found = columns.remove(&(table.to_owned(), (*column).to_owned()));
            let found = found.map(|(kind, _)| kind);
            assert_eq!(found.as_deref(), Some(*expected), "{table}.{column}");
        }
    }
    // Tables of ours alone have columns as they like.
    let shared = |table: &str| DOCUMENTED.iter().any(|(documented, _)| *documented == table);
    let added: Vec<_> = columns.iter().filter(|((table, _), _)| shared(table)).collect();
    assert!(!added.is_empty());
    for (column, (_, optional)) in added {
        assert!(*optional, "{column:?} was added and cannot be left out");
    }
    let states =
        "SELECT count(*) FROM unnest(enum_range(NULL::schedule_ingest.capture_session_state)) s
        WHERE s::text IN ('pending', 'processing', 'done', 'failed')";
    assert_eq!(site.number(states).await, 4);
}
