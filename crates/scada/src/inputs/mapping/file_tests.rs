//! Mapping files that are read, and every refusal by its name.

use std::path::Path;

use super::*;

const EXAMPLE: &str = include_str!("../../../../../docs/examples/inputs.toml");

fn parsed(text: &str) -> Result<Mapping, String> {
    read(Source::new(Path::new("inputs.toml"), text.to_owned())).map_err(|error| error.to_string())
}

fn modbus_only() -> &'static str {
    EXAMPLE.split("[[opcua]]").next().unwrap()
}

#[test]
fn the_example_is_read() {
    let mapping = parsed(modbus_only()).unwrap();
    let connection = &mapping.connections[0];
    assert_eq!((connection.name.as_str(), connection.points.len()), ("pump skid", 2));
    assert_eq!(connection.timeout, Duration::from_secs(2));
    assert_eq!(connection.place(0), "holding 100-101");
    assert_eq!(connection.place(1), "input 8");
    let Endpoint::Modbus(modbus) = &connection.endpoint else { panic!("{connection:?}") };
    assert_eq!(modbus.registers[0].word_order, WordOrder::LowFirst);
    let point = &connection.points[1];
    assert_eq!((point.scale, point.offset, point.high), (0.01, 0.0, Some(30.0)));
    assert_eq!(point.asset.unit.as_str(), "UNIT_07");
    let both = parsed(EXAMPLE);
    if cfg!(feature = "opcua") {
        assert_eq!(both.unwrap().connections[1].points[0].asset.unit.as_str(), "UNIT_08");
    } else {
        assert!(both.unwrap_err().contains("build with the feature opcua"));
    }
}

#[test]
fn every_problem_names_entry_key_value_and_what_would_be_right() {
    let cases = [
        (
            "id = 7",
            "id = 0",
            "[node] id (inputs.toml:4): is 0: expected a whole number from 1 to 1000",
        ),
        (
            "\"PLANT01\"",
            "\"plant\"",
            "[node] plant (inputs.toml:4): is \"plant\": expected 1 to 64",
        ),
        (
            ":502",
            "",
            "modbus \"pump skid\" address (inputs.toml:10): is \"192.168.10.21\": expected host:port",
        ),
        (
            "unit_id = 1",
            "unit_id = 256",
            "modbus \"pump skid\" unit_id (inputs.toml:10): is 256: expected a whole number from 0 to 255",
        ),
        (
            "every = \"1s\"",
            "every = \"1\"",
            "modbus \"pump skid\" every (inputs.toml:10): is \"1\": expected a time span like",
        ),
        ("every = \"1s\"", "every = \"2h\"", "is \"2h\": expected a time span from 10ms to 3600s"),
        (
            "register = 100",
            "register = 65535",
            "tag \"FLOW_RATE\" register (inputs.toml:17): is 65535: expected a whole number from 0 to 65534",
        ),
        (
            "\"f32\"",
            "\"float\"",
            "tag \"FLOW_RATE\" type (inputs.toml:17): is \"float\": expected one of u16, i16, u32, i32, f32, f64",
        ),
        (
            "low_first",
            "little",
            "tag \"FLOW_RATE\" word_order (inputs.toml:17): is \"little\": expected one of high_first, low_first",
        ),
        (
            "\"input\"",
            "\"bits\"",
            "tag \"PRESSURE\" table (inputs.toml:27): is \"bits\": expected one of holding, input, coil, discrete",
        ),
        (
            "scale = 0.01",
            "scale = 0",
            "tag \"PRESSURE\" scale (inputs.toml:27): is 0: expected a finite number that is not 0",
        ),
        (
            "dead_band = 0.2",
            "dead_band = -1",
            "tag \"FLOW_RATE\" dead_band (inputs.toml:17): is -1: expected",
        ),
        (
            "high = 120",
            "high = -5",
            "tag \"FLOW_RATE\" low (inputs.toml:17): and high are no range",
        ),
        (
            "\"PRESSURE\"",
            "\"FLOW_RATE\"",
            "tag \"FLOW_RATE\" tag (inputs.toml:27): is there twice as PLANT01.AREA01.UNIT_07.FLOW_RATE",
        ),
        (
            "\"PRESSURE\"",
            "\"pressure\"",
            "tag \"pressure\" tag (inputs.toml:27): is \"pressure\": expected 1 to 128",
        ),
        // What has another form than expected.
        (
            "scale = 0.01",
            "scale = \"x\"",
            "[[modbus.tag]] scale (inputs.toml:32): invalid type: string \"x\", expected f64",
        ),
        (
            "scale = 0.01",
            "scal = 1",
            "scal (inputs.toml:32): unknown field `scal`, expected one of `tag`",
        ),
        ("register = 8", "", "[[modbus.tag]] (inputs.toml:27): missing field `register`"),
    ];
    for (from, to, named) in cases {
        assert!(modbus_only().contains(from), "{from}");
        let problem = parsed(&modbus_only().replacen(from, to, 1)).expect_err(named);
        assert!(problem.contains(named), "{from} -> {to}\n{problem}");
    }
}

