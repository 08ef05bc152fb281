//! A small file system, to be filled up.

use std::ffi::CString;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// A file system in memory, of a fixed size. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Tmpfs {
    folder: TempDir,
}

impl Tmpfs {
    /// Mounts one of `kib` KiB. It needs root; where that is not given, the error says why, and a
    /// test can print it and do without.
    pub fn mount(kib: u32) -> Result<Tmpfs, String> {
        let folder = tempfile::Builder::new()
            .prefix("holdfast-tmpfs-")
            .tempdir()
            .map_err(|error| format!("no folder to mount on: {error}"))?;
        let options = CString::new(format!("size={kib}k,mode=0777"))
            .map_err(|error| format!("the options: {error}"))?;
        mount("tmpfs", folder.path(), "tmpfs", MountFlags::NOSUID, options.as_c_str())
            .map_err(|error| format!("mounting a tmpfs is not permitted here: {error}"))?;
        Ok(Tmpfs { folder })
    }

    /// Mounts one, or says why that is not possible here and returns nothing: the test then does without. Where CI is set
    /// a test must not be green that has tried nothing, so that is a panic.
    #[expect(
        clippy::panic,
        clippy::print_stderr,
        reason = "a test that cannot be made fails, or says so where the harness shows it"
    )]
    pub fn mount_or_say(kib: u32) -> Option<Tmpfs> {
        match Tmpfs::mount(kib) {
            Ok(small) => Some(small),
            Err(reason) if in_ci() => panic!("CI is set, and a small disk is needed: {reason}"),
            Err(reason) => {
                eprintln!("not tried: {reason}");
                None
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Detached, so that a file still open somewhere does not keep it in the tree of folders.
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn it_fills_up_and_goes_away() {
        let Some(small) = Tmpfs::mount_or_say(64) else { return };
        let path = small.path().to_owned();
        std::fs::write(path.join("fits"), vec![0; 32 * 1024]).unwrap();
        let error = std::fs::write(path.join("too much"), vec![0; 64 * 1024]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        drop(small);
        assert!(!path.exists());
    }
}
