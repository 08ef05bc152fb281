//! Modbus TCP against pymodbus.

use event::QualityCode::{Bad, Good, Oor};
use scada::inputs::Probe;
use tokio_modbus::Slave;
use tokio_modbus::client::{Context, Writer, rtu, tcp};

use crate::simulator::{Reading, Simulator, mapping};

const TAGS: &str = r#"
[[modbus.tag]]
tag = "FLOW_RATE"
register = 100
type = "f32"
word_order = "low_first"
unit = "m³/h"
low = 0
high = 120
[[modbus.tag]]
tag = "LEVEL"
register = 102
type = "i16"
scale = 0.1
offset = 1
dead_band = 0.5
[[modbus.tag]]
tag = "ENERGY"
register = 104
type = "f64"
[[modbus.tag]]
tag = "TOTAL"
register = 108
type = "u32"
[[modbus.tag]]
tag = "PRESSURE"
table = "input"
register = 8
type = "u16"
scale = 0.01
[[modbus.tag]]
tag = "LAST"
register = 119
type = "u16"
[[modbus.tag]]
tag = "ABSENT"
register = 120
type = "u16"
"#;

fn text(port: u16) -> String {
    format!(
        "[[modbus]]\nname = \"skid\"\naddress = \"127.0.0.1:{port}\"\nevery = \"20ms\"\ntimeout = \"500ms\"\n\
         max_silence = \"1d\"\n{TAGS}"
    )
}

async fn writer(simulator: &Simulator) -> Context {
    tcp::connect_slave(([127, 0, 0, 1], simulator.port).into(), Slave(1)).await.unwrap()
}

async fn write(writer: &mut Context, first: u16, words: &[u16]) {
    writer.write_multiple_registers(first, words).await.unwrap().unwrap();
}

fn low_first(value: f32) -> [u16; 2] {
    let bits = value.to_bits();
    [(bits & 0xffff) as u16, (bits >> 16) as u16]
}

#[tokio::test]
async fn values_arrive_scaled_and_the_dead_band_is_kept() {
    let simulator = Simulator::start("modbus.py", "").await;
    let mut writer = writer(&simulator).await;
    write(&mut writer, 100, &low_first(50.5)).await;
    write(&mut writer, 102, &[(-50i16).cast_unsigned()]).await;
    write(&mut writer, 104, &[0xc000, 0, 0, 0]).await;
    write(&mut writer, 108, &[1, 2]).await;

    let mut reading =
        Reading::start(mapping(simulator.folder.path(), &text(simulator.port)).unwrap());
    reading
        .until("every type is read, and a register that is not there is BAD alone", |reading| {
            reading.is("FLOW_RATE", 50.5, Good)
                && reading.is("LEVEL", -4.0, Good)
                && reading.is("ENERGY", -2.0, Good)
                && reading.is("TOTAL", 65_538.0, Good)
                && reading.is("PRESSURE", 12.34, Good)
                && reading.is("LAST", 0.0, Good)
                && reading.is("ABSENT", 0.0, Bad)
        })
        .await;
    let flow = reading.latest("FLOW_RATE").unwrap();
    assert_eq!((flow.unit.as_str(), flow.node_id), ("m³/h", 7));
    assert_eq!(flow.partition_key(), "PLANT01.AREA01.UNIT_07.FLOW_RATE");

    write(&mut writer, 102, &[(-45i16).cast_unsigned()]).await;
    let before = (reading.count("LEVEL"), reading.left_out("LEVEL"));
    reading.until("cycles pass", |reading| reading.left_out("LEVEL") >= before.1 + 10).await;
    assert_eq!(reading.count("LEVEL"), before.0, "-3.5 is within the band");
    write(&mut writer, 102, &[(-44i16).cast_unsigned()]).await;
    reading.until("beyond the band", |reading| reading.is("LEVEL", -3.4, Good)).await;
    assert_eq!(reading.count("ABSENT"), 1, "BAD is told once");

    write(&mut writer, 100, &low_first(121.0)).await;
    reading.until("beyond the range", |reading| reading.is("FLOW_RATE", 121.0, Oor)).await;
    write(&mut writer, 100, &low_first(f32::NAN)).await;
    reading.until("not a number", |reading| reading.is("FLOW_RATE", 121.0, Bad)).await;
    reading.end().await;
}

const BITS: &str = r#"
[[modbus.tag]]
tag = "PUMP"
table = "coil"
register = 5
[[modbus.tag]]
tag = "VALVE"
table = "coil"
register = 6
type = "bit"
scale = 100
[[modbus.tag]]
tag = "DOOR"
table = "discrete"
register = 3
[[modbus.tag]]
tag = "LIGHT"
table = "discrete"
register = 15
[[modbus.tag]]
tag = "NOWHERE"
table = "discrete"
register = 16
"#;

