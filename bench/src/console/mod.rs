//! The operator's page: the picture of a site with a thousand nodes, and a plot of a million points, each beside the plain SQL that a person would write at
//! the database behind it.
//!
//! Everything is real and in this process ([`ground`]). The picture is asked for as a browser asks, with a session; by hand it is one count of nodes by how long ago each was heard. The plot is a thousand pixels wide, and asked for
//! when the historian has made the minutes of every hour that is over; by hand it is every point of the series, which a page would then have to thin out, and, as another row, the buckets by `date_bin`.
//! What a browser makes of it is [`page`].

mod ground;
pub(crate) mod page;

use anyhow::Result;

use crate::measure::interleaved;
use crate::place::Place;
use crate::row::Row;

const ROUNDS: usize = 5;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    ground::on(place, "console", |runtime, ground| {
        place.say("console", "looking");
        let picture = interleaved(
            ROUNDS,
            || runtime.block_on(ground.pictures()),
            || runtime.block_on(ground.nodes_by_hand()),
        )?;
        let plot = interleaved(
            ROUNDS,
            || runtime.block_on(ground.plot()),
            || runtime.block_on(ground.points_by_hand()),
        )?;
        let buckets = interleaved(
            ROUNDS,
            || runtime.block_on(ground.plot()),
            || runtime.block_on(ground.buckets_by_hand()),
        )?;
        Ok(vec![
            Row::less("console/picture_of_1000_nodes", "ms", picture.0, picture.1),
            Row::less("console/plot_of_a_million_beside_all_points", "ms", plot.0, plot.1),
            Row::less("console/plot_of_a_million_beside_buckets", "ms", buckets.0, buckets.1),
        ])
    })
}
