//! Every list, by its route.

use super::gaps::TOMBSTONES;
use super::kpis::{KPI_IMAGES, KPI_SYNC};
use super::listing::Filter::{Days, Id, Needed, Range, Text, Word};
use super::listing::Listing;
use super::session::SESSIONS;

const WINDOWS: &[&str] = &["1m", "1h", "1d"];

/// Every list.
pub(super) static ALL: &[(&str, Listing)] = &[
    ("/api/v1/telemetry", TELEMETRY),
    ("/api/v1/telemetry/aggregates", AGGREGATES),
    ("/api/v1/telemetry/latest", LATEST),
    ("/api/v1/sessions", SESSIONS),
    ("/api/v1/media", MEDIA),
    ("/api/v1/inference", INFERENCE),
    ("/api/v1/events", EVENTS),
    ("/api/v1/kpis/metrics", KPI_METRICS),
    ("/api/v1/kpis/hours", KPI_HOURS),
    ("/api/v1/kpis/sessions", KPI_SESSIONS),
    ("/api/v1/kpis/inference", KPI_INFERENCE),
    ("/api/v1/kpis/batches", KPI_BATCHES),
    ("/api/v1/kpis/images", KPI_IMAGES),
    ("/api/v1/kpis/sync", KPI_SYNC),
    ("/api/v1/sync/journal", SYNC_JOURNAL),
    ("/api/v1/ledger/frontiers", FRONTIERS),
    ("/api/v1/ledger/tombstones", TOMBSTONES),
];

const TELEMETRY: Listing = Listing {
    columns: &[
        "event_id",
        "occurred_at",
        "farm_id",
        "barn_id",
        "device_id",
        "session_id",
        "metric_type",
        "metric_value",
        "unit",
        "quality",
        "clock_unset",
        "trace_id",
        "stream",
        "epoch",
        "seq",
        "stored_at",
    ],
    table: "telemetry_reading",
    filters: &[
        Id("device_id"),
        Id("farm_id"),
        Id("barn_id"),
        Text("metric_type"),
        Range("occurred_at"),
    ],
    key: &[("occurred_at", "timestamptz"), ("event_id", "uuid")],
    newest_first: true,
};

const AGGREGATES: Listing = Listing {
    columns: &[
        "aggregation_window",
        "bucket_start",
        "farm_id",
        "barn_id",
        "device_id",
        "metric_type",
        "unit",
        "sample_count",
        "avg_value",
        "min_value",
        "max_value",
        "version",
        "updated_at",
    ],
    table: "telemetry_aggregate",
    filters: &[
        Needed("aggregation_window", WINDOWS),
        Id("device_id"),
        Id("farm_id"),
        Id("barn_id"),
        Text("metric_type"),
        Range("bucket_start"),
    ],
    key: &[
        ("bucket_start", "timestamptz"),
        ("device_id", "uuid"),
        ("metric_type", "text"),
        ("unit", "text"),
    ],
    newest_first: true,
};

const LATEST: Listing = Listing {
    columns: &[
        "device_id",
        "metric_type",
        "unit",
        "farm_id",
        "barn_id",
        "metric_value",
        "quality",
        "occurred_at",
        "event_id",
    ],
    table: "telemetry_latest",
    filters: &[Id("device_id"), Id("farm_id"), Id("barn_id"), Text("metric_type")],
    key: &[("device_id", "uuid"), ("metric_type", "text"), ("unit", "text")],
    newest_first: false,
};

pub(super) const MEDIA: Listing = Listing {
    columns: &[
        "media_id",
        "event_id",
        "farm_id",
        "barn_id",
        "device_id",
        "session_id",
        "occurred_at",
        "path",
        "mime_type",
        "size_bytes",
        "copy_status",
        "copy_attempts",
        "copy_error_code",
        "copied_at",
        "encode(copied_sha256, 'hex') AS copied_sha256",
        "trace_id",
        "stored_at",
    ],
    table: "media_object",
    filters: &[
        Id("session_id"),
        Id("farm_id"),
        Id("barn_id"),
        Id("device_id"),
        Word("copy_status", &["pending", "copying", "copied", "failed"]),
        Range("occurred_at"),
    ],
    key: &[("occurred_at", "timestamptz"), ("media_id", "uuid")],
    newest_first: true,
};

