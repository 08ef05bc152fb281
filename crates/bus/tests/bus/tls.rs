//! A broker reached over TLS, with a certificate authority made here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use bus::rabbitmq::{Address, declare};
use bus::{About, PublishError, Publisher};
use tempfile::TempDir;

use crate::recovery::{consumer, publisher};
use crate::world::{drain, message, topology};

/// Certificates, and a port for a listener that shows them.
pub(crate) struct Tls {
    folder: TempDir,
    port: u16,
}

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Tls {
    pub(crate) fn make() -> Tls {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for authority in ["ca", "stranger"] {
            openssl(
                at,
                &format!(
                    "req -x509 {key} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}"
                ),
            );
        }
        std::fs::write(at.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        openssl(at, &format!("req -new {key} -keyout server.key -out server.csr -subj /CN=broker"));
        openssl(
            at,
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile names -out server.pem",
        );
        Tls { folder, port: testkit::rig::free_port().unwrap() }
    }

    /// Lines of the broker's configuration.
    pub(crate) fn settings(&self) -> String {
        let file = |name: &str| self.file(name).display().to_string();
        format!(
            "listeners.ssl.default = 127.0.0.1:{}\n\
             ssl_options.cacertfile = {}\n\
             ssl_options.certfile = {}\n\
             ssl_options.keyfile = {}\n",
            self.port,
            file("ca.pem"),
            file("server.pem"),
            file("server.key")
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Messages go over TLS to a broker that shows a certificate of the authority named, and to no other.
pub(crate) async fn only_the_authority_named_is_trusted(
    broker: &testkit::PrivateRabbitMq,
    tls: &Tls,
) {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, tls.port));
    let url = broker.url_at(addr, "/").replacen("amqp://", "amqps://", 1);
    let trusting = Address::parse(&url).unwrap().with_ca_file(tls.file("ca.pem"));
    declare(&trusting, &topology()).await.unwrap();
    let by_tls = publisher(&trusting);
    assert_eq!(by_tls.publish((0..3).map(message).collect()).await, vec![Ok(()); 3]);
    let mut consuming = consumer(&trusting, &by_tls);
    drain(&mut consuming, 3, |_, _| {}).await;

    // A file that breaks later changes nothing: the last good certificates stay.
    let followed = tls.file("followed.pem");
    std::fs::copy(tls.file("ca.pem"), &followed).unwrap();
    let following = Address::parse(&url).unwrap().with_ca_file(followed.clone());
    declare(&following, &topology()).await.unwrap();
    std::fs::write(tls.file("nonsense.pem"), "nonsense").unwrap();
    for trusted in ["nonsense", "stranger", "ca"] {
        std::fs::copy(tls.file(&format!("{trusted}.pem")), &followed).unwrap();
        let connected = declare(&following, &topology()).await;
        assert_eq!(connected.is_ok(), trusted != "stranger", "{trusted}: {connected:?}");
    }

    let strangers = Address::parse(&url).unwrap().with_ca_file(tls.file("stranger.pem"));
    let nobody = Address::parse(&url).unwrap();
    let missing = Address::parse(&url).unwrap().with_ca_file(tls.file("missing.pem"));
    for address in [strangers, nobody, missing] {
        let refused = publisher(&address).publish(vec![message(9)]).await.remove(0).unwrap_err();
        assert!(matches!(refused, PublishError::Unreachable(_)), "{refused:?}");
        assert_eq!(refused.about(), About::Destination);
    }
}
