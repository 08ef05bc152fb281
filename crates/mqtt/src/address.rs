//! The broker's address.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// `mqtt://host:port` or `mqtts://host:port`; the port may be left out (1883, 8883).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether the link is encrypted.
    pub tls: bool,
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        let wrong = |reason| Error::Address { text: text.to_owned(), reason };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let tls = match scheme {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(wrong("unknown scheme")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(wrong("credentials do not belong in the address"));
        }
        let (host, port) = split(rest).ok_or_else(|| wrong("bad host or port"))?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(allowed) {
            return Err(wrong("bad host"));
        }
        let port = match port {
            None if tls => 8883,
            None => 1883,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(wrong("bad port")),
                Ok(port) => port,
            },
        };
        Ok(Address { tls, host: host.to_owned(), port })
    }
}

fn split(rest: &str) -> Option<(&str, Option<&str>)> {
    if let Some(inner) = rest.strip_prefix('[') {
        let (host, after) = inner.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match rest.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((rest, None)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "mqtts" } else { "mqtt" };
        if self.host.contains(':') {
            return write!(f, "{scheme}://[{}]:{}", self.host, self.port);
        }
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_back() {
        for (text, back) in [
            ("mqtt://127.0.0.1:1884", "mqtt://127.0.0.1:1884"),
            ("mqtt://broker", "mqtt://broker:1883"),
            ("mqtts://broker.example/", "mqtts://broker.example:8883"),
            ("mqtts://[::1]:9000", "mqtts://[::1]:9000"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), back);
        }
        for wrong in [
            "",
            "broker:1883",
            "http://b:1",
            "mqtt://",
            "mqtt://b:0",
            "mqtt://b:99999",
            "mqtt://u:p@b:1883",
            "mqtt://::1:1883",
            "mqtt://a b",
            "mqtt://b:1/x",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong} was accepted");
        }
    }
}
