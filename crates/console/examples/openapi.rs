//! Prints the OpenAPI document: `cargo run -p console --example openapi > web/openapi.json`. The page's client is made from that file.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(console::openapi())?;
    writeln!(std::io::stdout(), "{text}")
}
