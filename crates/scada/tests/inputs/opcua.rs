//! OPC UA against asyncua.

use event::QualityCode::{Bad, Good, Uncertain};
use jiff::{SignedDuration, Timestamp};
use scada::inputs::{Probe, make_certificate};

use crate::simulator::{Reading, Simulator, mapping};

const TAGS: &str = r#"
[[opcua.tag]]
tag = "TEMPERATURE"
node = "ns=2;s=Kiln.Temperature"
unit = "°C"
scale = 2
offset = 1
dead_band = 1
[[opcua.tag]]
tag = "COUNT"
node = "ns=2;s=Kiln.Count"
[[opcua.tag]]
tag = "RUNNING"
node = "ns=2;s=Kiln.Running"
[[opcua.tag]]
tag = "TEXT"
node = "ns=2;s=Kiln.Text"
[[opcua.tag]]
tag = "ABSENT"
node = "ns=2;s=Nothing"
"#;

fn text(port: u16, more: &str) -> String {
    format!(
        "[[opcua]]\nname = \"kiln\"\nendpoint = \"opc.tcp://127.0.0.1:{port}/\"\nevery = \"20ms\"\n\
         timeout = \"5s\"\nmax_silence = \"1d\"\n{more}{TAGS}"
    )
}

fn values(temperature: f64, status: &str, source: Option<Timestamp>) -> String {
    let source = source.map(|time| time.to_string().replace('Z', "+00:00"));
    serde_json::json!({
        "Kiln.Temperature": [temperature, status, source],
        "Kiln.Count": [-5, "Good", "2026-02-01T10:00:00+00:00"],
        "Kiln.Running": [true, "Good", null],
        "Kiln.Text": ["warm", "Good", null],
    })
    .to_string()
}

/// To the microsecond, as both ends can tell it.
fn a_minute_ago() -> Timestamp {
    let then = Timestamp::now() - SignedDuration::from_secs(60);
    Timestamp::from_microsecond(then.as_microsecond()).unwrap()
}

#[tokio::test]
async fn values_arrive_scaled_with_the_sources_time_and_quality() {
    let source = a_minute_ago();
    let simulator = Simulator::start("opcua.py", &values(100.25, "Good", Some(source))).await;
    let mut reading =
        Reading::start(mapping(simulator.folder.path(), &text(simulator.port, "")).unwrap());
    reading
        .until("every kind is read, and what is no number is BAD", |reading| {
            reading.is("TEMPERATURE", 201.5, Good)
                && reading.is("COUNT", -5.0, Good)
                && reading.is("RUNNING", 1.0, Good)
                && reading.is("TEXT", 0.0, Bad)
                && reading.is("ABSENT", 0.0, Bad)
        })
        .await;
    assert_eq!(reading.latest("TEMPERATURE").unwrap().timestamp, source);
    let before = (reading.count("TEMPERATURE"), reading.left_out("TEMPERATURE"));
    simulator.control(&values(100.7, "Good", Some(source + SignedDuration::from_secs(1))));
    reading.until("cycles pass", |reading| reading.left_out("TEMPERATURE") >= before.1 + 20).await;
    assert_eq!(reading.count("TEMPERATURE"), before.0, "202.4 is within the band");
    assert_eq!(reading.count("COUNT"), 1, "the same value of the same time is no news");

    let later = source + SignedDuration::from_secs(2);
    simulator.control(&values(110.0, "UncertainLastUsableValue", Some(later)));
    reading.until("uncertain", |reading| reading.is("TEMPERATURE", 221.0, Uncertain)).await;
    assert_eq!(reading.latest("TEMPERATURE").unwrap().timestamp, later);
    simulator.control(&values(120.0, "BadSensorFailure", None));
    reading.until("a sensor that failed", |reading| reading.is("TEMPERATURE", 221.0, Bad)).await;
    simulator.control(&values(130.0, "Good", None));
    reading.until("and is well again", |reading| reading.is("TEMPERATURE", 261.0, Good)).await;
    reading.end().await;
}

