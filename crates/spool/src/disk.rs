//! Everything that touches the file system, and the order in which it becomes durable.
//!
//! Which syncs are made: file contents by `fdatasync` (which covers the length), names by a sync of the folder after a
//! create or a rename. Which are not: the folder is not synced after an unlink, because a file that comes back is only
//! deleted again; and access and modification times are never waited for.
//!
//! [`Disk`] has two implementations: [`Folder`], the real one, and the fault-injecting double in this crate's tests
//! that models a page cache. A call either did what it says or returns the system's error; nothing is retried here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file of the spool, open for reading or for writing.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`. 0 means the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the contents and the length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// One folder, and what the spool does in it. Names are plain file names.
pub trait Disk: Send + Sync {
    /// Every file with its length, in no order.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Opens for reading.
    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Makes an empty file for writing; one of that name is emptied. Durable after [`Disk::sync_dir`].
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Renames over `to`. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Unlinks.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Bytes that the file system would still give to us.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Takes the folder for one writer, until the value that is returned is dropped. `None`: somebody has it.
    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>>;
}

/// The real folder.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
}

impl Folder {
    /// Makes the folder if it is missing, with its name durable in its parent.
    pub fn create(dir: &Path) -> io::Result<Self> {
        if !dir.is_dir() {
            std::fs::create_dir_all(dir)?;
            if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// An existing folder; nothing is made.
    pub fn existing(dir: &Path) -> io::Result<Self> {
        std::fs::read_dir(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // A live spool may delete a segment while a read-only inspection lists the folder.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                files.push((name, meta.len()));
            }
        }
        Ok(files)
    }

    fn open_read(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(File::open(self.path(name))?)))
    }

    fn open_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Box::new(RealFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path(name))?;
        Ok(Box::new(RealFile(file)))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the crate's one disk module; the callers sync the folder"
    )]
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let vfs = rustix::fs::statvfs(&self.dir)?;
        Ok(vfs.f_bavail.saturating_mul(vfs.f_frsize))
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path("lock"))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(&self.0, buf, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(&self.0, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

/// Replaces `name` by `bytes` so that a reader sees the old or the new, and the new is durable on return.
pub(crate) fn write_atomically(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let written = disk.create(&temporary).and_then(|file| {
        file.write_all_at(bytes, 0)?;
        file.sync_data()
    });
    if let Err(e) = written {
        // Best effort: on a full disk the half-written file would keep the room that the next try needs.
        let _ = disk.remove(&temporary);
        return Err(e);
    }
    disk.rename(&temporary, name)?;
    disk.sync_dir()
}

/// Reads a small file whole, up to `limit` bytes. `None` if it is not there.
pub(crate) fn read_small(disk: &dyn Disk, name: &str, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open_read(name) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = vec![0; limit];
    let got = read_full(file.as_ref(), &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}

/// Reads until `buf` is full or the file ends; returns how much.
pub(crate) fn read_full(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match file.read_at(&mut buf[got..], offset + got as u64)? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}
