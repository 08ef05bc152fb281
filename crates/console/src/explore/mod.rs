//! Telemetry over time: which series there are, their points in as many as a screen shows, what happened meanwhile, and CSV.
//!
//! Farm series come from the sites, which have the finest; the plant's come from the historian.

mod csv;
mod down_sample;
mod id;
mod marks;
mod points;
mod series;

pub(crate) use csv::{__path_csv, csv};
pub(crate) use marks::{__path_marks, marks};
pub(crate) use points::{__path_points, points};
pub(crate) use series::{__path_series, AllSeries, series};
