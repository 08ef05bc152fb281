//! OPC UA, by async-opcua: one session, and each cycle either the Read service of all nodes, or what a subscription has told since the
//! last one ([`changes`]).
//!
//! The library would connect again by itself; here it must not, so that there is one rule of pauses for every kind of device.

mod changes;
mod pki;

use std::sync::Arc;
use std::time::Duration;

use ::opcua::client::{Client, ClientBuilder, IdentityToken, Session};
use ::opcua::crypto::SecurityPolicy;
use ::opcua::types::{
    DataValue, EndpointDescription, MessageSecurityMode, NodeId, ReadValueId, StatusCode,
    TimestampsToReturn, VariableId, Variant,
};
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::changes::Changes;
pub(super) use self::pki::make;
use super::{Device, Lost, OpcUa, Raw, Security, Seen, within};

/// The most nodes of a request; servers have limits of their own, hardly lower ones.
const MAX_NODES: usize = 500;
/// Nobody can make a folder there: the library makes its folders of certificates in silence, and without security there are none.
const NO_FOLDER: &str = "/dev/null/pki";
/// Who we are; it stands in our certificate, and servers compare.
const APPLICATION_URI: &str = "urn:holdfast:scada:inputs";
const APPLICATION_NAME: &str = "Holdfast";
/// While a subscription is silent, the server is asked this often whether it is there at all.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

pub(super) struct OpcUaDevice {
    server: OpcUa,
    timeout: Duration,
    every: Duration,
    nodes: Vec<ReadValueId>,
    client: Option<Client>,
    session: Option<Running>,
}

