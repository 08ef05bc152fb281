//! The configuration of a broker, as text. Pure.

use std::fmt::Write as _;
use std::path::PathBuf;

/// How a private Kafka runs.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// How many brokers; each is a controller too. One, or three to lose one of.
    pub brokers: usize,
    /// The heap of each, in MB.
    pub heap_mb: u32,
    /// Options of the Java machine beside the heap.
    pub java: Vec<String>,
    /// A second listener, with TLS and passwords, and an authorizer.
    pub security: Option<KafkaSecurity>,
    /// Lines of each broker's configuration beside our own.
    pub settings: String,
}

impl Default for KafkaOptions {
    /// One broker that starts quickly and stays small, without security.
    fn default() -> KafkaOptions {
        KafkaOptions {
            brokers: 1,
            heap_mb: 256,
            java: ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"].map(str::to_owned).into(),
            security: None,
            settings: String::new(),
        }
    }
}

/// A listener by TLS with SCRAM-SHA-512, and who may log in. The plain listener, which is open to this machine alone,
/// stays the administrator's.
#[derive(Clone)]
pub struct KafkaSecurity {
    /// PEM: who signs the certificates of clients.
    pub authority: PathBuf,
    /// PEM: the brokers' certificate, for 127.0.0.1.
    pub certificate: PathBuf,
    /// PEM: its key (PKCS #8).
    pub key: PathBuf,
    /// True when a client must show a certificate, too.
    pub mutual: bool,
    /// Names and passwords.
    pub users: Vec<(String, String)>,
}

/// Without passwords.
impl std::fmt::Debug for KafkaSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users: Vec<&str> = self.users.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("KafkaSecurity")
            .field("mutual", &self.mutual)
            .field("users", &users)
            .finish_non_exhaustive()
    }
}

/// The ports of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) plain: u16,
    pub(super) secure: u16,
    pub(super) controller: u16,
}

/// The archives that a broker reads its certificate and its clients' authority from.
pub(super) const KEYSTORE: &str = "keystore.pem";
pub(super) const TRUSTSTORE: &str = "truststore.pem";

/// `server.properties` of broker `at`, counted from 0; its data is under `folder`.
pub(super) fn properties(
    options: &KafkaOptions,
    ports: &[Ports],
    at: usize,
    folder: &std::path::Path,
) -> String {
    let own = ports[at];
    let voters: Vec<String> = (1..)
        .zip(ports)
        .map(|(id, ports)| format!("{id}@127.0.0.1:{}", ports.controller))
        .collect();
    let replicas = ports.len();
    let in_sync = replicas.saturating_sub(1).max(1);
    let secure = options.security.as_ref();
    let public = match secure {
        None => format!("PLAINTEXT://127.0.0.1:{}", own.plain),
        Some(_) => format!("PLAINTEXT://127.0.0.1:{},SECURE://127.0.0.1:{}", own.plain, own.secure),
    };
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id={id}\n\
         controller.quorum.voters={voters}\n\
         listeners={public},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners={public}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\n\
         log.dirs={data}\n\
         auto.create.topics.enable=false\n\
         default.replication.factor={replicas}\n\
         min.insync.replicas={in_sync}\n\
         offsets.topic.replication.factor={replicas}\n\
         offsets.topic.num.partitions=4\n\
         transaction.state.log.replication.factor={replicas}\n\
         transaction.state.log.min.isr={in_sync}\n\
         transaction.state.log.num.partitions=1\n\
         share.coordinator.state.topic.replication.factor={replicas}\n\
         group.initial.rebalance.delay.ms=0\n\
         num.network.threads=2\n\
         num.io.threads=4\n\
         log.cleaner.dedupe.buffer.size=8388608\n\
         broker.session.timeout.ms=6000\n\
         broker.heartbeat.interval.ms=1000\n",
        id = at + 1,
        voters = voters.join(","),
        controller = own.controller,
        data = folder.join("data").display(),
    );
    if let Some(security) = secure {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS\n\
             sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             listener.name.secure.ssl.client.auth={auth}\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={keystore}\n\
             ssl.truststore.type=PEM\n\
             ssl.truststore.location={truststore}\n\
             ssl.enabled.protocols=TLSv1.3,TLSv1.2\n",
            auth = if security.mutual { "required" } else { "none" },
            keystore = folder.join(KEYSTORE).display(),
            truststore = folder.join(TRUSTSTORE).display(),
        );
    }
    text.push_str(&options.settings);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_brokers_keep_three_copies_and_can_lose_one() {
        let options = KafkaOptions { brokers: 3, ..KafkaOptions::default() };
        let ports =
            [10, 20, 30].map(|from| Ports { plain: from, secure: from + 1, controller: from + 2 });
        let text = properties(&options, &ports, 1, std::path::Path::new("/data/b"));
        for line in [
            "node.id=2",
            "controller.quorum.voters=1@127.0.0.1:12,2@127.0.0.1:22,3@127.0.0.1:32",
            "listeners=PLAINTEXT://127.0.0.1:20,CONTROLLER://127.0.0.1:22",
            "default.replication.factor=3",
            "min.insync.replicas=2",
            "log.dirs=/data/b/data",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let security = KafkaSecurity {
            authority: PathBuf::new(),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            mutual: false,
            users: vec![("alice".to_owned(), "canary".to_owned())],
        };
        let options = KafkaOptions { security: Some(security), ..KafkaOptions::default() };
        let shown = format!("{options:?}");
        assert!(shown.contains("alice") && !shown.contains("canary"), "{shown}");
    }
}