#[tokio::test]
async fn a_server_that_dies_makes_its_tags_bad_until_it_is_back() {
    let source = a_minute_ago();
    let mut simulator = Simulator::start("opcua.py", &values(100.0, "Good", Some(source))).await;
    let mut reading =
        Reading::start(mapping(simulator.folder.path(), &text(simulator.port, "")).unwrap());
    reading.until("read", |reading| reading.is("TEMPERATURE", 201.0, Good)).await;
    simulator.kill().await;
    reading
        .until("killed: BAD, with the last values", |reading| {
            reading.is("TEMPERATURE", 201.0, Bad) && reading.is("COUNT", -5.0, Bad)
        })
        .await;
    let lost = reading.latest("TEMPERATURE").unwrap().timestamp;
    simulator.restart().await;
    reading.until("back", |reading| reading.is("TEMPERATURE", 201.0, Good)).await;
    let back = reading.latest("TEMPERATURE").unwrap().timestamp;
    assert!(back > lost, "the source's time is before the outage: {back} {lost}");
    reading.end().await;
}

#[tokio::test]
async fn a_user_is_known_by_the_password_in_its_file() {
    let simulator = Simulator::start("opcua.py", &values(100.0, "Good", None)).await;
    let file = simulator.folder.path().join("password");
    let user = format!("user = \"operator\"\npassword_file = {:?}\n", file.display().to_string());
    let mapping = mapping(simulator.folder.path(), &text(simulator.port, &user)).unwrap();
    std::fs::write(&file, "wrong\n").unwrap();
    let mut probe = Probe::new(mapping);
    let refused = probe.read().await;
    assert!(refused.iter().all(|one| one.quality == Bad), "{refused:?}");
    std::fs::write(&file, "canary-password\n").unwrap();
    let all = probe.read().await;
    assert_eq!((all[0].value, all[0].place.as_str()), (Some(201.0), "ns=2;s=Kiln.Temperature"));
    assert!(all[4].trouble.as_deref().unwrap().contains("BadNodeIdUnknown"), "{:?}", all[4]);
    probe.close().await;
    let shown = format!("{refused:?}{all:?}");
    assert!(!shown.contains("canary-password") && !shown.contains("wrong"), "{shown}");
}

#[tokio::test]
async fn a_subscription_tells_every_change_and_nothing_else() {
    let source = a_minute_ago();
    let mut simulator = Simulator::start("opcua.py", &values(100.0, "Good", Some(source))).await;
    let slow = text(simulator.port, "subscribe = \"20ms\"\n");
    let slow = slow.replace("every = \"20ms\"", "every = \"400ms\"");
    let mut reading = Reading::start(mapping(simulator.folder.path(), &slow).unwrap());
    reading
        .until("every kind is told, and what is no number is BAD", |reading| {
            reading.is("TEMPERATURE", 201.0, Good)
                && reading.is("COUNT", -5.0, Good)
                && reading.is("RUNNING", 1.0, Good)
                && reading.is("TEXT", 0.0, Bad)
                && reading.is("ABSENT", 0.0, Bad)
        })
        .await;
    assert_eq!(reading.latest("TEMPERATURE").unwrap().timestamp, source);
    // All within one cycle of ours.
    let time = |n: i64| (source + SignedDuration::from_secs(n)).to_string().replace('Z', "+00:00");
    let many: Vec<_> = (1..=12).map(|n| (100 + 10 * n, "Good", time(n))).collect();
    simulator.control(&serde_json::json!({ "Kiln.Temperature": many }).to_string());
    reading.until("the last one", |reading| reading.is("TEMPERATURE", 441.0, Good)).await;
    let told: Vec<f64> = reading
        .all
        .iter()
        .filter(|one| one.tag.as_str() == "TEMPERATURE")
        .map(|one| one.value)
        .collect();
    let expected: Vec<f64> = (0..=12).map(|n| 201.0 + 20.0 * f64::from(n)).collect();
    assert_eq!(told, expected, "each of them, in their order");
    assert_eq!(reading.count("COUNT"), 1, "what does not change is no reading");
    assert_eq!(reading.left_out("COUNT"), 0, "and is not counted as one");

    simulator.control(&values(170.0, "Good", None));
    reading.until("another one", |reading| reading.is("TEMPERATURE", 341.0, Good)).await;
    simulator.kill().await;
    reading.until("killed: BAD", |reading| reading.is("TEMPERATURE", 341.0, Bad)).await;
    simulator.restart().await;
    let back = |reading: &Reading| {
        reading.is("TEMPERATURE", 341.0, Good) && reading.is("COUNT", -5.0, Good)
    };
    reading.until("back", back).await;
    simulator.process.stop();
    reading.until("hung: BAD", |reading| reading.is("COUNT", -5.0, Bad)).await;
    simulator.process.cont();
    reading.until("back", back).await;
    reading.end().await;
}