#[tokio::test]
async fn coils_and_discrete_inputs_are_one_or_nought() {
    let simulator = Simulator::start("modbus.py", "").await;
    let mut writer = writer(&simulator).await;
    writer.write_single_coil(5, true).await.unwrap().unwrap();
    let text = format!("{}{BITS}", text(simulator.port));
    let mut reading = Reading::start(mapping(simulator.folder.path(), &text).unwrap());
    reading
        .until("bits beside registers", |reading| {
            reading.is("PUMP", 1.0, Good)
                && reading.is("VALVE", 0.0, Good)
                && reading.is("DOOR", 1.0, Good)
                && reading.is("LIGHT", 0.0, Good)
                && reading.is("NOWHERE", 0.0, Bad)
                && reading.is("PRESSURE", 12.34, Good)
        })
        .await;
    writer.write_multiple_coils(5, &[false, true]).await.unwrap().unwrap();
    reading
        .until("switched", |reading| {
            reading.is("PUMP", 0.0, Good) && reading.is("VALVE", 100.0, Good)
        })
        .await;
    reading.end().await;
}

#[tokio::test]
async fn frames_of_a_serial_line_are_read_over_tcp() {
    let mut simulator = Simulator::start("modbus.py", "rtu").await;
    let address = ("127.0.0.1", simulator.port);
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut writer = rtu::attach_slave(stream, Slave(1));
    write(&mut writer, 100, &low_first(50.5)).await;
    let framed = text(simulator.port).replace("every =", "framing = \"rtu_over_tcp\"\nevery =");
    let mut reading = Reading::start(mapping(simulator.folder.path(), &framed).unwrap());
    let read = |reading: &Reading| {
        reading.is("FLOW_RATE", 50.5, Good)
            && reading.is("PRESSURE", 12.34, Good)
            && reading.is("ABSENT", 0.0, Bad)
    };
    reading.until("read", read).await;
    simulator.kill().await;
    reading.until("killed: BAD", |reading| reading.is("FLOW_RATE", 50.5, Bad)).await;
    simulator.restart().await;
    reading.until("back", |reading| reading.is("FLOW_RATE", 0.0, Good)).await;
    reading.end().await;
}

#[tokio::test]
async fn a_server_that_dies_or_hangs_makes_its_tags_bad_until_it_is_back() {
    let mut simulator = Simulator::start("modbus.py", "").await;
    write(&mut writer(&simulator).await, 100, &low_first(50.5)).await;
    let mut reading =
        Reading::start(mapping(simulator.folder.path(), &text(simulator.port)).unwrap());
    reading.until("read", |reading| reading.is("FLOW_RATE", 50.5, Good)).await;

    simulator.kill().await;
    let all_bad = |reading: &Reading| {
        reading.is("FLOW_RATE", 50.5, Bad) && reading.is("PRESSURE", 12.34, Bad)
    };
    reading.until("killed: BAD, with the last values", all_bad).await;
    simulator.restart().await;
    reading.until("back, with what it has now", |reading| reading.is("FLOW_RATE", 0.0, Good)).await;

    write(&mut writer(&simulator).await, 100, &low_first(7.0)).await;
    reading.until("read", |reading| reading.is("FLOW_RATE", 7.0, Good)).await;
    simulator.process.stop();
    reading.until("hung: BAD", |reading| reading.is("FLOW_RATE", 7.0, Bad)).await;
    simulator.process.cont();
    reading.until("back", |reading| reading.is("FLOW_RATE", 7.0, Good)).await;
    reading.end().await;
}

#[tokio::test]
async fn a_device_that_is_not_there_at_the_start_is_bad_and_a_stop_does_not_wait_for_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let port = testkit::rig::free_port().unwrap();
    let mut reading = Reading::start(mapping(folder.path(), &text(port)).unwrap());
    reading.until("BAD", |reading| reading.is("FLOW_RATE", 0.0, Bad)).await;
    reading.end().await;
}

#[tokio::test]
async fn a_probe_shows_raw_values_scaled_values_and_troubles() {
    let mut simulator = Simulator::start("modbus.py", "").await;
    let mut probe = Probe::new(mapping(simulator.folder.path(), &text(simulator.port)).unwrap());
    let all = probe.read().await;
    let of = |tag: &str| all.iter().find(|one| one.series.ends_with(tag)).unwrap();
    let pressure = of("PRESSURE");
    assert_eq!((pressure.raw, pressure.value, pressure.quality), (Some(1234.0), Some(12.34), Good));
    assert_eq!((pressure.place.as_str(), pressure.connection.as_str()), ("input 8", "skid"));
    let absent = of("ABSENT");
    assert_eq!((absent.value, absent.quality), (None, Bad));
    let trouble = absent.trouble.as_deref().unwrap();
    assert!(trouble.to_lowercase().contains("address"), "{trouble}");
    simulator.kill().await;
    assert!(probe.read().await.iter().all(|one| one.quality == Bad && one.trouble.is_some()));
    simulator.restart().await;
    assert!(probe.read().await.iter().any(|one| one.quality == Good));
    probe.close().await;
}

#[test]
fn a_file_that_cannot_work_is_refused_by_name() {
    let folder = tempfile::TempDir::new().unwrap();
    let wrong = text(502).replace("\"f32\"", "\"float\"").replace("scale = 0.1\n", "scale = 0\n");
    let error = mapping(folder.path(), &wrong).unwrap_err().to_string();
    for named in [
        "modbus \"skid\" tag \"FLOW_RATE\" type",
        "is \"float\": expected one of u16, i16, u32, i32, f32, f64",
        "modbus \"skid\" tag \"LEVEL\" scale",
        "inputs.toml:",
    ] {
        assert!(error.contains(named), "{named}\n{error}");
    }
}
