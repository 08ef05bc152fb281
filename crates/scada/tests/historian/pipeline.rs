//! From the generator through outbox and dispatchers to the historian: every event once, in order per key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::Publisher;
use bus::rabbitmq::{Address, PublisherOptions, RabbitPublisher};
use event::scada::Envelope;
use scada::historian::Historian;
use scada::outbox::{Dispatcher, Outbox, Settings};
use testkit::{Database, eventually};

use crate::station::{LONG, Station, config, count, database, events, expected, message, stored};

/// A node's database with what it made.
pub(crate) async fn node(name: &str, made: &[Envelope]) -> (Database, pg::Options) {
    let migrate =
        |url: String| async move { scada::migrate_producer(&pg::Options::new(url)).await };
    let database = testkit::database(name, "scada_producer", migrate).await.unwrap();
    let options = pg::Options::new(database.url());
    let outbox = Outbox::new(pg::Pool::new(&options).unwrap());
    for part in made.chunks(50) {
        outbox.write_cycle(part).await.unwrap();
    }
    (database, options)
}

pub(crate) fn dispatch(
    options: &pg::Options,
    name: &str,
    publisher: &Arc<dyn Publisher>,
) -> Dispatcher {
    let settings = Settings { poll: Duration::from_millis(20), ..Settings::new(name) };
    Dispatcher::start(options, &settings, Arc::clone(publisher)).unwrap()
}

/// The events of each key in the order in which they were stored.
async fn orders(client: &tokio_postgres::Client) -> BTreeMap<String, Vec<String>> {
    let query = "SELECT plant || '.' || area || '.' || unit_name || '.' || tag, event_id::text FROM telemetry
                 ORDER BY created_at, ctid";
    let mut orders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in client.query(query, &[]).await.unwrap() {
        orders.entry(row.get(0)).or_default().push(row.get(1));
    }
    orders
}

fn made_orders(made: &[Envelope]) -> BTreeMap<String, Vec<String>> {
    let mut orders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in made.iter().filter(|event| event.category == event::scada::Category::Telemetry) {
        orders.entry(event.partition_key()).or_default().push(event.event_id.to_string());
    }
    orders
}

#[tokio::test]
async fn on_the_inline_bus_everything_arrives_once_and_in_order() {
    let station = Station::with("pipe_inline", &[("BATCH", "200")]).await;
    let made = events(7, 400);
    let (_database, options) = node("pipe_node", &made).await;
    let bus: Arc<dyn Publisher> = station.bus.clone();
    let dispatchers = [dispatch(&options, "one", &bus), dispatch(&options, "two", &bus)];
    eventually(LONG, "all of it is stored", async || station.stored().await.len() == made.len())
        .await
        .unwrap();
    assert_eq!(station.stored().await, expected(&made));
    let client = station.client().await;
    assert_eq!(orders(&client).await, made_orders(&made));
    for dispatcher in dispatchers {
        dispatcher.stop().await;
    }
}

#[tokio::test]
async fn on_rabbitmq_two_replicas_store_everything_once_and_dead_letters_have_their_cause() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let database = database("pipe_rabbit").await;
    let pairs = [("BUS", "rabbitmq"), ("RABBITMQ_URL", vhost.url()), ("BATCH", "100")];
    let start = async || Historian::start(config(database.url(), &pairs)).await.unwrap();
    let historian = start().await;
    let address = Address::parse(vhost.url()).unwrap();
    bus::rabbitmq::declare(&address, &scada::historian::topology()).await.unwrap();
    let publisher: Arc<dyn Publisher> =
        Arc::new(RabbitPublisher::new(address.clone(), PublisherOptions::default()));
    let made = events(7, 400);
    let (_node, options) = node("pipe_rabbit_node", &made).await;
    let dispatcher = dispatch(&options, "one", &publisher);
    let client = database.connect().await.unwrap();
    eventually(LONG, "it has begun", async || count(&client, "telemetry").await > 0).await.unwrap();
    let second = start().await;
    // The first is gone in the middle, its batch comes again.
    historian.stop().await;
    let mut bad = message(&events(8, 1)[0]);
    bad.body = "{}".into();
    assert!(publisher.publish(vec![bad.clone()]).await[0].is_ok());
    eventually(LONG, "all of it is stored", async || stored(&client).await.len() == made.len())
        .await
        .unwrap();
    assert_eq!(stored(&client).await, expected(&made));
    let letters = bus::rabbitmq::DeadLetterQueue::new(address, "scada.l2.dlq");
    eventually(LONG, "the dead letter is there", async || {
        let listing = letters.list(&bus::Filter::default(), 10).await.unwrap();
        listing.letters.iter().any(|letter| {
            letter.cause.code == "invalid_envelope" && letter.message.body == bad.body
        })
    })
    .await
    .unwrap();
    dispatcher.stop().await;
    second.stop().await;
}
