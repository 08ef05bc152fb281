//! Where log lines go and how they look, and whether spans are exported.
//!
//! Promise: whatever the operator wants to see, libraries that would log bodies or parameters are kept
//! to what does not hold them.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::otlp;

/// Below these, messages that the broker returned, the parameters of statements and signed addresses would be in the log.
const NO_BODIES: [&str; 3] = [::cloud::LOG_DIRECTIVE, "tokio_postgres=warn", "s3s=info"];

/// How log lines look.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where log lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// Standard error, so that what a command prints can be piped.
    Errors,
    /// Standard output, for a role that prints nothing else and whose contract says so.
    Output,
}

/// Starts the log.
pub(crate) fn start(format: Format, to: To) -> otlp::Spans {
    let mut filter = EnvFilter::try_from_env("HOLDFAST_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,refinery_core=warn"));
    for directive in NO_BODIES.iter().filter_map(|text| text.parse().ok()) {
        filter = filter.add_directive(directive);
    }
    let (writer, terminal) = match to {
        To::Errors => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
        To::Output => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
    };
    let lines = fmt::layer().with_writer(writer).with_ansi(terminal);
    let lines = match format {
        Format::Text => lines.with_target(false).with_filter(filter).boxed(),
        Format::Json => lines.json().with_filter(filter).boxed(),
    };
    let (export, spans, problem) = match otlp::from_environment() {
        Ok((layer, spans)) => (layer, spans, None),
        Err(error) => (None, otlp::Spans::default(), Some(error)),
    };
    let export = export.map(|layer| layer.with_filter(LevelFilter::INFO));
    tracing_subscriber::registry().with(lines).with(export).init();
    if let Some(error) = problem {
        tracing::error!("spans cannot be exported: {error:#}");
    }
    spans
}
