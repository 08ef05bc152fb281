//! `holdfast scada inputs`, on a Modbus server of the test's own.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::{Command, Output};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const TAGS: &str = r#"
[[modbus.tag]]
tag = "FLOW_RATE"
register = 7
type = "u16"
scale = 0.5
unit = "m³/h"
"#;
const ABSENT: &str = "[[modbus.tag]]\ntag = \"ABSENT\"\nregister = 99\ntype = \"u16\"\n";

fn inputs(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["scada", "inputs"]).args(arguments).output().unwrap()
}

/// Answers one frame after the other, by the protocol's own page: register 7 holds 24, there is no other.
async fn answer(mut stream: TcpStream) {
    let mut request = [0_u8; 12];
    while stream.read_exact(&mut request).await.is_ok() {
        let head = [request[0], request[1], 0, 0, 0];
        let asked = [request[8], request[9], request[10], request[11]];
        let body: &[u8] = match (request[7], asked) {
            (3, [0, 7, 0, 1]) => &[5, request[6], 3, 2, 0, 24],
            (function, _) => &[3, request[6], function | 0x80, 2],
        };
        if stream.write_all(&[&head, body].concat()).await.is_err() {
            return;
        }
    }
}

async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    port
}

fn file(folder: &tempfile::TempDir, port: u16, tags: &str) -> String {
    let path = folder.path().join("inputs.toml");
    let node = "[node]\nid = 7\nplant = \"PLANT01\"\narea = \"AREA01\"\nunit = \"UNIT_07\"\n";
    let device = format!("[[modbus]]\nname = \"skid\"\naddress = \"127.0.0.1:{port}\"\n");
    std::fs::write(&path, format!("{node}{device}{tags}")).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_shows_every_tag_and_fails_when_one_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let port = server().await;
    let good = file(&folder, port, TAGS);
    let out = inputs(&["check", &good]);
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for word in
        ["skid", "PLANT01.AREA01.UNIT_07.FLOW_RATE", "holding 7", "24", "12.000 m³/h", "GOOD"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
    let mixed = file(&folder, port, &format!("{TAGS}{ABSENT}"));
    let out = inputs(&["check", &mixed, "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let tags: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&tags[0]["raw"], &tags[0]["value"]), (&24.0.into(), &12.0.into()));
    assert_eq!((&tags[1]["quality"], &tags[1]["value"]), (&"BAD".into(), &Value::Null));
    assert!(tags[1]["trouble"].as_str().unwrap().contains("the device says"), "{tags}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("1 of 2 tags cannot be read"), "{said}");

    let nobody = file(&folder, testkit::rig::free_port().unwrap(), TAGS);
    let out = inputs(&["check", &nobody, "--once"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8(out.stdout).unwrap().contains("BAD"));
    let wrong = file(&folder, port, &TAGS.replace("u16", "u7"));
    let out = inputs(&["check", &wrong]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && said.contains("is \"u7\": expected one of"), "{said}");
}

#[test]
fn a_certificate_is_made_once_where_the_build_has_opc_ua() {
    let folder = tempfile::tempdir().unwrap();
    let pki = folder.path().join("pki");
    let make =
        || inputs(&["certificate", "--out", pki.to_str().unwrap(), "--host", "node-7.plant"]);
    let out = make();
    if !cfg!(feature = "opcua") {
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success() && said.contains("feature opcua"), "{said}");
        return;
    }
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8(out.stdout).unwrap().contains("own/cert.der is ours"));
    use std::os::unix::fs::PermissionsExt as _;
    let key = std::fs::metadata(pki.join("private/private.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o077, 0, "the key is ours alone");
    assert!(pki.join("trusted").is_dir() && pki.join("own/cert.der").is_file());
    let again = make();
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && said.contains("is there already"), "{said}");
}
