//! One connection to one broker: connect, TLS, versions, login, then one request after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, ApiKey,
    ApiVersionsRequest, ApiVersionsResponse, CreateAclsRequest, CreateAclsResponse,
    DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest, DescribeAclsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, RequestHeader,
    ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Message, StrBytes, VersionRange,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::scram::{Login, check};
use super::{Need, Refusal, WireError};
use crate::kafka::{Cluster, Tls};

/// The largest answer that is read. Ten thousand access rules are about one megabyte.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A change goes to the controllers, which may be electing one.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const CLIENT: &str = "holdfast-access";
const MECHANISM: &str = "SCRAM-SHA-512";

/// A request with its answer.
pub(super) trait Call: Encodable + Message + HeaderVersion {
    type Answer: Decodable + Message + HeaderVersion;
    const KEY: ApiKey;
    const NAME: &'static str;
}

macro_rules! calls {
    ($($key:ident: $request:ident => $answer:ident;)*) => {$(
        impl Call for $request {
            type Answer = $answer;
            const KEY: ApiKey = ApiKey::$key;
            const NAME: &'static str = stringify!($key);
        }
    )*};
}

calls! {
    ApiVersions: ApiVersionsRequest => ApiVersionsResponse;
    SaslHandshake: SaslHandshakeRequest => SaslHandshakeResponse;
    SaslAuthenticate: SaslAuthenticateRequest => SaslAuthenticateResponse;
    DescribeAcls: DescribeAclsRequest => DescribeAclsResponse;
    CreateAcls: CreateAclsRequest => CreateAclsResponse;
    DeleteAcls: DeleteAclsRequest => DeleteAclsResponse;
    DescribeUserScramCredentials:
        DescribeUserScramCredentialsRequest => DescribeUserScramCredentialsResponse;
    AlterUserScramCredentials: AlterUserScramCredentialsRequest => AlterUserScramCredentialsResponse;
}

/// TCP, or TLS over it.
trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

/// A broker that we are connected to and logged in at.
pub(in crate::kafka) struct Connection {
    broker: String,
    pipe: Box<dyn Pipe>,
    /// Nobody on the way can read along.
    private: bool,
    versions: BTreeMap<i16, VersionRange>,
    last_id: i32,
}

impl Connection {
    /// Connects to the first broker of the cluster's list that can be reached. Any of them serves: changes are forwarded to the controller.
    pub(in crate::kafka) async fn open(cluster: &Cluster) -> Result<Connection, WireError> {
        let connector = cluster.tls().map(tls_connector).transpose()?;
        if let Some((user, password)) = cluster.login() {
            check("kafka.user", user)?;
            check("kafka.password", password)?;
        }
        let mut tried = Vec::new();
        for broker in cluster.brokers() {
            let opening = Connection::to(broker, connector.as_ref(), cluster.login());
            match opening.await {
                Err(error) if error.is_of_this_broker() => tried.push(error.to_string()),
                done => return done,
            }
        }
        Err(WireError::NoBroker(tried.join("; ")))
    }

    async fn to(
        broker: &str,
        connector: Option<&TlsConnector>,
        login: Option<(&str, &str)>,
    ) -> Result<Connection, WireError> {
        let connecting = async {
            let stream = TcpStream::connect(broker).await?;
            stream.set_nodelay(true)?;
            let local = stream.peer_addr()?.ip().is_loopback();
            Ok((stream, local))
        };
        let (stream, local) = in_time(broker, "connecting", CONNECT_WITHIN, connecting).await?;
        let pipe: Box<dyn Pipe> = match connector {
            None => Box::new(stream),
            Some(connector) => {
                let greeting = async {
                    let name = server_name(broker).map_err(std::io::Error::other)?;
                    connector.connect(name, stream).await
                };
                Box::new(in_time(broker, "TLS", CONNECT_WITHIN, greeting).await?)
            }
        };
        let mut connection = Connection {
            broker: broker.to_owned(),
            pipe,
            private: local || connector.is_some(),
            versions: BTreeMap::new(),
            last_id: 0,
        };
        connection.learn_versions().await?;
        if let Some((user, password)) = login {
            connection.log_in(user, password).await?;
        }
        Ok(connection)
    }

    /// The broker, as it was named.
    pub(in crate::kafka) fn broker(&self) -> &str {
        &self.broker
    }