#[test]
fn problems_come_together_and_nothing_to_read_is_one() {
    let text = modbus_only().replace("\"f32\"", "\"x\"").replace("id = 7", "id = 0");
    assert_eq!(
        parsed(&text).unwrap_err().lines().count(),
        2,
        "nothing else can be told without a node"
    );
    let text = modbus_only().replace("\"f32\"", "\"x\"").replace("\"u16\"", "\"y\"");
    assert_eq!(parsed(&text).unwrap_err().lines().count(), 3);
    let nothing = parsed(EXAMPLE.split("[[modbus]]").next().unwrap()).unwrap_err();
    assert!(nothing.contains("expected 1 to 200 of [[modbus]] and [[opcua]]"), "{nothing}");
    let twice = format!("{}\n[[modbus]]\nname = \"pump skid\"\naddress = \"h:1\"\n", modbus_only());
    let problem = parsed(&twice).unwrap_err();
    assert!(problem.contains("name") && problem.contains("is there twice"), "{problem}");
    assert!(problem.contains("are 0: expected 1 to 2000 of [[modbus.tag]]"), "{problem}");
}

#[test]
fn a_bit_needs_no_type_and_has_no_other() {
    let bit = modbus_only().replace("table = \"input\"", "table = \"coil\"");
    let problem = parsed(&bit).unwrap_err();
    assert!(problem.contains("is \"u16\": expected one of bit"), "{problem}");
    let mapping = parsed(&bit.replace("type = \"u16\"\n", "")).unwrap();
    assert_eq!(mapping.connections[0].place(1), "coil 8");
    let problem = parsed(&modbus_only().replacen("type = \"f32\"\n", "", 1)).unwrap_err();
    assert!(problem.contains("type") && problem.contains("is missing: expected u16"), "{problem}");
}

#[cfg(feature = "opcua")]
#[test]
fn opcua_has_its_own_problems() {
    let cases = [
        (
            "every = \"2s\"",
            "security = \"sign\"",
            "opcua \"kiln\" pki_folder (inputs.toml:38): is missing: expected a folder",
        ),
        (
            "every = \"2s\"",
            "pki_folder = \"pki\"",
            "opcua \"kiln\" security (inputs.toml:38): is none: expected sign or",
        ),
        (
            "every = \"2s\"",
            "every = \"2s\"\nsubscribe = \"3s\"",
            "opcua \"kiln\" subscribe (inputs.toml:38)",
        ),
        (
            "opc.tcp://192",
            "http://192",
            "opcua \"kiln\" endpoint (inputs.toml:38): is \"http://192",
        ),
        (
            "ns=2;s=Kiln.Temperature",
            "Kiln",
            "tag \"TEMPERATURE\" node (inputs.toml:44): is \"Kiln\": expected a node id",
        ),
        (
            "every = \"2s\"",
            "user = \"u\"",
            "opcua \"kiln\" password_file (inputs.toml:38): is missing",
        ),
    ];
    for (from, to, named) in cases {
        let problem = parsed(&EXAMPLE.replacen(from, to, 1)).expect_err(named);
        assert!(problem.contains(named), "{from} -> {to}\n{problem}");
    }
}
