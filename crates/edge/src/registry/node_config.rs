//! The configuration that an enrolled node starts with.

use std::fmt::Write as _;

use event::id::DeviceId;
use settings::Secret;

use super::Enrolment;
use crate::config::Config;

/// The node's TOML, secret included. Every value has a grammar without quotes or line ends, so that
/// it can stand between quotes as it is.
pub(super) fn text(
    config: &Config,
    request: &Enrolment,
    device: DeviceId,
    secret: &Secret,
) -> String {
    let mut text = String::from("[node]\n");
    // Writing to a string cannot fail.
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{key} = \"{value}\"");
    };
    line("node_id", &request.node_id);
    line("tenant_id", &request.tenant_id);
    if let Some(farm) = &request.farm_id {
        line("farm_id", farm);
    }
    if let Some(barn) = &request.barn_id {
        line("barn_id", barn);
    }
    line("device_id", &device);
    line("mqtt.address", &config.public_mqtt_address);
    line("mqtt.password", &secret.expose());
    if let Some(address) = &config.public_http_address {
        line("http.address", address);
        line("http.secret", &secret.expose());
    }
    text
}
