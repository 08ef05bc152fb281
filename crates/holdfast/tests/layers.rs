//! Keeps the arrows between the crates as `docs/ARCHITECTURE.md` draws them.
//!
//! Two kinds of rule: which of our crates a crate may depend on directly, and which foreign crates must not be
//! reachable from it at all. Development dependencies do not count: tests may look everywhere.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each of our crates may know of ours. A crate that is missing here fails the test: draw its arrow first.
const MAY_USE: &[(&str, &[&str])] = &[
    ("event", &[]),
    ("spool", &[]),
    ("settings", &[]),
    ("trust", &[]),
    ("mqtt", &["trust"]),
    ("pg", &["trust"]),
    ("rig", &[]),
    ("api", &["event", "settings", "pg", "trust"]),
    ("lease", &["pg"]),
    ("bus", &["trust"]),
    ("objects", &[]),
    ("node", &["event", "spool", "settings", "mqtt", "trust"]),
    ("edge", &["api", "event", "settings", "mqtt", "pg", "lease", "objects"]),
    ("cloud", &["api", "event", "settings", "pg", "lease", "bus", "objects"]),
    ("scada", &["api", "event", "spool", "settings", "pg", "lease", "bus"]),
    ("schedule", &["api", "settings", "pg", "lease", "objects"]),
    ("console", &["api", "event", "settings", "pg"]),
    ("testkit", &["rig", "pg", "objects"]),
    (
        "holdfast",
        &[
            "api", "event", "settings", "mqtt", "pg", "rig", "node", "edge", "cloud", "bus",
            "objects", "scada", "schedule", "console",
        ],
    ),
    (
        "bench",
        &[
            "api", "bus", "cloud", "event", "lease", "spool", "settings", "mqtt", "pg", "rig",
            "node", "edge", "testkit", "objects", "scada", "schedule", "console",
        ],
    ),
];

/// Foreign crates that must not be reachable, however deep, and why.
const MUST_NOT_REACH: &[(&str, &[&str], &str)] = &[
    (
        "event",
        &["tokio", "tokio-postgres", "rumqttc-next", "reqwest"],
        "the core is pure: no I/O, no async, no SQL",
    ),
    (
        "spool",
        &["tokio", "serde_json", "rumqttc-next"],
        "the spool is synchronous and its records are opaque",
    ),
    (
        "node",
        &["tokio-postgres", "postgres-protocol", "rdkafka", "lapin", "axum"],
        "a field node is small: no Postgres, no Kafka",
    ),
    ("objects", &["tokio-postgres"], "the object store knows S3 and files, no tables"),
    (
        "rig",
        &["tokio-postgres", "rumqttc-next"],
        "the rig starts servers; it does not speak to them",
    ),
];

struct Graph {
    names: BTreeMap<String, String>,
    edges: BTreeMap<String, Vec<String>>,
    ours: BTreeSet<String>,
}

impl Graph {
    fn load() -> Self {
        // Only what is built for this machine: the others' dependencies were never downloaded.
        let host = Command::new("rustc").args(["--print", "host-tuple"]).output().unwrap();
        let host = String::from_utf8(host.stdout).unwrap();
        let out = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version",
                "1",
                // Not offline: what only the benchmarks need may not be here yet.
                "--locked",
                "--filter-platform",
                host.trim(),
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let meta: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
        let list = |v: &serde_json::Value| v.as_array().unwrap().clone();
        let names =
            list(&meta["packages"]).iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let ours = list(&meta["workspace_members"]).iter().map(text).collect();
        let edges = list(&meta["resolve"]["nodes"])
            .iter()
            .map(|node| {
                // A kind of null is a normal dependency; "dev" and "build" do not end up in the binary.
                let normal = |dep: &serde_json::Value| {
                    list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
                };
                let deps = list(&node["deps"]);
                let deps = deps.iter().filter(|dep| normal(dep)).map(|dep| text(&dep["pkg"]));
                (text(&node["id"]), deps.collect())
            })
            .collect();
        Self { names, edges, ours }
    }

    fn id(&self, name: &str) -> &String {
        self.ours
            .iter()
            .find(|id| self.names[*id] == name)
            .unwrap_or_else(|| panic!("no crate {name}"))
    }

    fn reachable(&self, name: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![self.id(name)];
        while let Some(id) = todo.pop() {
            for dep in &self.edges[id] {
                if seen.insert(dep) {
                    todo.push(dep);
                }
            }
        }
        seen.into_iter().map(|id| self.names[id].as_str()).collect()
    }
}

#[test]
fn arrows_between_our_crates_point_one_way() {
    let graph = Graph::load();
    let rules: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    for id in &graph.ours {
        let name = &graph.names[id];
        let allowed = rules
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crate {name} has no rule in MAY_USE"));
        for dep in graph.edges[id].iter().filter(|dep| graph.ours.contains(*dep)) {
            let dep = &graph.names[dep];
            assert!(allowed.contains(&dep.as_str()), "{name} must not depend on {dep}");
        }
    }
}

#[test]
fn cores_do_not_reach_what_they_must_not_know() {
    let graph = Graph::load();
    for (name, forbidden, why) in MUST_NOT_REACH {
        let reachable = graph.reachable(name);
        for dep in *forbidden {
            assert!(!reachable.contains(dep), "{name} reaches {dep}: {why}");
        }
    }
}
