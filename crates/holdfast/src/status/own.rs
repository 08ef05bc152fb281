//! A role of this machine, asked at the address it listens on.

use std::net::SocketAddr;
use std::time::Duration;

use api::serve::Tls;

/// Where a role listens, and whether by TLS.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    listen: SocketAddr,
    tls: Option<Tls>,
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Said {
    /// An answer: whether it was a good one, and its words.
    Words(bool, String),
    /// It listens, and speaks only with clients that have a certificate, which we are not.
    Locked,
    /// Nothing, within the time.
    Late,
    /// Nothing answers.
    Away,
}

impl Own {
    pub(crate) fn new(listen: SocketAddr, tls: Option<&Tls>) -> Own {
        Own { listen, tls: tls.cloned() }
    }

    /// Where it can be asked from here.
    pub(crate) fn address(&self) -> SocketAddr {
        let listen = self.listen;
        match listen.ip().is_unspecified() {
            true if listen.is_ipv4() => ([127, 0, 0, 1], listen.port()).into(),
            true => (std::net::Ipv6Addr::LOCALHOST, listen.port()).into(),
            false => listen,
        }
    }

    /// Asks an open route.
    pub(crate) async fn ask(&self, path: &str, within: Duration) -> Said {
        let address = self.address();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let answer = async {
            let client = reqwest::Client::builder()
                .timeout(within)
                .no_proxy()
                // Its certificate is for the name that others know it by, not for this address. Nothing secret is sent, and what is asked
                // is open to everybody.
                .tls_danger_accept_invalid_certs(true)
                .build()?;
            let answer = client.get(format!("{scheme}://{address}{path}")).send().await?;
            let good = answer.status().is_success();
            Ok::<_, reqwest::Error>((good, answer.text().await?))
        };
        match answer.await {
            Ok((good, words)) => Said::Words(good, words),
            Err(error) if error.is_timeout() => Said::Late,
            Err(_) => {
                let asks = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
                match asks && tokio::net::TcpStream::connect(address).await.is_ok() {
                    true => Said::Locked,
                    false => Said::Away,
                }
            }
        }
    }
}
