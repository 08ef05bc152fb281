//! The control socket of `up`: one line of JSON each way. docs/spec/console.md has the lines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::Fault;

/// The longest answer: a word for each of a few hundred cables.
const MAX_ANSWER_BYTES: u64 = 256 << 10;
const WITHIN: Duration = Duration::from_secs(3);

/// The state of a cable that carries everything.
pub(crate) const WHOLE: &str = "ok";

/// The socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Changed(Vec<String>),
    States(BTreeMap<String, String>),
    Refused(String),
}

impl Control {
    pub(super) fn new(socket: PathBuf) -> Control {
        Control { socket }
    }

    /// A word for the state of each cable, by its name.
    pub(crate) async fn states(&self) -> Result<BTreeMap<String, String>, Fault> {
        match self.ask(&json!({"states": true})).await? {
            Reply::States(states) => Ok(states),
            Reply::Changed(_) => Err(Fault::Odd("another reply than states".to_owned())),
            Reply::Refused(why) => Err(refused(why)),
        }
    }

    /// Cuts or restores cables, and names those that were.
    pub(crate) async fn set(&self, cut: bool, names: &[String]) -> Result<Vec<String>, Fault> {
        let set = if cut { "cut" } else { "restore" };
        match self.ask(&json!({"set": set, "nodes": names})).await? {
            Reply::Changed(names) => Ok(names),
            Reply::States(_) => Err(Fault::Odd("another reply than changed".to_owned())),
            Reply::Refused(why) => Err(refused(why)),
        }
    }

    async fn ask(&self, request: &Value) -> Result<Reply, Fault> {
        let asked = async {
            let stream = UnixStream::connect(&self.socket).await?;
            let (reader, mut writer) = stream.into_split();
            writer.write_all(format!("{request}\n").as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(reader.take(MAX_ANSWER_BYTES)).read_line(&mut line).await?;
            Ok::<_, std::io::Error>(line)
        };
        let late = |_| Fault::Away("no answer in time".to_owned());
        let line = tokio::time::timeout(WITHIN, asked).await.map_err(late)?;
        let line = line.map_err(|error| Fault::Away(error.kind().to_string()))?;
        serde_json::from_str(&line).map_err(|error| Fault::Odd(error.to_string()))
    }
}

fn refused(message: String) -> Fault {
    Fault::Refused { status: 404, code: "refused".to_owned(), message }
}