pub(super) const INFERENCE: Listing = Listing {
    columns: &[
        "inference_result_id",
        "event_id",
        "farm_id",
        "barn_id",
        "device_id",
        "session_id",
        "occurred_at",
        "predicted_weight_kg",
        "confidence",
        "model_version",
        "trace_id",
        "stored_at",
    ],
    table: "inference_result",
    filters: &[
        Id("session_id"),
        Id("farm_id"),
        Id("barn_id"),
        Id("device_id"),
        Text("model_version"),
        Range("occurred_at"),
    ],
    key: &[("occurred_at", "timestamptz"), ("inference_result_id", "uuid")],
    newest_first: true,
};

const EVENTS: Listing = Listing {
    columns: &[
        "event_id",
        "event_type",
        "occurred_at",
        "farm_id",
        "barn_id",
        "device_id",
        "session_id",
        "trace_id",
        "payload",
        "stored_at",
    ],
    table: "event_journal",
    filters: &[Text("event_type"), Id("device_id"), Range("occurred_at")],
    key: &[("occurred_at", "timestamptz"), ("event_id", "uuid")],
    newest_first: true,
};

/// A farm or barn that is not known is nil in the tables, because a key holds no null.
const FARM: &str = "nullif(farm_id, '00000000-0000-0000-0000-000000000000') AS farm_id";
const BARN: &str = "nullif(barn_id, '00000000-0000-0000-0000-000000000000') AS barn_id";

const KPI_METRICS: Listing = Listing {
    columns: &[
        "day",
        FARM,
        BARN,
        "metric_type",
        "unit",
        "sample_count",
        "mean_value",
        "min_value",
        "max_value",
        "minutes_observed",
        "minutes_in_range",
        "minutes_in_range::float8 / minutes_observed AS share_in_range",
        "range_low",
        "range_high",
        "updated_at",
    ],
    table: "kpi_metric_day",
    filters: &[Id("farm_id"), Id("barn_id"), Text("metric_type"), Days("day")],
    key: &[
        ("day", "date"),
        ("q.farm_id", "uuid"),
        ("q.barn_id", "uuid"),
        ("metric_type", "text"),
        ("unit", "text"),
    ],
    newest_first: true,
};

const KPI_HOURS: Listing = Listing {
    columns: &[
        "hour",
        "farm_id",
        "barn_id",
        "device_id",
        "metric_type",
        "unit",
        "avg_value",
        "min_value",
        "max_value",
    ],
    table: "kpi_hour",
    filters: &[Id("device_id"), Id("farm_id"), Id("barn_id"), Text("metric_type"), Range("hour")],
    key: &[
        ("hour", "timestamptz"),
        ("device_id", "uuid"),
        ("metric_type", "text"),
        ("unit", "text"),
    ],
    newest_first: true,
};

/// A session counts as created on the day it was created, as finalized or cancelled on the day of that. What
/// one that was cancelled weighed is in no mean. A weight
/// of an absurd size, whose square would overflow, is left out of the means here and below.
const KPI_SESSIONS: Listing = Listing {
    columns: &[
        "day",
        "farm_id",
        "barn_id",
        "sessions_created",
        "sessions_finalized",
        "sessions_cancelled",
        "mean_initial_weight_kg",
        "mean_final_weight_kg",
        "image_count",
    ],
    table: "(SELECT tenant_id, day, farm_id, barn_id,
             count(*) FILTER (WHERE part = 'created') AS sessions_created,
             count(*) FILTER (WHERE part = 'finalized') AS sessions_finalized,
             count(*) FILTER (WHERE part = 'cancelled') AS sessions_cancelled,
             avg(kg) FILTER (WHERE part = 'created') AS mean_initial_weight_kg,
             avg(kg) FILTER (WHERE part = 'finalized') AS mean_final_weight_kg,
             coalesce(sum(images), 0)::bigint AS image_count
         FROM (SELECT tenant_id, (created_at AT TIME ZONE 'UTC')::date AS day, farm_id, barn_id,
                   'created' AS part, 0 AS images,
                   CASE WHEN abs(initial_weight_kg) < 1e100 AND cancelled_at IS NULL
                       THEN initial_weight_kg END AS kg
               FROM kpi_session WHERE created_at IS NOT NULL
               UNION ALL
               SELECT tenant_id, (finalized_at AT TIME ZONE 'UTC')::date, farm_id, barn_id,
                   'finalized', image_count,
                   CASE WHEN abs(final_weight_kg) < 1e100 AND cancelled_at IS NULL
                       THEN final_weight_kg END
               FROM kpi_session WHERE finalized_at IS NOT NULL
               UNION ALL
               SELECT tenant_id, (cancelled_at AT TIME ZONE 'UTC')::date, farm_id, barn_id,
                   'cancelled', 0, NULL
               FROM kpi_session WHERE cancelled_at IS NOT NULL) parts
         GROUP BY tenant_id, day, farm_id, barn_id)",
    filters: &[Id("farm_id"), Id("barn_id"), Days("day")],
    key: &[("day", "date"), ("farm_id", "uuid"), ("barn_id", "uuid")],
    newest_first: true,
};

