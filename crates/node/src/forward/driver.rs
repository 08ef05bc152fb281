//! The forwarder's I/O: carries out what [`Replay`] decides.
//!
//! One task owns everything: it reads the spool, publishes, posts, and believes or ignores acks. A second task, on the
//! same thread, polls the broker's client. In memory are at most a window of messages and one post. It ends when
//! told to stop; nothing else makes it end.

use super::batch::{BatchError, Message, Source};
use super::http::{PostError, Posts};
use super::limits::{BatchId, Lane, Limits, Plan, Route, Step};
use super::link::{self, LinkEvent};
use super::replay::{Ignored, Replay};
use crate::config::Config;
use crate::status::{Link, LinkState};
use crate::vitals::Vitals;
use event::id::Epoch;
use event::names::mqtt::Topic;
use event::wire::{Ack, Command, Limits as WireLimits, Status};
use jiff::Timestamp;
use mqtt::Trouble;
use mqtt::rumqttc::{
    AsyncClient, LastWill, PublishNotice, PublishOptions, QoS, SubscribeFilterInput,
};
use spool::Spool;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, sleep_until};

/// Room in the client's queue for what is not a batch: the status.
const STATUS_SLOTS: usize = 2;
/// Link events that may wait for the driver.
const LINK_EVENTS: usize = 32;
/// A body from this size on took long enough to make that the link should not wait for the next one as well.
const LARGE_BYTES: usize = 4096;
/// How long a graceful stop may take to tell the broker.
const FAREWELL: Duration = Duration::from_secs(3);

enum Notice {
    Batch(BatchId, bool),
    Status,
}

/// The forwarder, ready to run.
pub(crate) struct Forwarder {
    config: Config,
    spool: Spool,
    epoch: Epoch,
    vitals: Arc<Vitals>,
    replay: Replay,
    client: AsyncClient,
    events: mpsc::Receiver<LinkEvent>,
    link_task: JoinHandle<()>,
    give_up: Arc<Notify>,
    live: Source,
    backfill: Source,
    notices: JoinSet<Notice>,
    status_under_way: bool,
    posts: Option<Posts>,
    connected: bool,
    read_trouble: Option<String>,
}

impl Forwarder {
    /// Must be called inside the runtime that will run it.
    pub(crate) fn start(
        config: Config,
        spool: Spool,
        epoch: Epoch,
        vitals: Arc<Vitals>,
    ) -> Result<Forwarder, mqtt::Error> {
        let limits = Limits::from_config(&config);
        let node = config.identity.node_id.clone();
        let will = Status::offline(epoch).to_json();
        let session = mqtt::Session {
            client_id: node.to_string(),
            clean: false,
            keepalive: config.keepalive,
            inflight: config.window,
            max_packet_bytes: WireLimits::MQTT.wire_bytes + 1024,
            last_will: Some(LastWill::new(
                Topic::Status(node.clone()).to_string(),
                will,
                QoS::AtLeastOnce,
                true,
            )),
            queue: limits.window + STATUS_SLOTS,
            ..mqtt::Session::default()
        };
        let (client, event_loop) = config.broker.connect(&session)?;
        let (sender, events) = mpsc::channel(LINK_EVENTS);
        let give_up = Arc::new(Notify::new());
        let link_task = tokio::spawn(link::watch(
            event_loop,
            [Topic::Ack(node.clone()), Topic::Command(node)],
            config.retry_cap,
            Arc::clone(&give_up),
            sender,
        ));
        Ok(Forwarder {
            replay: Replay::new(limits, spool.synced(), spool.acked(), Instant::now()),
            live: Source::new(&spool, epoch),
            backfill: Source::new(&spool, epoch),
            posts: Posts::new(&config),
            config,
            spool,
            epoch,
            vitals,
            client,
            events,
            link_task,
            give_up,
            notices: JoinSet::new(),
            status_under_way: false,
            connected: false,
            read_trouble: None,
        })
    }

