//! A disk in memory that fails on purpose and has a page cache.
//!
//! A write goes to the cache; only a sync brings it to the disk. At a crash, what was not synced is kept, lost, or torn; names
//! that were not followed by a folder sync are there or not. A sync that fails drops the dirty pages and, as the kernel does, the next
//! sync of that file reports success without them: syncing such a file again is recorded as a violation.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spool::disk::{Disk, DiskFile};

pub(crate) use crate::page_cache::Outcome;
use crate::page_cache::{Change, Inode, NameChange, Random};

/// What happens at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The power goes before the operation; half of a write gets through.
    Crash,
    /// The operation fails once with this error; half of a write gets through.
    Fail(io::ErrorKind),
}

#[derive(Default)]
struct World {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    off: bool,
    locked: bool,
    capacity: Option<u64>,
    syncs: u64,
    bytes_read: u64,
    reads_fail: bool,
    violations: Vec<String>,
}

/// The double. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct TestDisk(Arc<Mutex<World>>);

impl TestDisk {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the `n`th operation that changes something fail, counted from 0 and from now.
    pub(crate) fn fail_at(&self, n: u64, fault: Fault) {
        let mut world = self.world();
        world.fault = Some((world.operations + n, fault));
    }

    /// Whether the fault that was set has happened.
    pub(crate) fn fault_happened(&self) -> bool {
        self.world().fault.is_none()
    }

    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.world().capacity = bytes;
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.world().syncs
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.world().bytes_read
    }

    /// Lets every read of a file fail, as a dying card does.
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.world().reads_fail = fail;
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.world().violations.clone()
    }

    pub(crate) fn file_names(&self) -> Vec<String> {
        self.world().names.keys().cloned().collect()
    }

    pub(crate) fn segment_names(&self) -> Vec<String> {
        let names = self.file_names().into_iter();
        names.filter(|n| n.ends_with(".seg") || n.ends_with(".open")).collect()
    }

    pub(crate) fn bytes_of(&self, name: &str) -> Vec<u8> {
        let world = self.world();
        world.inodes[world.names[name]].cached.clone()
    }

    /// Puts a file there, durable, whatever the spool thinks.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let mut world = self.world();
        let (cached, durable) = (bytes.to_vec(), bytes.to_vec());
        world.inodes.push(Inode { cached, durable, ..Inode::default() });
        let id = world.inodes.len() - 1;
        world.names.insert(name.to_owned(), id);
        world.durable_names.insert(name.to_owned(), id);
    }

    pub(crate) fn delete(&self, name: &str) {
        let mut world = self.world();
        world.names.remove(name);
        world.durable_names.remove(name);
    }

    /// A disk with the same files, all durable, and no faults.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::default();
        for name in self.file_names() {
            copy.put(&name, &self.bytes_of(&name));
        }
        copy
    }

    /// The disk as the next process finds it after this one was killed: the page cache is still there, synced or not.
    pub(crate) fn after_kill(&self) -> Self {
        let mut world = self.world();
        world.off = true;
        let after = World {
            inodes: world.inodes.clone(),
            names: world.names.clone(),
            durable_names: world.durable_names.clone(),
            name_changes: world.name_changes.clone(),
            ..World::default()
        };
        Self(Arc::new(Mutex::new(after)))
    }

    /// The disk as it is after the power came back.
    pub(crate) fn after_crash(&self, outcome: Outcome) -> Self {
        let mut world = self.world();
        world.off = true;
        let mut random = match outcome {
            Outcome::Torn(seed) | Outcome::Scattered(seed) => Random(seed | 1),
            _ => Random(1),
        };
        let mut names = world.durable_names.clone();
        let keep = random.below(world.name_changes.len() as u64 + 1);
        for (i, change) in world.name_changes.iter().enumerate() {
            let happened = match outcome {
                Outcome::Lost => false,
                Outcome::Kept => true,
                Outcome::Torn(_) => (i as u64) < keep,
                Outcome::Scattered(_) => random.below(2) == 0,
            };
            if happened {
                change.apply(&mut names);
            }
        }
        let after = Self::default();
        for (name, id) in names {
            let bytes = world.inodes[id].after_crash(outcome, &mut random);
            after.put(&name, &bytes);
        }
        after
    }
}