    /// Refuses where somebody on the way could read along.
    pub(super) fn must_be_private(&self) -> Result<(), WireError> {
        if self.private { Ok(()) } else { Err(WireError::Readable { broker: self.broker.clone() }) }
    }

    /// Sends a request in the newest version that both sides know, and reads the answer.
    pub(super) async fn call<C: Call>(&mut self, request: &C) -> Result<C::Answer, WireError> {
        let served = self.versions.get(&(C::KEY as i16));
        let common = served.map(|served| served.intersect(&C::VERSIONS));
        let Some(common) = common.filter(|common| !common.is_empty()) else {
            return Err(WireError::NotServed { broker: self.broker.clone(), request: C::NAME });
        };
        self.call_at(request, common.max).await
    }

    /// An error for a code that is not zero.
    pub(super) fn accept<C: Call>(
        &self,
        need: Need,
        code: i16,
        message: Option<&StrBytes>,
    ) -> Result<(), WireError> {
        match Refusal::of(code, message.map(StrBytes::as_str), need) {
            None => Ok(()),
            Some(refusal) => {
                Err(WireError::Refused { broker: self.broker.clone(), request: C::NAME, refusal })
            }
        }
    }

    async fn learn_versions(&mut self) -> Result<(), WireError> {
        // The oldest version is the one that every broker answers.
        let answer = self.call_at(&ApiVersionsRequest::default(), 0).await?;
        self.accept::<ApiVersionsRequest>(Need::Describe, answer.error_code, None)?;
        let range = |min, max| VersionRange { min, max };
        let keys = answer.api_keys.iter();
        self.versions =
            keys.map(|key| (key.api_key, range(key.min_version, key.max_version))).collect();
        Ok(())
    }

    async fn log_in(&mut self, user: &str, password: &str) -> Result<(), WireError> {
        let broker = self.broker.clone();
        let failed =
            |why: String| WireError::Login { broker: broker.clone(), user: user.to_owned(), why };
        let mechanism = StrBytes::from_static_str(MECHANISM);
        let asked = SaslHandshakeRequest::default().with_mechanism(mechanism);
        let offered = self.call(&asked).await?;
        match offered.error_code {
            0 => {}
            // ILLEGAL_SASL_STATE: nobody logs in at this listener.
            34 => {
                return Err(failed("the listener asks for none: leave kafka.user out".to_owned()));
            }
            _ => {
                let others: Vec<&str> = offered.mechanisms.iter().map(StrBytes::as_str).collect();
                let others = others.join(", ");
                let why = format!(
                    "the broker takes {others}, not {MECHANISM}: see sasl.enabled.mechanisms"
                );
                return Err(failed(why));
            }
        }
        let login = Login::new(user, password);
        let first = self.authenticate(login.first(), &failed).await?;
        let (last, sent) = login.answer(&first).map_err(|error| failed(error.to_string()))?;
        let shown = self.authenticate(last, &failed).await?;
        sent.verify(&shown).map_err(|error| failed(error.to_string()))
    }

    async fn authenticate(
        &mut self,
        message: String,
        failed: &impl Fn(String) -> WireError,
    ) -> Result<String, WireError> {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(message));
        let answer = self.call(&request).await?;
        let said = answer.error_message.as_ref().map(StrBytes::as_str);
        if let Some(refusal) = Refusal::of(answer.error_code, said, Need::Describe) {
            return Err(failed(format!("{refusal}: see kafka.user and kafka.password")));
        }
        let text = std::str::from_utf8(&answer.auth_bytes).map(str::to_owned);
        text.map_err(|_| failed("the broker's answer is no text".to_owned()))
    }

    async fn call_at<C: Call>(
        &mut self,
        request: &C,
        version: i16,
    ) -> Result<C::Answer, WireError> {
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        let frame = frame(request, version, id).map_err(|why| self.broken::<C>(why))?;
        let pipe = &mut self.pipe;
        let asking = async {
            pipe.write_all(&frame).await?;
            pipe.flush().await?;
            let length = pipe.read_u32().await?;
            let length = usize::try_from(length).ok().filter(|bytes| *bytes <= MAX_FRAME_BYTES);
            let Some(length) = length else {
                let why = "the answer is none of Kafka's: is this a listener by TLS, and kafka.tls not set?";
                return Err(std::io::Error::other(why));
            };
            let mut answer = vec![0; length];
            pipe.read_exact(&mut answer).await?;
            Ok(Bytes::from(answer))
        };
        let mut answer = in_time(&self.broker, C::NAME, ANSWER_WITHIN, asking).await?;
        let mut read = || {
            let header = ResponseHeader::decode(&mut answer, C::Answer::header_version(version))?;
            let body = C::Answer::decode(&mut answer, version)?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((header.correlation_id, body))
        };
        match read() {
            Ok((same, body)) if same == id => Ok(body),
            Ok(_) => Err(self.broken::<C>("the answer is to another question".to_owned())),
            Err(error) => Err(self.broken::<C>(format!("the answer cannot be read: {error}"))),
        }
    }

    fn broken<C: Call>(&self, why: String) -> WireError {
        WireError::Broken { broker: self.broker.clone(), step: C::NAME, why }
    }
}

