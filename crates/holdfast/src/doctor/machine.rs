//! This machine: its clock, its disks, a spool's folder, its ports.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::check::Check;
use crate::status::own::{Own, Said};
use crate::status::{free_bytes, shown_bytes};

/// Exists once systemd-timesyncd has set the clock.
const SYNCED_MARKER: &str = "/run/systemd/timesync/synchronized";
/// How long a question to this machine may take.
const ASK_WITHIN: Duration = Duration::from_secs(3);
/// A sync that takes longer makes every answer of a node as slow.
const SLOW_SYNC: Duration = Duration::from_millis(500);
/// A spool's disk with less than this left is nearly full.
const LITTLE_BYTES: u64 = 256 << 20;

/// Whether something keeps the clock right.
pub(super) async fn clock() -> Vec<Check> {
    let (role, name) = ("all", "clock");
    let asked = tokio::process::Command::new("timedatectl")
        .args(["show", "--property=NTPSynchronized", "--value"])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let said = match tokio::time::timeout(ASK_WITHIN, asked).await {
        Ok(Ok(out)) if out.status.success() => {
            String::from_utf8_lossy(&out.stdout).trim().to_owned()
        }
        _ => String::new(),
    };
    let advice = "install and start chrony or systemd-timesyncd; a node without a clock marks its times as unsure";
    vec![match said.as_str() {
        "yes" => Check::ok(role, name, "synchronised"),
        _ if Path::new(SYNCED_MARKER).exists() => Check::ok(role, name, "was synchronised"),
        "no" => Check::warn(role, name, "not synchronised", advice),
        _ => Check::warn(role, name, "nobody here can tell whether it is synchronised", advice),
    }]
}

/// Whether a disk has so much left.
pub(super) fn disk(role: &'static str, path: &Path, least: u64) -> Check {
    let name = "disk";
    let Some(free) = free_bytes(path) else {
        let said = format!("{} cannot be looked at", path.display());
        return Check::fail(role, name, said, "make the folder, or mend the path");
    };
    let found = format!("{}: {} free", path.display(), shown_bytes(free));
    match free >= least {
        true => Check::ok(role, name, found),
        false => Check::fail(
            role,
            name,
            found,
            format!("make room: {} should be free", shown_bytes(least)),
        ),
    }
}

/// Whether a spool can be kept here: the folder is ours to write, a sync works, and there is room.
pub(super) async fn spool(role: &'static str, folder: PathBuf) -> Vec<Check> {
    let looked = tokio::task::spawn_blocking(move || look_at_spool(role, &folder)).await;
    looked.unwrap_or_default()
}

fn look_at_spool(role: &'static str, folder: &Path) -> Vec<Check> {
    let name = "spool";
    let place = match (folder.is_dir(), folder.parent()) {
        (true, _) => folder,
        (false, Some(parent)) if parent.is_dir() => parent,
        _ => {
            let said = format!("{} is not there, nor the folder above it", folder.display());
            let advice = format!("mkdir -p {0}, and chown it to the role's user", folder.display());
            return vec![Check::fail(role, name, said, advice)];
        }
    };
    let written = match sync_a_file(place) {
        Ok(took) if took <= SLOW_SYNC => {
            let found = format!("{}: a sync takes {} ms", place.display(), took.as_millis());
            Check::ok(role, name, found)
        }
        Ok(took) => Check::warn(
            role,
            name,
            format!("{}: a sync takes {} ms", place.display(), took.as_millis()),
            "a worn card or a busy disk: every answer to a sampler waits for it",
        ),
        Err(error) => Check::fail(
            role,
            name,
            format!("{}: {error}", place.display()),
            "run this as the role's user; chown the folder to it, and see that the disk is not read-only",
        ),
    };
    vec![written, disk(role, place, LITTLE_BYTES)]
}

/// Writes, syncs and removes a small file, and syncs the folder. The spool leaves names alone that are none of its own.
fn sync_a_file(folder: &Path) -> std::io::Result<Duration> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    let begun = Instant::now();
    let done = (|| {
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        file.write_all(b"holdfast doctor was here\n")?;
        file.sync_all()?;
        File::open(folder)?.sync_all()
    })();
    let took = begun.elapsed();
    // What could not be made cannot be removed either; the first error is the one that matters.
    let removed = std::fs::remove_file(&path);
    done?;
    removed?;
    Ok(took)
}

/// Whether a role's port is free, or the role's own.
pub(super) async fn port(
    role: &'static str,
    listen: SocketAddr,
    tls: Option<api::serve::Tls>,
) -> Vec<Check> {
    let name = format!("port {}", listen.port());
    let own = Own::new(listen, tls.as_ref());
    let address = own.address();
    match own.ask("/healthz", ASK_WITHIN).await {
        Said::Words(true, words) if words == "ok\n" => {
            return vec![Check::ok(role, name, format!("the role answers on {address}"))];
        }
        Said::Locked => {
            let found = format!("{address} speaks only with clients that have a certificate");
            return vec![Check::ok(role, name, found)];
        }
        _ => {}
    }
    vec![match tokio::net::TcpListener::bind(listen).await {
        Ok(_) => Check::ok(role, name, format!("{listen} is free; the role does not run")),
        Err(error) => Check::fail(
            role,
            name,
            format!("{listen}: {error}, and what is there is not this role"),
            format!(
                "end what holds it (ss -ltnp 'sport = :{}'), or change http.listen",
                listen.port()
            ),
        ),
    }]
}
