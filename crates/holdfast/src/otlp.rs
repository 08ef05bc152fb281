//! Spans to a collector, over OTLP, when the environment names one.
//!
//! The spans of the roles carry their W3C ids as fields, because those ids are in rows and messages as well. This
//! layer exports them under exactly these ids; a bridge that mints its own would tear the trace apart at every hop.
//!
//! Promises: only spans that have a `span_id` leave, and of their fields only those of a closed list. Nothing waits for
//! the collector: what it does not take in time is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Where the standard says that a collector is named; the exporter reads the rest of its variables itself.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// What leaves besides the ids.
const ATTRIBUTES: [&str; 4] = ["token", "batch_id", "service", "messages"];
/// How long the last spans may take when the process ends.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// The exported spans of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans(Option<Arc<BatchSpanProcessor>>);

impl Spans {
    /// Sends what has not been sent; for the end of the process.
    pub(crate) fn flush(&self) {
        if let Some(processor) = &self.0 {
            // There is nobody left to tell.
            let _ = processor.shutdown_with_timeout(FLUSH_WITHIN);
        }
    }
}

/// The layer that exports, if a collector is named. Call it outside a runtime: the exporter has a thread of its own.
pub(crate) fn from_environment() -> anyhow::Result<(Option<Export>, Spans)> {
    let named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.iter().any(named) {
        return Ok((None, Spans::default()));
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .build()
        .with_context(|| format!("{} or {}", ENDPOINTS[0], ENDPOINTS[1]))?;
    let mut processor = BatchSpanProcessor::builder(exporter).build();
    let name = std::env::var(SERVICE_NAME).unwrap_or_else(|_| "holdfast".to_owned());
    processor.set_resource(&Resource::builder().with_service_name(name).build());
    let processor = Arc::new(processor);
    let scope = InstrumentationScope::builder("holdfast").build();
    Ok((Some(Export { processor: Arc::clone(&processor), scope }), Spans(Some(processor))))
}

/// See the module.
pub(crate) struct Export {
    processor: Arc<BatchSpanProcessor>,
    scope: InstrumentationScope,
}

/// A span that is not over yet.
struct Open {
    started: SystemTime,
    fields: Fields,
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S> Layer<S> for Export
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().fields().field("span_id").is_none() {
            return;
        }
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(Open { started: SystemTime::now(), fields });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if let Some(span) = context.span(&id)
            && let Some(open) = span.extensions_mut().remove::<Open>()
            && let Some(data) = self.finished(span.metadata(), &open)
        {
            self.processor.on_end(data);
        }
    }
}

impl Export {
    fn finished(&self, metadata: &Metadata<'static>, open: &Open) -> Option<SpanData> {
        let field = |name: &str| open.fields.0.get(name);
        // Whoever began the trace does not want it recorded.
        if field("sampled").is_some_and(|sampled| sampled == "false") {
            return None;
        }
        let trace = TraceId::from_hex(field("trace_id")?).ok()?;
        let span = SpanId::from_hex(field("span_id")?).ok()?;
        let parent = field("parent_span_id").and_then(|text| SpanId::from_hex(text).ok());
        let attributes = ATTRIBUTES
            .into_iter()
            .filter_map(|name| Some(KeyValue::new(name, field(name)?.clone())))
            .collect();
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        Some(SpanData {
            span_context: SpanContext::new(trace, span, flags, false, state),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: parent.is_some(),
            span_kind: match metadata.name() {
                "sync_batch" => SpanKind::Client,
                "ingest_batch" | "http_request" => SpanKind::Server,
                "relay_publish" => SpanKind::Producer,
                "consume_batch" => SpanKind::Consumer,
                _ => SpanKind::Internal,
            },
            name: metadata.name().into(),
            start_time: open.started,
            end_time: SystemTime::now(),
            attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        })
    }
}
