//! Puts the built page into the binary: every file under `web/dist`, or a page that says how to build it.
//!
//! The build works without the page, so that nobody needs Node to work on the rest.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const PLACEHOLDER: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Holdfast</title></head>\
<body><h1>Holdfast</h1><p>The page was not built into this program. <code>./dev up</code> builds it; the API is at \
<a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>.</p></body></html>";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dist = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../web/dist");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &mut files)?;
    } else {
        let page = out.join("index.html");
        std::fs::write(&page, PLACEHOLDER)?;
        files.push(("index.html".to_owned(), page));
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (name, path) in &files {
        writeln!(list, "    ({name:?}, include_bytes!({:?})),", path.display().to_string())?;
    }
    list.push_str("]\n");
    std::fs::write(out.join("files.rs"), list)?;
    Ok(())
}

/// Every file below a folder, by its path from there.
fn collect(
    root: &Path,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                files.push((name, path.canonicalize()?));
            }
        }
    }
    Ok(())
}