/// TLS by the same files that the client library is given.
fn tls_connector(tls: &Tls) -> Result<TlsConnector, WireError> {
    let files = trust::Files {
        ca_file: tls.ca_file.clone(),
        system: tls.ca_file.is_none(),
        client: tls.identity.clone(),
    };
    let config = files.client_config().map_err(|trust::Error { file, problem, .. }| {
        WireError::File { path: file, why: problem }
    })?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Length, header and request.
fn frame<C: Call>(request: &C, version: i16, id: i32) -> Result<BytesMut, String> {
    let header = RequestHeader::default()
        .with_request_api_key(C::KEY as i16)
        .with_request_api_version(version)
        .with_correlation_id(id)
        .with_client_id(Some(StrBytes::from_static_str(CLIENT)));
    let mut frame = BytesMut::zeroed(4);
    header
        .encode(&mut frame, C::header_version(version))
        .and_then(|()| request.encode(&mut frame, version))
        .map_err(|error| format!("the request cannot be written: {error}"))?;
    let length = u32::try_from(frame.len() - 4).map_err(|error| error.to_string())?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// The host of `host:port`, as certificates have it.
fn server_name(broker: &str) -> Result<ServerName<'static>, String> {
    let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())
}

async fn in_time<T>(
    broker: &str,
    step: &'static str,
    limit: Duration,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, WireError> {
    let why = match timeout(limit, work).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the broker closed the connection: does its listener ask for a login (kafka.user), TLS (kafka.tls) or our certificate?".to_owned()
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", limit.as_secs()),
    };
    Err(WireError::Broken { broker: broker.to_owned(), step, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection to somebody who answers with these bytes, whatever is asked.
    async fn to_one_who_says(answer: &[u8]) -> Connection {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(answer).await.unwrap();
        tokio::spawn(async move {
            // Reads until the connection is dropped, so that nothing waits for room.
            let _ = tokio::io::copy(&mut far, &mut tokio::io::sink()).await;
        });
        Connection {
            broker: "kafka-1:9092".to_owned(),
            pipe: Box::new(near),
            private: false,
            versions: BTreeMap::new(),
            last_id: 0,
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_none_is_refused() {
        let http = b"HTTP/1.1 400 Bad Request\r\n";
        let huge = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes();
        let other_id = [0, 0, 0, 10, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0];
        let torn = [0, 0, 0, 6, 0, 0, 0, 1, 0, 0];
        let cases: [(&[u8], &str); 4] = [
            (http, "none of Kafka's"),
            (&huge, "none of Kafka's"),
            (&other_id, "another question"),
            (&torn, "cannot be read"),
        ];
        for (answer, why) in cases {
            let error = to_one_who_says(answer).await.learn_versions().await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(why) && text.contains("kafka-1:9092: ApiVersions"), "{text}");
            assert!(error.is_of_this_broker(), "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_not_served_is_not_asked_and_passwords_want_privacy() {
        let mut connection = to_one_who_says(&[]).await;
        let error = connection.rules_of("User:ada").await.unwrap_err();
        assert!(matches!(error, WireError::NotServed { request: "DescribeAcls", .. }), "{error}");
        let error = connection.set_passwords(&[("ada", "canary")]).await.unwrap_err();
        assert!(matches!(error, WireError::Readable { .. }), "{error}");
        assert!(!error.to_string().contains("canary"));
    }

    #[test]
    fn hosts_are_named_as_certificates_name_them() {
        for (broker, name) in [
            ("kafka-1.plant:9093", "kafka-1.plant"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:2", "::1"),
        ] {
            assert_eq!(server_name(broker).unwrap().to_str(), name);
        }
        assert!(server_name("a b:1").is_err());
    }
}
