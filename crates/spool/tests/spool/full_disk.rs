//! A disk that is full: refuse or drop, say so, and resume by itself.

use std::path::Path;
use std::process::Command;

use spool::{Config, Error, GapReason, OnFull, Spool};

use crate::double::{Outcome, TestDisk};
use crate::ledger::{Ledger, START_MS, gaps, open, read_from, records, small};

#[test]
fn back_pressure_refuses_and_resumes_when_there_is_room() {
    let disk = TestDisk::default();
    disk.set_capacity(Some(16 * 1024));
    let spool = open(small(), &disk).unwrap();
    let mut ledger = Ledger::default();
    let refused = loop {
        if let Err(e) = ledger.append(&spool, 0) {
            break e;
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(refused.is_full());
    assert!(ledger.append(&spool, 0).is_err(), "it stays full");
    ledger.check(&spool);
    assert_eq!(spool.gaps(), [], "nothing was dropped");
    disk.set_capacity(Some(32 * 1024));
    ledger.append(&spool, 0).unwrap();
    ledger.check(&spool);
    // Acks make room too.
    disk.set_capacity(Some(0));
    assert!(ledger.append(&spool, 0).is_err());
    disk.set_capacity(Some(32 * 1024));
    while ledger.append(&spool, 0).is_ok() {}
    ledger.ack(&spool, spool.synced() / 2);
    spool.maintain(START_MS).unwrap();
    ledger.check(&spool);
    let mut after = ledger.clone();
    let spool = open(small(), &disk.after_crash(Outcome::Lost)).unwrap();
    after.check(&spool);
}

#[test]
fn drop_oldest_declares_and_goes_on() {
    let disk = TestDisk::default();
    disk.set_capacity(Some(16 * 1024));
    let config = Config { on_full: OnFull::DropOldest, ..small() };
    let spool = open(config.clone(), &disk).unwrap();
    let mut ledger = Ledger::default();
    for _ in 0..300 {
        ledger.append(&spool, 0).unwrap();
    }
    ledger.check(&spool);
    let items = read_from(&spool, 1);
    assert!(records(&items).len() > 10, "it keeps what fits");
    let dropped = gaps(&items);
    assert!(dropped.iter().all(|gap| gap.reason == GapReason::DiskFull), "{dropped:?}");
    let spool = open(config, &disk.after_crash(Outcome::Lost)).unwrap();
    ledger.check(&spool);
}

#[test]
fn when_not_even_the_tombstone_fits_nothing_is_dropped() {
    let disk = TestDisk::default();
    let spool = open(Config { on_full: OnFull::DropOldest, ..small() }, &disk).unwrap();
    let mut ledger = Ledger::default();
    for _ in 0..40 {
        ledger.append(&spool, 0).unwrap();
    }
    disk.delete("ballast");
    disk.set_capacity(Some(0));
    let refused = ledger.append(&spool, 0).unwrap_err();
    assert!(refused.is_full(), "{refused}");
    ledger.check(&spool);
    assert_eq!(spool.gaps(), []);
    disk.set_capacity(None);
    ledger.append(&spool, 0).unwrap();
    spool.maintain(START_MS).unwrap();
    assert!(disk.file_names().contains(&"ballast".to_owned()), "the ballast is back");
}

#[test]
fn the_reserve_is_left_to_others() {
    let disk = TestDisk::default();
    disk.set_capacity(Some(64 * 1024));
    let config = Config { free_space_reserve: 32 * 1024, ..small() };
    let spool = open(config.clone(), &disk).unwrap();
    let mut ledger = Ledger::default();
    let refused = loop {
        if let Err(e) = ledger.append(&spool, 0) {
            break e;
        }
    };
    assert!(refused.to_string().contains("reserved"), "{refused}");
    assert!(spool.stats().free_bytes >= 32 * 1024);
    ledger.ack(&spool, spool.synced());
    ledger.append(&spool, 0).unwrap_or_else(|e| panic!("acked segments make room: {e}"));
    ledger.check(&spool);
    drop(spool);
    let spool = open(Config { on_full: OnFull::DropOldest, ..config }, &disk).unwrap();
    for _ in 0..500 {
        ledger.append(&spool, 0).unwrap();
    }
    assert!(spool.stats().free_bytes >= 32 * 1024 - 1024);
    ledger.check(&spool);
}

/// A small file system of its own; unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path())
            .output()
            .map_err(|e| e.to_string())?;
        if mounted.status.success() {
            return Ok(Self(dir));
        }
        Err(String::from_utf8_lossy(&mounted.stderr).trim().to_owned())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_real_file_system_runs_full_and_gets_room_again() {
    let tmpfs = match Tmpfs::mount("2m") {
        Ok(tmpfs) => tmpfs,
        Err(why) => {
            eprintln!("NOT RUN: a tmpfs cannot be mounted here: {why}");
            return;
        }
    };
    let config = Config {
        segment_bytes: 64 << 10,
        free_space_reserve: 0,
        ..Config::new(tmpfs.path().join("spool"))
    };
    let spool = Spool::open(config.clone()).unwrap();
    let mut ledger = Ledger::default();
    let refused = loop {
        if let Err(e) = ledger.append(&spool, 0) {
            break e;
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    ledger.check(&spool);
    drop(spool);
    // Opens although the disk is full, and goes on by dropping.
    let spool = Spool::open(Config { on_full: OnFull::DropOldest, ..config.clone() }).unwrap();
    ledger.check(&spool);
    for _ in 0..5000 {
        ledger.append(&spool, 0).unwrap();
    }
    ledger.check(&spool);
    assert!(spool.gaps().iter().all(|gap| gap.reason == GapReason::DiskFull));
    drop(spool);
    // Somebody else fills the rest; then the space comes back.
    let spool = Spool::open(config).unwrap();
    let filler = tmpfs.path().join("filler");
    let mut junk = vec![0; 1 << 20];
    while !junk.is_empty() {
        if std::fs::write(filler.with_extension(junk.len().to_string()), &junk).is_err() {
            junk.truncate(junk.len() / 2);
        } else if junk.len() < 4096 {
            break;
        }
    }
    let refused = loop {
        if let Err(e) = ledger.append(&spool, 0) {
            break e;
        }
    };
    assert!(refused.is_full(), "{refused}");
    for entry in std::fs::read_dir(tmpfs.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    ledger.append(&spool, 0).unwrap();
    ledger.check(&spool);
}
