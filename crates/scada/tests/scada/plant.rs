//! A node for a test: its database, its events, and a bus that can be told how to behave.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::{Message, PublishError, Publisher};
use event::scada::Envelope;
use jiff::Timestamp;
use scada::generate::Node;
use scada::outbox::{Dispatcher, Outbox, Settings};
use testkit::Database;

/// How long anything may take on a busy machine before a test says that it does not happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) struct Plant {
    pub(crate) database: Database,
    pub(crate) options: pg::Options,
    pub(crate) outbox: Outbox,
}

async fn migrate(url: String) -> Result<(), pg::Error> {
    scada::migrate_producer(&pg::Options::new(url)).await
}

impl Plant {
    pub(crate) async fn new(name: &str) -> Plant {
        let database = testkit::database(name, "scada_producer", migrate).await.unwrap();
        let options = pg::Options::new(database.url());
        let outbox = Outbox::new(pg::Pool::new(&options).unwrap());
        Plant { database, options, outbox }
    }

    pub(crate) fn dispatcher(&self, name: &str, bus: &Arc<Bus>) -> Dispatcher {
        let settings = Settings { poll: Duration::from_millis(20), ..Settings::new(name) };
        Dispatcher::start(&self.options, &settings, Arc::clone(bus) as Arc<dyn Publisher>).unwrap()
    }

    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        self.database.connect().await.unwrap()
    }

    pub(crate) async fn count(&self, status: &str) -> i64 {
        let query = "SELECT count(*) FROM outbox_events WHERE status = $1";
        self.client().await.query_one(query, &[&status]).await.unwrap().get(0)
    }

    pub(crate) async fn settled(&self, status: &str, rows: i64) {
        testkit::eventually(LONG, &format!("{rows} rows are {status}"), async || {
            self.count(status).await == rows
        })
        .await
        .unwrap();
    }
}

/// So many cycles of one node.
pub(crate) fn cycles(count: usize) -> Vec<Vec<Envelope>> {
    let mut node = Node::new("PLANT01".parse().unwrap(), 7, 42).unwrap();
    (0..count).map(|_| node.cycle(Timestamp::now()).unwrap()).collect()
}

/// Takes messages as a bus does, and fails as it is told.
#[derive(Default)]
pub(crate) struct Bus {
    pub(crate) taken: Mutex<Vec<Message>>,
    pub(crate) failures: Mutex<HashMap<String, PublishError>>,
    pub(crate) away: Mutex<Option<PublishError>>,
}

impl Bus {
    pub(crate) fn taken(&self) -> Vec<Message> {
        self.taken.lock().unwrap().clone()
    }
}

impl Publisher for Bus {
    fn publish(
        &self,
        batch: Vec<Message>,
    ) -> futures_util::future::BoxFuture<'_, Vec<Result<(), PublishError>>> {
        let away = self.away.lock().unwrap().clone();
        let failures = self.failures.lock().unwrap().clone();
        let mut taken = self.taken.lock().unwrap();
        let results = batch.into_iter().map(|message| {
            if let Some(error) = &away {
                return Err(error.clone());
            }
            if let Some(error) = failures.get(&message.message_id) {
                return Err(error.clone());
            }
            taken.push(message);
            Ok(())
        });
        Box::pin(std::future::ready(results.collect()))
    }
}
