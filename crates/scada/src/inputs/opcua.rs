//! OPC UA, by async-opcua: one session, and the Read service of all nodes each cycle.
//!
//! The library would connect again by itself; here it must not, so that there is one rule of pauses for every kind of device.

use std::sync::Arc;
use std::time::Duration;

use ::opcua::client::{Client, ClientBuilder, IdentityToken, Session};
use ::opcua::types::{
    DataValue, EndpointDescription, MessageSecurityMode, NodeId, ReadValueId, StatusCode,
    TimestampsToReturn, Variant,
};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::{Device, Lost, OpcUa, Raw, within};

/// The most nodes of a request; servers have limits of their own, hardly lower ones.
const MAX_NODES: usize = 500;
/// Nobody can make a folder there: the library makes its folders of certificates in silence, and without security there are none.
const NO_FOLDER: &str = "/dev/null/pki";

pub(super) struct OpcUaDevice {
    server: OpcUa,
    timeout: Duration,
    nodes: Vec<ReadValueId>,
    client: Option<Client>,
    session: Option<Running>,
}

/// A session, and the task that drives it.
struct Running {
    session: Arc<Session>,
    driver: JoinHandle<StatusCode>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl OpcUaDevice {
    pub(super) fn new(server: OpcUa, timeout: Duration) -> OpcUaDevice {
        // The mapping has refused what is no id; the null node is BAD at every server.
        let nodes = server.nodes.iter().map(|node| node.parse().unwrap_or(NodeId::null()).into());
        let nodes = nodes.collect();
        OpcUaDevice { server, timeout, nodes, client: None, session: None }
    }

    fn identity(&self) -> Result<IdentityToken, Lost> {
        let Some((user, file)) = &self.server.user else { return Ok(IdentityToken::Anonymous) };
        // Read at each connection, so that a new password needs no restart.
        let password = std::fs::read_to_string(file)
            .map_err(|error| Lost(format!("the password in {}: {error}", file.display())))?;
        Ok(IdentityToken::new_user_name(user.clone(), password.trim_end()))
    }

    /// The server's endpoint without security. It names the users that it takes; its own address is often one that only its own
    /// network knows, so that of the mapping stays.
    async fn endpoint(&self, client: &Client) -> Result<EndpointDescription, Lost> {
        let url = self.server.url.as_str();
        let found =
            within(self.timeout, "asking for endpoints", client.get_server_endpoints_from_url(url));
        let all = found.await?.map_err(Lost::because)?;
        let plain = all.into_iter().find(|one| one.security_mode == MessageSecurityMode::None);
        let mut plain = plain.ok_or_else(|| {
            Lost::because("the server has no endpoint with the security policy None")
        })?;
        plain.endpoint_url = url.into();
        Ok(plain)
    }
}

fn client(timeout: Duration) -> Result<Client, Lost> {
    ClientBuilder::new()
        .application_name("Holdfast")
        .application_uri("urn:holdfast:scada:inputs")
        .pki_dir(NO_FOLDER)
        .session_retry_limit(0)
        .request_timeout(timeout)
        .client()
        .map_err(|errors| Lost(errors.join(", ")))
}

impl Device for OpcUaDevice {
    async fn connect(&mut self) -> Result<(), Lost> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => client(self.timeout)?,
        };
        let endpoint = self.endpoint(&client).await;
        let session = match (endpoint, self.identity()) {
            (Ok(endpoint), Ok(identity)) => {
                client.connect_to_endpoint_directly(endpoint, identity).map_err(Lost::because)
            }
            (Err(lost), _) | (_, Err(lost)) => Err(lost),
        };
        self.client = Some(client);
        let (session, event_loop) = session?;
        session.disable_reconnects();
        let driver = event_loop.spawn();
        let running = self.session.insert(Running { session, driver });
        let connected = async {
            tokio::select! {
                connected = running.session.wait_for_connection() => connected.then_some(()).ok_or(None),
                ended = &mut running.driver => Err(ended.ok()),
            }
        };
        match within(self.timeout, "opening a session", connected).await? {
            Ok(()) => Ok(()),
            Err(Some(status)) => Err(Lost(format!("opening a session: {status}"))),
            Err(None) => Err(Lost::because("opening a session: the connection was closed")),
        }
    }

    async fn read(&mut self) -> Result<Vec<Raw>, Lost> {
        let running = self.session.as_ref().ok_or_else(|| Lost::because("not connected"))?;
        let mut raws = Vec::with_capacity(self.nodes.len());
        for nodes in self.nodes.chunks(MAX_NODES) {
            let read = running.session.read(nodes, TimestampsToReturn::Source, 0.0);
            let values = within(self.timeout, "reading", read).await?.map_err(Lost::because)?;
            if values.len() != nodes.len() {
                return Err(Lost::because("the server answered something else than was asked"));
            }
            raws.extend(values.iter().map(raw));
        }
        Ok(raws)
    }

    async fn disconnect(&mut self) {
        if let Some(running) = self.session.take() {
            // A farewell, so that the server need not keep the session; it may be gone.
            let _ = within(self.timeout, "closing", running.session.disconnect()).await;
        }
    }
}

fn raw(value: &DataValue) -> Raw {
    let status = value.status.unwrap_or(StatusCode::Good);
    if status.is_bad() {
        return Raw::Unreadable(format!("the server says: {status}"));
    }
    let Some(number) = value.value.as_ref().and_then(number) else {
        return Raw::Unreadable("its value is not a number".to_owned());
    };
    let source_time = value
        .source_timestamp
        .filter(|time| !time.is_null())
        .and_then(|time| Timestamp::from_microsecond(time.as_chrono().timestamp_micros()).ok());
    Raw::Number { number, uncertain: status.is_uncertain(), source_time }
}

fn number(value: &Variant) -> Option<f64> {
    Some(match value {
        Variant::Boolean(flag) => f64::from(u8::from(*flag)),
        Variant::SByte(number) => f64::from(*number),
        Variant::Byte(number) => f64::from(*number),
        Variant::Int16(number) => f64::from(*number),
        Variant::UInt16(number) => f64::from(*number),
        Variant::Int32(number) => f64::from(*number),
        Variant::UInt32(number) => f64::from(*number),
        // Beyond 2^53 the last digits go: an envelope's value has no more either.
        Variant::Int64(number) => *number as f64,
        Variant::UInt64(number) => *number as f64,
        Variant::Float(number) => f64::from(*number),
        Variant::Double(number) => *number,
        _ => return None,
    })
}
