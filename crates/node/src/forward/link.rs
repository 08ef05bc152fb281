//! The broker's side of the forwarder: one task that polls the client and reports what matters.
//!
//! It reconnects for ever, with jittered backoff. It fails never; a refusal is reported like a broken link.

use event::names::mqtt::Topic;
use mqtt::rumqttc::{Event, EventLoop, Packet, SubscribeReasonCode};
use mqtt::{Backoff, Trouble};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// The first pause after a broken link.
const RETRY_BASE: Duration = Duration::from_millis(250);

/// What the driver needs to know of the link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The broker has let us in.
    Up,
    /// The link broke, or never came up. The next attempt is after the pause.
    Down(Trouble, Duration),
    /// The broker does not let us read our acks.
    SubscribeRefused,
    /// Something came on the ack topic.
    Ack { body: Vec<u8>, retained: bool },
    /// Something came on the command topic.
    Command { body: Vec<u8> },
}

/// Polls until the client is told to disconnect, or nobody listens any more.
pub(crate) async fn watch(
    mut event_loop: EventLoop,
    [ack_topic, command_topic]: [Topic; 2],
    retry_cap: Duration,
    give_up: Arc<Notify>,
    events: mpsc::Sender<LinkEvent>,
) {
    let (ack_topic, command_topic) = (ack_topic.to_string(), command_topic.to_string());
    let mut backoff = Backoff::new(RETRY_BASE, retry_cap);
    loop {
        let polled = tokio::select! {
            polled = event_loop.poll() => polled,
            () = give_up.notified() => {
                // Drops the connection and keeps what was not taken for the next one.
                event_loop.clean();
                let stuck = Trouble::Link("the broker takes nothing".to_owned());
                if events.send(LinkEvent::Down(stuck, Duration::ZERO)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let event = match polled {
            Ok(Event::Incoming(Packet::ConnAck(_))) => {
                backoff.reset();
                LinkEvent::Up
            }
            Ok(Event::Incoming(Packet::Publish(publish))) if publish.topic == ack_topic => {
                LinkEvent::Ack { body: publish.payload.to_vec(), retained: publish.retain }
            }
            Ok(Event::Incoming(Packet::Publish(publish))) if publish.topic == command_topic => {
                LinkEvent::Command { body: publish.payload.to_vec() }
            }
            Ok(Event::Incoming(Packet::SubAck(suback)))
                if suback.return_codes.contains(&SubscribeReasonCode::Failure) =>
            {
                LinkEvent::SubscribeRefused
            }
            Ok(_) => continue,
            Err(error) => match Trouble::from(&error) {
                Trouble::Done => return,
                trouble => {
                    let pause = backoff.next(&mut rand::rng());
                    if events.send(LinkEvent::Down(trouble, pause)).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    continue;
                }
            },
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}
