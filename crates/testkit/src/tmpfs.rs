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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
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
        let small = match Tmpfs::mount(64) {
            Ok(small) => small,
            Err(reason) => {
                eprintln!("not tried: {reason}");
                assert!(!rustix::process::geteuid().is_root() || reason.contains("permitted"));
                return;
            }
        };
        let path = small.path().to_owned();
        std::fs::write(path.join("fits"), vec![0; 32 * 1024]).unwrap();
        let error = std::fs::write(path.join("too much"), vec![0; 64 * 1024]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        drop(small);
        assert!(!path.exists());
    }
}
