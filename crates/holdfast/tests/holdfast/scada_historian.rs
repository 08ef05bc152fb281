//! `holdfast scada alarms` and `holdfast scada historian replay`, on the historian's database.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::{Command, Output};

use testkit::Database;

const ALARM: &str = "PLANT01.AREA02.UNIT_05.HIGH_TEMP";

struct Station {
    database: Database,
    config: tempfile::NamedTempFile,
}

impl Station {
    /// A historian with one active alarm and one stored offset.
    async fn new() -> Station {
        let database = Database::empty("scada_command").await.unwrap();
        scada::migrate_historian(&pg::Options::new(database.url())).await.unwrap();
        let config = tempfile::NamedTempFile::new().unwrap();
        let text = format!("[historian]\nbus = \"inline\"\ndatabase.url = {:?}\n", database.url());
        std::fs::write(config.path(), text).unwrap();
        let fill = "INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit, last_raised_at)
                VALUES ('PLANT01', 'AREA02', 'UNIT_05', 'HIGH_TEMP', 'active_unacknowledged', 'HIGH', 330, '°C', now()),
                       ('PLANT01', 'AREA02', 'UNIT_05', 'HIGH_FLOW', 'normal', 'MEDIUM', 1, 'm³/h', NULL);
            INSERT INTO bus_offsets (consumer_group, topic, partition, next_offset)
                VALUES ('scada-historian', 'scada.l2.alarms', 3, 12345)";
        database.connect().await.unwrap().batch_execute(fill).await.unwrap();
        Station { database, config }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("scada").args(arguments).arg("--config").arg(self.config.path());
        command.output().unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn refuses(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(!out.status.success(), "{arguments:?}");
        String::from_utf8(out.stderr).unwrap()
    }

    async fn number(&self, query: &str) -> i64 {
        self.database.connect().await.unwrap().query_one(query, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn alarms_are_seen_acknowledged_and_shelved_on_record() {
    let station = Station::new().await;
    let list = station.says(&["alarms", "list"]);
    assert!(list.contains(ALARM) && !list.contains("HIGH_FLOW"), "{list}");
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&station.says(&["alarms", "list", "--all", "--json"])).unwrap();
    assert_eq!(all.len(), 2);
    assert!(station.says(&["alarms", "ack", ALARM]).contains("active, acknowledged"));
    let refused = station.refuses(&["alarms", "ack", ALARM]);
    assert!(
        refused.contains("not allowed") && refused.contains("active_acknowledged"),
        "{refused}"
    );
    let shelf =
        ["alarms", "shelve", ALARM, "--minutes", "30", "--reason", "sensor is being replaced"];
    assert!(station.says(&shelf).contains("shelved until"));
    assert!(
        station
            .refuses(&["alarms", "shelve", ALARM, "--minutes", "99999", "--reason", "x"])
            .contains("longest_shelf")
    );
    let unshelved: serde_json::Value =
        serde_json::from_str(&station.says(&["alarms", "unshelve", ALARM, "--json"])).unwrap();
    assert_eq!(unshelved["state"], "active_acknowledged");
    assert_eq!(unshelved["shelved_until"], serde_json::Value::Null);
    assert!(
        station.refuses(&["alarms", "ack", "PLANT01.HIGH_TEMP"]).contains("PLANT.AREA.UNIT.TAG")
    );
    assert!(station.refuses(&["alarms", "ack", "P.A.U.T"]).contains("there is no alarm"));
    let recorded =
        "SELECT count(*) FROM operator_audit WHERE actor_kind = 'user' AND action LIKE 'alarm.%'";
    assert_eq!(station.number(recorded).await, 3);
}

#[tokio::test]
async fn a_replay_sets_offsets_back_on_record() {
    let station = Station::new().await;
    let replay = |more: &[&'static str]| [&["historian", "replay", "--topic"], more].concat();
    let done = station.says(&replay(&["scada.l2.alarms", "--offset", "45"]));
    assert!(done.contains("12,345") && done.contains("45"), "{done}");
    assert_eq!(station.number("SELECT next_offset FROM bus_offsets").await, 45);
    assert!(
        station.says(&replay(&["scada.l2.alarms", "--from", "2h"])).contains("nothing was changed")
    );
    assert!(
        station
            .refuses(&replay(&["scada.l2.nothing", "--offset", "0"]))
            .contains("scada.l2.alarms")
    );
    assert!(station.refuses(&replay(&["scada.l2.alarms"])).contains("--offset"));
    assert!(station.refuses(&["historian", "run"]).contains("name a broker"));
    assert_eq!(
        station
            .number("SELECT count(*) FROM operator_audit WHERE action = 'historian.replay'")
            .await,
        2
    );
}