const KPI_INFERENCE: Listing = Listing {
    columns: &[
        "day",
        "farm_id",
        "barn_id",
        "model_version",
        "result_count",
        "mean_confidence",
        "min_confidence",
        "mean_predicted_weight_kg",
    ],
    table: "(SELECT tenant_id, (occurred_at AT TIME ZONE 'UTC')::date AS day, farm_id, barn_id,
             model_version, count(*) AS result_count, avg(confidence) AS mean_confidence,
             min(confidence) AS min_confidence,
             avg(predicted_weight_kg) FILTER (WHERE abs(predicted_weight_kg) < 1e100)
                 AS mean_predicted_weight_kg
         FROM kpi_inference GROUP BY 1, 2, 3, 4, 5)",
    filters: &[Id("farm_id"), Id("barn_id"), Text("model_version"), Days("day")],
    key: &[("day", "date"), ("farm_id", "uuid"), ("barn_id", "uuid"), ("model_version", "text")],
    newest_first: true,
};

/// What a batch of animals has gained between the first and the last day it was weighed on.
const KPI_BATCHES: Listing = Listing {
    columns: &[
        "batch_id",
        "farm_id",
        "barn_id",
        "session_count",
        "first_day",
        "last_day",
        "first_mean_weight_kg",
        "last_mean_weight_kg",
        "last_mean_weight_kg - first_mean_weight_kg AS gain_kg",
        "CASE WHEN last_day > first_day
             THEN (last_mean_weight_kg - first_mean_weight_kg) / (last_day - first_day)
         END AS gain_kg_per_day",
    ],
    table: "(SELECT tenant_id, farm_id, barn_id, batch_id, sum(n)::bigint AS session_count,
             min(day) AS first_day, max(day) AS last_day,
             (array_agg(mean ORDER BY day))[1] AS first_mean_weight_kg,
             (array_agg(mean ORDER BY day DESC))[1] AS last_mean_weight_kg
         FROM (SELECT tenant_id, farm_id, barn_id, batch_id,
                   (finalized_at AT TIME ZONE 'UTC')::date AS day, count(*) AS n,
                   avg(final_weight_kg) AS mean
               FROM kpi_session WHERE batch_id IS NOT NULL AND finalized_at IS NOT NULL
                   AND abs(final_weight_kg) < 1e100
               GROUP BY 1, 2, 3, 4, 5) days
         GROUP BY 1, 2, 3, 4)",
    filters: &[Id("batch_id"), Id("farm_id"), Id("barn_id"), Days("last_day")],
    key: &[("last_day", "date"), ("farm_id", "uuid"), ("barn_id", "uuid"), ("batch_id", "uuid")],
    newest_first: true,
};

const SYNC_JOURNAL: Listing = Listing {
    columns: &[
        "batch_id",
        "status",
        "edge_cluster_id",
        "sent_at",
        "sent_count",
        "acked_at",
        "acked_count",
        "first_at",
    ],
    table: "sync_batch",
    filters: &[Word("status", &["sent", "acked"]), Text("edge_cluster_id"), Range("first_at")],
    key: &[("first_at", "timestamptz"), ("batch_id", "text")],
    newest_first: true,
};

/// At most 100 ranges of each kind are shown; the counts are of all.
const FRONTIERS: Listing = Listing {
    columns: &[
        "stream",
        "epoch",
        "acked",
        "received_count",
        "lost_count",
        "accepted_count",
        "cloned_count",
        "received[1:200] AS received",
        "lost[1:200] AS lost",
        "created_at",
        "updated_at",
    ],
    table: "ledger_frontier",
    filters: &[Text("stream"), Id("epoch")],
    key: &[("stream", "text"), ("epoch", "uuid")],
    newest_first: false,
};