impl World {
    /// Counts an operation; says whether it goes through, and with which fault if not.
    fn operation(&mut self) -> Result<(), Fault> {
        if self.off {
            return Err(Fault::Crash);
        }
        let n = self.operations;
        self.operations += 1;
        match self.fault {
            Some((at, fault)) if at == n => {
                self.fault = None;
                self.off = fault == Fault::Crash;
                Err(fault)
            }
            _ => Ok(()),
        }
    }

    fn alive(&self) -> io::Result<()> {
        if self.off { Err(error(Fault::Crash)) } else { Ok(()) }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|id| self.inodes[*id].cached.len() as u64).sum()
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.alive()?;
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Crash => io::Error::other("the machine is off"),
        Fault::Fail(kind) => kind.into(),
    }
}

struct TestFile {
    disk: TestDisk,
    id: usize,
}

impl Disk for TestDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let world = self.world();
        world.alive()?;
        let len = |id: &usize| world.inodes[*id].cached.len() as u64;
        Ok(world.names.iter().map(|(name, id)| (name.clone(), len(id))).collect())
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let id = self.world().find(name)?;
        Ok(Box::new(TestFile { disk: self.clone(), id }))
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open_read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut world = self.world();
        world.operation().map_err(error)?;
        let id = match world.names.get(name).copied() {
            Some(id) => {
                world.inodes[id].cached.clear();
                world.inodes[id].dirty.push(Change::SetLen(0));
                id
            }
            None => {
                world.inodes.push(Inode::default());
                let id = world.inodes.len() - 1;
                world.names.insert(name.to_owned(), id);
                world.name_changes.push(NameChange::Link(name.to_owned(), id));
                id
            }
        };
        Ok(Box::new(TestFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        world.operation().map_err(error)?;
        let id = world.find(from)?;
        world.names.remove(from);
        world.names.insert(to.to_owned(), id);
        world.name_changes.push(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.world();
        world.operation().map_err(error)?;
        world.find(name)?;
        world.names.remove(name);
        world.name_changes.push(NameChange::Unlink(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut world = self.world();
        world.operation().map_err(error)?;
        world.durable_names = world.names.clone();
        world.name_changes.clear();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let world = self.world();
        world.alive()?;
        Ok(world.capacity.map_or(u64::MAX / 2, |capacity| capacity.saturating_sub(world.used())))
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut world = self.world();
        world.alive()?;
        if world.locked {
            return Ok(None);
        }
        world.locked = true;
        Ok(Some(Box::new(Unlock(self.clone()))))
    }
}

struct Unlock(TestDisk);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.world().locked = false;
    }
}

impl DiskFile for TestFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.world();
        world.alive()?;
        if world.reads_fail {
            return Err(io::Error::other("a bad sector"));
        }
        let bytes = &world.inodes[self.id].cached;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        world.bytes_read += n as u64;
        Ok(n)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.disk.world();
        let mut result = world.operation().map_err(error);
        let growth =
            (offset + bytes.len() as u64).saturating_sub(world.inodes[self.id].cached.len() as u64);
        if result.is_ok() && world.capacity.is_some_and(|c| world.used() + growth > c) {
            result = Err(io::ErrorKind::StorageFull.into());
        }
        let part = if result.is_ok() { bytes.len() } else { bytes.len() / 2 };
        let change = Change::Write(offset, bytes[..part].to_vec());
        change.apply(&mut world.inodes[self.id].cached);
        world.inodes[self.id].dirty.push(change);
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.disk.world();
        let result = world.operation();
        world.syncs += 1;
        if world.inodes[self.id].sync_failed {
            world.violations.push(format!("file {} synced again after a failed sync", self.id));
        }
        if result == Err(Fault::Crash) {
            return Err(error(Fault::Crash));
        }
        let inode = &mut world.inodes[self.id];
        let dirty = std::mem::take(&mut inode.dirty);
        match result {
            Ok(()) => {
                dirty.iter().for_each(|change| change.apply(&mut inode.durable));
                Ok(())
            }
            Err(fault) => {
                inode.sync_failed = true;
                Err(error(fault))
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = self.disk.world();
        world.operation().map_err(error)?;
        let change = Change::SetLen(len);
        change.apply(&mut world.inodes[self.id].cached);
        world.inodes[self.id].dirty.push(change);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let world = self.disk.world();
        world.alive()?;
        Ok(world.inodes[self.id].cached.len() as u64)
    }
}
