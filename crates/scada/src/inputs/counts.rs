//! What is counted of each input. The label is the name in the mapping file, of which there are at most 200.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use super::Connection;

/// One input's.
pub(super) struct InputCounts {
    reads: Counter,
    failures: Counter,
    connected: Gauge,
    last_success: Gauge,
}

impl InputCounts {
    /// At zero, with the recorder that is current; an input that never answers is silent since now.
    pub(super) fn new(connection: &Connection) -> InputCounts {
        let name = &connection.name;
        describe_counter!("holdfast_scada_input_reads_total", "Cycles in which an input was read.");
        describe_counter!(
            "holdfast_scada_input_failures_total",
            "Times that an input could not be connected to or read."
        );
        describe_gauge!("holdfast_scada_input_connected", "1 while an input can be read.");
        describe_gauge!(
            "holdfast_scada_input_last_success_timestamp_seconds",
            "When an input was last read, or when the node began."
        );
        describe_gauge!("holdfast_scada_input_every_seconds", "How often an input is read.");
        gauge!("holdfast_scada_input_every_seconds", "input" => name.clone())
            .set(connection.every.as_secs_f64());
        let counts = InputCounts {
            reads: counter!("holdfast_scada_input_reads_total", "input" => name.clone()),
            failures: counter!("holdfast_scada_input_failures_total", "input" => name.clone()),
            connected: gauge!("holdfast_scada_input_connected", "input" => name.clone()),
            last_success: gauge!(
                "holdfast_scada_input_last_success_timestamp_seconds",
                "input" => name.clone()
            ),
        };
        counts.connected.set(0.0);
        counts.last_success.set(now());
        counts
    }

    pub(super) fn read(&self) {
        self.reads.increment(1);
        self.connected.set(1.0);
        self.last_success.set(now());
    }

    pub(super) fn failed(&self) {
        self.failures.increment(1);
        self.connected.set(0.0);
    }
}

fn now() -> f64 {
    jiff::Timestamp::now().as_duration().as_secs_f64()
}
