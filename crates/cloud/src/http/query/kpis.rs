//! KPIs of images and of the sites' batches, by day of UTC.

use super::listing::Filter::{Days, Id, Text};
use super::listing::Listing;

/// Images by farm, barn and day, each counted once however often it was told of.
pub(super) const KPI_IMAGES: Listing = Listing {
    columns: &["day", "farm_id", "barn_id", "image_count", "total_bytes"],
    table: "(SELECT tenant_id, (occurred_at AT TIME ZONE 'UTC')::date AS day, farm_id, barn_id,
             count(*) AS image_count, sum(size_bytes)::bigint AS total_bytes
         FROM kpi_image GROUP BY 1, 2, 3, 4)",
    filters: &[Id("farm_id"), Id("barn_id"), Days("day")],
    key: &[("day", "date"), ("farm_id", "uuid"), ("barn_id", "uuid")],
    newest_first: true,
};

/// Batches by site and the day on which they were sent; one whose sending was not told of is not here. An absurd
/// number of events, whose sum would overflow, is left out.
pub(super) const KPI_SYNC: Listing = Listing {
    columns: &[
        "day",
        "edge_cluster_id",
        "batches_sent",
        "batches_acked",
        "events_sent",
        "events_acked",
        "mean_seconds_to_ack",
    ],
    table: "(SELECT tenant_id, (sent_at AT TIME ZONE 'UTC')::date AS day,
             coalesce(edge_cluster_id, '') AS edge_cluster_id, count(*) AS batches_sent,
             count(acked_at) AS batches_acked,
             coalesce(sum(sent_count) FILTER (WHERE sent_count < 1e9), 0)::bigint AS events_sent,
             coalesce(sum(acked_count) FILTER (WHERE acked_count < 1e9), 0)::bigint AS events_acked,
             avg(extract(epoch FROM acked_at - sent_at))::float8 AS mean_seconds_to_ack
         FROM kpi_sync_batch WHERE sent_at IS NOT NULL GROUP BY 1, 2, 3)",
    filters: &[Text("edge_cluster_id"), Days("day")],
    key: &[("day", "date"), ("edge_cluster_id", "text")],
    newest_first: true,
};