    /// Runs until `stop` turns true, then says goodbye.
    pub(crate) async fn run(
        mut self,
        mut head: watch::Receiver<u64>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut status_due = tokio::time::interval(self.config.forward.status_every);
        status_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !*stop.borrow() {
            let synced = *head.borrow_and_update();
            self.replay.advance_head(synced, Instant::now());
            let wake = self.act().await;
            self.publish_vitals();
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.link_event(event),
                    // The link task ends only when it is told to; waiting for the stop is all that is left.
                    None => drop(stop.changed().await),
                },
                Some(done) = self.notices.join_next() => {
                    if let Ok(notice) = done { self.noticed(notice) }
                    // PUBACKs come in bunches; one look at what to do next serves them all.
                    while let Some(done) = self.notices.try_join_next() {
                        if let Ok(notice) = done { self.noticed(notice) }
                    }
                }
                (id, outcome) = Posts::finished(&mut self.posts) => self.posted(id, outcome),
                changed = head.changed() => if changed.is_err() { break },
                _ = status_due.tick() => self.publish_status(),
                () = sleep_until(wake.unwrap_or(far).into()) => {}
                _ = stop.changed() => {}
            }
        }
        self.farewell().await;
    }

    /// Does everything that can be done now; returns when to look again.
    async fn act(&mut self) -> Option<Instant> {
        loop {
            match self.replay.step(Instant::now()) {
                Step::Wait(until) => return until,
                Step::Send(plan) => {
                    let bytes = self.send(plan);
                    if bytes >= LARGE_BYTES {
                        // The link's task shares this thread: it sends this body before the next one is made.
                        tokio::task::yield_now().await;
                    }
                }
                Step::Reconnect => {
                    tracing::warn!(
                        "the broker takes nothing although the link is up; connecting again"
                    );
                    self.give_up.notify_one();
                }
            }
        }
    }

    /// Returns the bytes of what was sent.
    fn send(&mut self, plan: Plan) -> usize {
        let source = match plan.lane {
            Lane::Live => &mut self.live,
            Lane::Backfill => &mut self.backfill,
        };
        let max_bytes = match (plan.route, &self.config.http) {
            (Route::Http, Some(http)) => http.batch_bytes,
            _ => self.config.forward.batch_bytes,
        };
        let message = source.read(plan, max_bytes);
        let now = Instant::now();
        let bytes = message.as_ref().ok().and_then(Option::as_ref).map_or(0, |m| m.body.len());
        match message {
            Ok(Some(message)) => {
                self.read_trouble = None;
                let sequences = message.to.saturating_sub(plan.from) + 1;
                self.vitals.sends(sequences, message.unsendable);
                match plan.route {
                    Route::Mqtt => self.publish(plan, message, now),
                    Route::Http => self.start_post(plan, message, now),
                }
            }
            Ok(None) => self.replay.stalled(now),
            Err(error) => self.cannot_read(&error, now),
        }
        bytes
    }

    /// Says so once, not ten times a second for as long as it lasts.
    fn cannot_read(&mut self, error: &BatchError, now: Instant) {
        self.replay.stalled(now);
        let text = error.to_string();
        if self.read_trouble.as_ref() != Some(&text) {
            tracing::error!(error = %text, "the spool cannot be read; forwarding waits");
            self.read_trouble = Some(text);
        }
    }

    fn publish(&mut self, plan: Plan, message: Message, now: Instant) {
        let node = self.config.identity.node_id.clone();
        let topic = match plan.lane {
            Lane::Live => Topic::Live(node),
            Lane::Backfill => Topic::Backfill(node),
        };
        let options = PublishOptions::at_least_once();
        match self.client.try_publish_tracked(topic.to_string(), message.body, options) {
            Ok(notice) => {
                let id = self.replay.sent(plan, message.to, now);
                self.notices.spawn(async move { Notice::Batch(id, is_delivered(notice).await) });
            }
            // The queue has room for a whole window, so this only happens while the client is stopping.
            Err(_) => self.replay.stalled(now),
        }
    }

    fn noticed(&mut self, notice: Notice) {
        match notice {
            Notice::Batch(id, true) => self.replay.delivered(id, Instant::now()),
            Notice::Batch(id, false) => self.replay.undelivered(id, Instant::now()),
            Notice::Status => self.status_under_way = false,
        }
    }

    fn start_post(&mut self, plan: Plan, message: Message, now: Instant) {
        let Some(posts) = &mut self.posts else {
            return self.replay.stalled(now);
        };
        let id = self.replay.sent(plan, message.to, now);
        if let Err(error) = posts.start(id, message.body) {
            self.post_failed(id, &error);
        }
    }

    fn posted(&mut self, id: BatchId, outcome: Result<Ack, PostError>) {
        match outcome {
            Ok(ack) => {
                self.replay.http_done(id, Instant::now());
                self.believe(&ack, false);
            }
            Err(error) => self.post_failed(id, &error),
        }
    }

    fn post_failed(&mut self, id: BatchId, error: &PostError) {
        let pause = self.posts.as_mut().map_or(Duration::ZERO, |posts| posts.pause_after(error));
        tracing::warn!(%error, pause_ms = pause.as_millis(), "bulk backfill failed; going on over MQTT");
        let our_fault = matches!(error, PostError::OurFault(_));
        let now = Instant::now();
        self.replay.http_failed(id, our_fault, now + pause, now);
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up => {
                let node = &self.config.identity.node_id;
                let topics = [Topic::Ack(node.clone()), Topic::Command(node.clone())];
                let filters = topics
                    .map(|topic| SubscribeFilterInput::new(topic.to_string(), QoS::AtLeastOnce));
                if let Err(error) = self.client.try_subscribe_many(filters) {
                    tracing::error!(%error, "cannot subscribe to acks and commands");
                }
                tracing::info!(broker = %self.config.broker.address, backlog = self.replay.backlog(), "link up");
                self.connected = true;
                self.replay.connected(Instant::now());
                self.set_link(LinkState::Up, None);
                self.publish_status();
            }
            LinkEvent::Down(trouble, pause) => self.link_down(&trouble, pause),
            LinkEvent::SubscribeRefused => {
                let detail = "the broker does not let this node read its acks".to_owned();
                tracing::error!(%detail, "records will be kept and sent again until it does");
                self.set_link(LinkState::Refused, Some(detail));
            }
            LinkEvent::Ack { body, retained } => match Ack::parse(&body) {
                Ok(ack) => self.believe(&ack, retained),
                Err(error) => {
                    self.vitals.forwarding().ignored_acks.malformed += 1;
                    tracing::warn!(%error, "ignored an ack whose form is wrong");
                }
            },
            LinkEvent::Command { body } => match Command::parse(&body) {
                Ok(command) => self.obey(&command),
                Err(error) => {
                    self.vitals.forwarding().ignored_commands.malformed += 1;
                    tracing::warn!(%error, "ignored a command whose form is wrong");
                }
            },
        }
    }

    fn link_down(&mut self, trouble: &Trouble, pause: Duration) {
        self.connected = false;
        self.replay.disconnected();
        let state = match trouble {
            Trouble::Refused(_) => LinkState::Refused,
            _ => LinkState::Down,
        };
        let detail = trouble.to_string();
        // A link that stays down for days is one line in the log, not one for every attempt.
        if self.set_link(state, Some(detail.clone())) {
            let broker = &self.config.broker.address;
            let retry_ms = pause.as_millis();
            match state {
                LinkState::Refused => tracing::error!(%broker, %detail, retry_ms, "refused"),
                _ => tracing::warn!(%broker, %detail, retry_ms, "link down; records are kept"),
            }
        }
    }

    /// Returns whether anything is new.
    fn set_link(&self, state: LinkState, detail: Option<String>) -> bool {
        let mut forwarding = self.vitals.forwarding();
        if forwarding.link.state == state && forwarding.link.detail == detail {
            return false;
        }
        forwarding.link = Link { state, since: Some(Timestamp::now()), detail };
        true
    }

    fn believe(&mut self, ack: &Ack, retained: bool) {
        let own = ack.epoch == self.epoch;
        match self.replay.ack(ack, own, retained, Instant::now()) {
            Ok(moved) => {
                if !retained {
                    self.vitals.forwarding().last_ack_at = Some(Timestamp::now());
                }
                if let Some(acked) = moved
                    && let Err(error) = self.spool.ack(acked)
                {
                    tracing::error!(%error, acked, "the spool did not take an ack");
                }
            }
            Err(reason) => {
                let ignored = &mut self.vitals.forwarding().ignored_acks;
                match reason {
                    Ignored::Regressed => ignored.regressed += 1,
                    Ignored::ForeignEpoch => ignored.foreign_epoch += 1,
                    Ignored::BeyondHead => ignored.beyond_head += 1,
                }
                let (seq, acked, head) = (ack.acked_seq, self.replay.acked(), self.replay.head());
                match reason {
                    // Two replicas of the edge may overtake each other; the older ack is no news.
                    Ignored::Regressed => tracing::debug!(seq, acked, "ignored an older ack"),
                    _ => tracing::warn!(?reason, seq, acked, head, "ignored an ack"),
                }
            }
        }
    }

    fn obey(&mut self, command: &Command) {
        let own = command.epoch == self.epoch;
        match self.replay.command(command, own) {
            Ok(records) => tracing::info!(records, "the edge asks for records again"),
            Err(reason) => {
                let mut forwarding = self.vitals.forwarding();
                match reason {
                    Ignored::ForeignEpoch => forwarding.ignored_commands.foreign_epoch += 1,
                    _ => forwarding.ignored_commands.beyond_head += 1,
                }
                let (highest, head) = (command.highest(), self.replay.head());
                tracing::warn!(?reason, highest, head, "ignored a command");
            }
        }
    }

    /// At most one status is under way, so that a slow link does not gather stale ones.
    fn publish_status(&mut self) {
        if !self.connected || self.status_under_way {
            return;
        }
        let body = self.vitals.wire_status().to_json();
        if let Some(notice) = self.try_status(body) {
            self.status_under_way = true;
            self.notices.spawn(async move {
                is_delivered(notice).await;
                Notice::Status
            });
        }
    }

    fn try_status(&self, body: String) -> Option<PublishNotice> {
        let topic = Topic::Status(self.config.identity.node_id.clone()).to_string();
        let options = PublishOptions::at_least_once().retained();
        self.client.try_publish_tracked(topic, body, options).ok()
    }

    fn publish_vitals(&self) {
        self.vitals.observe_pace(self.replay.head(), self.replay.acked());
        let mut forwarding = self.vitals.forwarding();
        forwarding.in_flight = self.replay.in_flight() as u64;
        forwarding.resent_batches = self.replay.resent_batches();
        forwarding.http = self.replay.on_http();
    }

    /// Tells the broker that we go on purpose: a clean disconnect cancels the last will, so the same is said first.
    async fn farewell(mut self) {
        if let Some(posts) = self.posts.take() {
            posts.abort();
        }
        if self.connected {
            let _notice = self.try_status(Status::offline(self.epoch).to_json());
            // The client sends what it holds before it disconnects, within its own time limit.
            if self.client.try_disconnect_with_timeout(FAREWELL).is_ok() {
                // The link task reports while it drains; when it is done, its end of the channel closes.
                let drained = async { while self.events.recv().await.is_some() {} };
                let _ = tokio::time::timeout(FAREWELL, drained).await;
            }
        }
        self.link_task.abort();
    }
}

async fn is_delivered(notice: PublishNotice) -> bool {
    notice.wait_completion_async().await.is_ok()
}
