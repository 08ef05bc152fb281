//! How many readings a second the telemetry consumer stores: `consume_rate URL [EVENTS]`, against an
//! empty database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::inline::{self, Bus};
use bus::{DeadLetter, DeadLetters, Message, Publisher as _};
use cloud::consume::{self, Options};
use event::id::{BarnId, DeviceId, EventId, FarmId, TenantId};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

struct Refuse;

impl DeadLetters for Refuse {
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Err(letter.cause.message)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: consume_rate URL [EVENTS]")?;
    let events: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let options = pg::Options::new(url);
    cloud::migrate(&options).await?;
    let pool = pg::Pool::new(&options)?;
    let settings = inline::Options { capacity: 20_000, ..inline::Options::default() };
    let mut bus = Bus::new(settings, Arc::new(Refuse));
    let stop = CancellationToken::new();
    for group in consume::groups().into_iter().take(1) {
        let consumer = Box::new(bus.group(group.queue.clone(), group.bindings.clone()));
        let (pool, stop) = (pool.clone(), stop.clone());
        tokio::spawn(consume::run(group, consumer, pool, stop, Options::default()));
    }
    let (tenant, farm, barn) = (TenantId::mint(), FarmId::mint(), BarnId::mint());
    let devices: Vec<DeviceId> = (0..50).map(|_| DeviceId::mint()).collect();
    let start = jiff::Timestamp::now() - Duration::from_secs(events / 50);
    let messages: Vec<Message> = (0..events)
        .map(|i| {
            let (id, device) = (EventId::mint(), devices[usize::try_from(i % 50).unwrap_or(0)]);
            let at = start + Duration::from_secs(i / 50);
            let body = format!(
                r#"{{"event_id":"{id}","event_type":"telemetry.ingested","tenant_id":"{tenant}","farm_id":"{farm}","barn_id":"{barn}","device_id":"{device}","session_id":null,"occurred_at":"{at}","trace_id":"trace-1","payload":{{"metric_type":"temperature","metric_value":26.4,"unit":"C"}}}}"#
            );
            let exchange = "farmiq.telemetry.exchange";
            Message::json(exchange, "telemetry.ingested", id.to_string(), body)
        })
        .collect();
    let began = Instant::now();
    for part in messages.chunks(10_000) {
        let results = bus.publish(part.to_vec()).await;
        if let Some(Err(error)) = results.into_iter().find(Result::is_err) {
            return Err(error.into());
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let client = pool.get().await?;
    let stored: i64 = client.query_one("SELECT count(*) FROM telemetry_reading", &[]).await?.get(0);
    tracing::info!(stored, seconds, "stored");
    std::io::Write::write_all(
        &mut std::io::stdout(),
        format!("{stored} readings in {seconds:.2} s: {:.0}/s\n", stored as f64 / seconds)
            .as_bytes(),
    )?;
    stop.cancel();
    Ok(())
}