/// A session, the task that drives it, and what it is told by a subscription.
struct Running {
    session: Arc<Session>,
    driver: JoinHandle<StatusCode>,
    changes: Option<Changes>,
    /// When the server last answered a question.
    answered: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl OpcUaDevice {
    pub(super) fn new(server: OpcUa, timeout: Duration, every: Duration) -> OpcUaDevice {
        // The mapping has refused what is no id; the null node is BAD at every server.
        let nodes = server.nodes.iter().map(|node| node.parse().unwrap_or(NodeId::null()).into());
        let nodes = nodes.collect();
        OpcUaDevice { server, timeout, every, nodes, client: None, session: None }
    }

    fn identity(&self) -> Result<IdentityToken, Lost> {
        let Some((user, file)) = &self.server.user else { return Ok(IdentityToken::Anonymous) };
        // Read at each connection, so that a new password needs no restart.
        let password = std::fs::read_to_string(file)
            .map_err(|error| Lost(format!("the password in {}: {error}", file.display())))?;
        Ok(IdentityToken::new_user_name(user.clone(), password.trim_end()))
    }

    /// The server's endpoint with the security that is wanted, and no less. It names the users that it takes; its own address is often
    /// one that only its own network knows, so that of the mapping stays.
    async fn endpoint(&self, client: &Client) -> Result<EndpointDescription, Lost> {
        let url = self.server.url.as_str();
        let found =
            within(self.timeout, "asking for endpoints", client.get_server_endpoints_from_url(url));
        let all = found.await?.map_err(Lost::because)?;
        let (mode, policy, words) = match &self.server.security {
            None => (MessageSecurityMode::None, SecurityPolicy::None, "None"),
            Some(Security { encrypt, .. }) => {
                let (mode, words) = match encrypt {
                    false => (MessageSecurityMode::Sign, "Basic256Sha256, signed"),
                    true => {
                        let words = "Basic256Sha256, signed and encrypted";
                        (MessageSecurityMode::SignAndEncrypt, words)
                    }
                };
                (mode, SecurityPolicy::Basic256Sha256, words)
            }
        };
        let wanted = |one: &EndpointDescription| {
            one.security_mode == mode && one.security_policy_uri.as_ref() == policy.to_uri()
        };
        let mut endpoint = all.into_iter().find(wanted).ok_or_else(|| {
            Lost(format!("the server has no endpoint with the security policy {words}"))
        })?;
        endpoint.endpoint_url = url.into();
        Ok(endpoint)
    }

    fn client(&self) -> Result<Client, Lost> {
        let mut builder = ClientBuilder::new()
            .application_name(APPLICATION_NAME)
            .application_uri(APPLICATION_URI)
            .session_retry_limit(0)
            .request_timeout(self.timeout);
        builder = match &self.server.security {
            None => builder.pki_dir(NO_FOLDER),
            Some(security) => {
                pki::check(&security.pki_folder)?;
                builder.pki_dir(&security.pki_folder).verify_server_certs(true)
            }
        };
        builder.client().map_err(|errors| Lost(errors.join(", ")))
    }

    /// Why a session was not opened, with what an operator can do about it.
    fn refused(&self, status: StatusCode) -> Lost {
        let folder = self.server.security.as_ref().map(|security| security.pki_folder.display());
        match (status, folder) {
            (
                StatusCode::BadCertificateUntrusted | StatusCode::BadSecurityChecksFailed,
                Some(folder),
            ) => Lost(format!(
                "opening a session: {status}: if this is the right server, move its certificate from {folder}/rejected to \
                     {folder}/trusted; it must trust ours ({folder}/own/cert.der) too"
            )),
            _ => Lost(format!("opening a session: {status}")),
        }
    }

    async fn read_all(&self, running: &Running) -> Result<Vec<Seen>, Lost> {
        let mut raws = Vec::with_capacity(self.nodes.len());
        for nodes in self.nodes.chunks(MAX_NODES) {
            let read = running.session.read(nodes, TimestampsToReturn::Source, 0.0);
            let values = within(self.timeout, "reading", read).await?.map_err(Lost::because)?;
            if values.len() != nodes.len() {
                return Err(Lost::because("the server answered something else than was asked"));
            }
            raws.extend(values.iter().map(raw));
        }
        Ok(Seen::all(raws))
    }
}

/// A subscription is silent while nothing changes, and when the server hangs.
async fn is_there(running: &mut Running, timeout: Duration) -> Result<(), Lost> {
    if running.driver.is_finished() {
        return Err(Lost::because("the connection was closed"));
    }
    if running.answered.elapsed() >= ALIVE_EVERY {
        let state: NodeId = VariableId::Server_ServerStatus_State.into();
        let state = ReadValueId::from(state);
        let asked =
            running.session.read(std::slice::from_ref(&state), TimestampsToReturn::Neither, 0.0);
        within(timeout, "asking for its state", asked).await?.map_err(Lost::because)?;
        running.answered = Instant::now();
    }
    Ok(())
}

impl Device for OpcUaDevice {
    async fn connect(&mut self) -> Result<(), Lost> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.client()?,
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
        let (changes, answered) = (None, Instant::now());
        let running = self.session.insert(Running { session, driver, changes, answered });
        let connected = async {
            tokio::select! {
                connected = running.session.wait_for_connection() => connected.then_some(()).ok_or(None),
                ended = &mut running.driver => Err(ended.ok()),
            }
        };
        match within(self.timeout, "opening a session", connected).await? {
            Ok(()) => {}
            Err(Some(status)) => return Err(self.refused(status)),
            Err(None) => return Err(Lost::because("opening a session: the connection was closed")),
        }
        if let Some(sampling) = self.server.subscribe {
            let subscribed = changes::subscribe(
                &running.session,
                &self.nodes,
                sampling,
                self.every,
                self.timeout,
            );
            let changes = within(self.timeout, "subscribing", subscribed).await??;
            running.changes = Some(changes);
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<Seen>, Lost> {
        let running = self.session.as_mut().ok_or_else(|| Lost::because("not connected"))?;
        if running.changes.is_some() {
            is_there(running, self.timeout).await?;
        }
        let running = self.session.as_ref().ok_or_else(|| Lost::because("not connected"))?;
        match &running.changes {
            Some(changes) => changes.take(),
            None => self.read_all(running).await,
        }
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
