//! A sampler that sends many lines before it reads replies.

use super::LONG;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(crate) struct Sampler {
    write: UnixStream,
    read: BufReader<UnixStream>,
}

impl Sampler {
    pub(crate) fn connect(socket: &Path) -> Sampler {
        let write = UnixStream::connect(socket).unwrap();
        write.set_read_timeout(Some(LONG)).unwrap();
        write.set_write_timeout(Some(LONG)).unwrap();
        let read = BufReader::new(write.try_clone().unwrap());
        Sampler { write, read }
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.try_send(line).unwrap();
    }

    pub(crate) fn try_send(&mut self, line: &str) -> std::io::Result<()> {
        self.write.write_all(format!("{line}\n").as_bytes())
    }

    pub(crate) fn reply(&mut self) -> Value {
        self.try_reply().unwrap()
    }

    /// The next reply, or nothing if the node has gone.
    pub(crate) fn try_reply(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.read.read_line(&mut line) {
            Ok(n) if n > 0 => serde_json::from_str(&line).ok(),
            _ => None,
        }
    }

    /// Sends one line and returns its reply.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.reply()
    }

    /// Hands over `count` samples, pipelined; returns the seq of each. All must be taken.
    pub(crate) fn samples(&mut self, count: usize) -> Vec<u64> {
        const AT_ONCE: usize = 500;
        let mut seqs = Vec::with_capacity(count);
        while seqs.len() < count {
            let chunk = AT_ONCE.min(count - seqs.len());
            let mut lines = String::new();
            for _ in 0..chunk {
                lines.push_str(&sample());
                lines.push('\n');
            }
            self.write.write_all(lines.as_bytes()).unwrap();
            for _ in 0..chunk {
                let reply = self.reply();
                seqs.push(reply["seq"].as_u64().unwrap_or_else(|| panic!("{reply}")));
            }
        }
        seqs
    }
}

/// A sample line.
pub(crate) fn sample() -> String {
    json!({"metric_type": "temperature", "metric_value": 21.5, "unit": "C"}).to_string()
}
