//! Servers from PyPI, and what is read from them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use event::QualityCode;
use event::scada::Envelope;
use scada::inputs::{self, Inputs, Mapping};
use tempfile::TempDir;
use testkit::rig::{Process, free_port};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes, unless it never happens.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A server on a port of its own, that can be killed and started again.
pub(crate) struct Simulator {
    script: &'static str,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
    pub(crate) process: Process,
}

/// Where `./dev test` puts the interpreter with the servers.
fn python() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let target = executable.ancestors().nth(3).unwrap();
    let python = target.join("tools/simulators/bin/python");
    assert!(python.exists(), "no target/tools/simulators: `./dev test` installs it");
    python
}

impl Simulator {
    pub(crate) async fn start(script: &'static str, control: &str) -> Simulator {
        Simulator::start_with(script, control, &[]).await
    }

    /// The same, with copies of files beside the one that it follows.
    pub(crate) async fn start_with(
        script: &'static str,
        control: &str,
        files: &[(&str, &Path)],
    ) -> Simulator {
        let (folder, port) = (TempDir::new().unwrap(), free_port().unwrap());
        std::fs::write(folder.path().join("control"), control).unwrap();
        for (name, file) in files {
            std::fs::copy(file, folder.path().join(name)).unwrap();
        }
        let process = spawn(script, port, folder.path());
        let mut simulator = Simulator { script, port, folder, process };
        simulator.answers().await;
        simulator
    }

    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.process = spawn(self.script, self.port, self.folder.path());
        self.answers().await;
    }

    /// What a server that follows a file has from now on.
    #[cfg(feature = "opcua")]
    pub(crate) fn control(&self, text: &str) {
        let (new, old) = (self.folder.path().join("new"), self.folder.path().join("control"));
        std::fs::write(&new, text).unwrap();
        #[expect(clippy::disallowed_methods, reason = "whole or not at all is enough here")]
        std::fs::rename(new, old).unwrap();
    }

    async fn answers(&mut self) {
        let address = ("127.0.0.1", self.port);
        let (process, log) = (&mut self.process, self.folder.path().join("log"));
        testkit::eventually(LONG, "the simulator answers", async || {
            assert!(process.is_running(), "{}", std::fs::read_to_string(&log).unwrap());
            TcpStream::connect(address).await.is_ok()
        })
        .await
        .unwrap();
    }
}

fn spawn(script: &str, port: u16, folder: &Path) -> Process {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs/simulators");
    let mut command = Command::new(python());
    command.arg(scripts.join(script)).arg(port.to_string()).arg(folder.join("control"));
    Process::spawn(command, Some(&folder.join("log"))).unwrap()
}

/// A mapping from text.
pub(crate) fn mapping(folder: &Path, text: &str) -> Result<Mapping, settings::Error> {
    let path = folder.join("inputs.toml");
    let node = "[node]\nid = 7\nplant = \"PLANT01\"\narea = \"AREA01\"\nunit = \"UNIT_07\"\n";
    std::fs::write(&path, format!("{node}{text}")).unwrap();
    Mapping::load(&path)
}

/// Inputs that run, and everything that came from them.
pub(crate) struct Reading {
    inputs: Inputs,
    pub(crate) stop: CancellationToken,
    pub(crate) all: Vec<Envelope>,
    latest: HashMap<String, Envelope>,
    left_out: HashMap<String, i64>,
}

impl Reading {
    pub(crate) fn start(mapping: Mapping) -> Reading {
        let stop = CancellationToken::new();
        let inputs = inputs::start(mapping, &stop);
        let (latest, left_out) = (HashMap::new(), HashMap::new());
        Reading { inputs, stop, all: Vec::new(), latest, left_out }
    }

    /// Takes cycles until something is so.
    pub(crate) async fn until(&mut self, what: &str, mut so: impl FnMut(&Reading) -> bool) {
        let taking = async {
            while !so(self) {
                let cycle = self.inputs.next().await.unwrap();
                for reading in cycle.envelopes {
                    assert_eq!(reading.check(), Ok(()));
                    self.latest.insert(reading.tag.to_string(), reading.clone());
                    self.all.push(reading);
                }
                for (series, tally) in cycle.left_out.iter() {
                    assert_eq!((tally.kept, tally.readings), (0, tally.reduced));
                    *self.left_out.entry(series.tag.clone()).or_default() += tally.reduced;
                }
            }
        };
        let late = tokio::time::timeout(LONG, taking).await.is_err();
        assert!(!late, "{what}; the latest: {:#?}", self.latest);
    }

    pub(crate) fn latest(&self, tag: &str) -> Option<&Envelope> {
        self.latest.get(tag)
    }

    pub(crate) fn is(&self, tag: &str, value: f64, quality: QualityCode) -> bool {
        let near = |reading: &Envelope| (reading.value - value).abs() < 1e-6;
        self.latest(tag).is_some_and(|reading| near(reading) && reading.quality == quality)
    }

    pub(crate) fn left_out(&self, tag: &str) -> i64 {
        self.left_out.get(tag).copied().unwrap_or_default()
    }

    pub(crate) fn count(&self, tag: &str) -> usize {
        self.all.iter().filter(|reading| reading.tag.as_str() == tag).count()
    }

    /// Stops, and sees that it ends.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.inputs.ended()).await.unwrap();
    }
}