#[tokio::test]
async fn only_a_server_that_is_trusted_and_trusts_us_is_read() {
    let pki = tempfile::TempDir::new().unwrap();
    let folder = pki.path().join("pki");
    make_certificate(&folder, &["localhost".to_owned()], 30).unwrap();
    let again = make_certificate(&folder, &[], 30).unwrap_err();
    assert!(again.to_string().contains("is there already"), "{again}");
    let own = folder.join("own/cert.der");
    let (warm, client) = (values(100.0, "Good", None), [("client.der", own.as_path())]);
    let simulator = Simulator::start_with("opcua.py", &warm, &client).await;
    let file = simulator.folder.path().join("password");
    std::fs::write(&file, "canary-password\n").unwrap();
    let with = |security: &str, folder: &std::path::Path| {
        let more = format!(
            "security = \"{security}\"\npki_folder = {:?}\nuser = \"operator\"\npassword_file = {:?}\n",
            folder.display().to_string(),
            file.display().to_string()
        );
        mapping(simulator.folder.path(), &text(simulator.port, &more)).unwrap()
    };
    let troubles = async |mapping| {
        let mut probe = Probe::new(mapping);
        let all = probe.read().await;
        probe.close().await;
        all[0].trouble.clone().unwrap_or_default()
    };
    let plain = mapping(simulator.folder.path(), &text(simulator.port, "")).unwrap();
    let trouble = troubles(plain).await;
    assert!(trouble.contains("no endpoint with the security policy None"), "{trouble}");

    // Met for the first time, it is refused, and its certificate is there to be looked at.
    let trouble = troubles(with("sign_and_encrypt", &folder)).await;
    assert!(trouble.contains("/rejected to"), "{trouble}");
    let rejected: Vec<_> = std::fs::read_dir(folder.join("rejected")).unwrap().collect();
    let [Ok(met)] = &rejected[..] else { panic!("{rejected:?}") };
    let server = std::fs::read(simulator.folder.path().join("server.der")).unwrap();
    assert_eq!(std::fs::read(met.path()).unwrap(), server);
    std::fs::copy(met.path(), folder.join("trusted").join(met.file_name())).unwrap();
    std::fs::remove_file(met.path()).unwrap();
    for security in ["sign", "sign_and_encrypt"] {
        let mut probe = Probe::new(with(security, &folder));
        let all = probe.read().await;
        assert_eq!(all[0].value, Some(201.0), "{security}: {:?}", all[0].trouble);
        probe.close().await;
    }
    let mut reading = Reading::start(with("sign_and_encrypt", &folder));
    reading.until("read on and on", |reading| reading.is("TEMPERATURE", 201.0, Good)).await;
    reading.end().await;

    // Another certificate of ours is one that the server does not know.
    let other = pki.path().join("other");
    make_certificate(&other, &[], 30).unwrap();
    let name = std::fs::read_dir(folder.join("trusted")).unwrap().next().unwrap().unwrap();
    std::fs::copy(name.path(), other.join("trusted").join(name.file_name())).unwrap();
    let trouble = troubles(with("sign_and_encrypt", &other)).await;
    assert!(!trouble.is_empty() && !trouble.contains("canary-password"), "{trouble}");
    let none = troubles(with("sign", &pki.path().join("none"))).await;
    assert!(none.contains("scada inputs certificate"), "{none}");
}
