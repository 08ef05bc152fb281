//! Runs docs/tutorial.md: every block that is marked for it, in order, against a real `up`.
//!
//! A block is ```` ```sh test ````. Its commands are run by `sh` in a folder in which `up` keeps its `.holdfast`, and what they print must
//! have every text that follows `#=> `. The page says "soon" and "after a few seconds"; here a block is run again until it is so, up to
//! a limit. A block may therefore do no harm when it is done twice.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rig::Process;
use testkit::eventually;

/// How long what the page says may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// A page with fewer blocks than this was not read as it was meant.
const AT_LEAST: usize = 10;

struct Block {
    line: usize,
    script: String,
    expected: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(page.lines()) {
        match (inside, line) {
            (false, "```sh test") => {
                inside = true;
                blocks.push(Block { line: number, script: String::new(), expected: Vec::new() });
            }
            (true, "```") => inside = false,
            (true, line) => {
                let block = blocks.last_mut().unwrap();
                match line.strip_prefix("#=> ") {
                    Some(text) => block.expected.push(text.to_owned()),
                    None => block.script += &format!("{line}\n"),
                }
            }
            _ => {}
        }
    }
    assert!(!inside, "the page ends inside a block");
    blocks
}

/// Runs a block once: what was printed, or what of it is missing.
fn run(block: &Block, folder: &Path, path: &str) -> Result<(), String> {
    let out = Command::new("sh")
        .args(["-e", "-c", &block.script])
        .current_dir(folder)
        .env("PATH", path)
        .env_remove("HOLDFAST_CONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let told = || format!("{text}\n{}", String::from_utf8_lossy(&out.stderr));
    if let Some(missing) = block.expected.iter().find(|expected| !text.contains(*expected)) {
        return Err(format!("{missing:?} is missing in:\n{}", told()));
    }
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("{}:\n{}", out.status, told())),
    }
}

#[test]
fn blocks_are_found_with_what_they_should_print() {
    let found = blocks("a\n```sh\nnot this\n```\n```sh test\none\ntwo\n#=> three\n```\nb\n");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].line, found[0].script.as_str()), (5, "one\ntwo\n"));
    assert_eq!(found[0].expected, ["three"]);
}

#[tokio::test]
async fn the_tutorial_does_what_it_says() {
    use std::os::unix::fs::PermissionsExt;
    testkit::bin("holdfast-node").unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutorial.md");
    let blocks = blocks(&std::fs::read_to_string(page).unwrap());
    assert!(blocks.len() >= AT_LEAST, "{} blocks", blocks.len());

    // A folder that the server's own user may enter.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_holdfast"));
    let bin = program.parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(&program);
    let data = folder.path().join(".holdfast");
    command.args(["up", "--nodes", "2", "--every", "200ms", "--data"]).arg(&data);
    let log = folder.path().join("up.log");
    let mut up = Process::spawn(command, Some(&log)).unwrap();

    for block in &blocks {
        let what = format!("docs/tutorial.md:{}: {}", block.line, block.script.trim());
        let done = eventually(SOON, &what, async || run(block, folder.path(), &path)).await;
        if let Err(error) = done {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            // The reason comes last: the end of a long output is what is kept of it.
            panic!("up said:\n{log}\n{error}");
        }
    }
    assert!(up.term(SOON).await.unwrap().success());
}
