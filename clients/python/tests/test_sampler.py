"""The client against the real node binary (HOLDFAST_NODE_BIN), with no broker: a sampler needs no uplink."""

import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import datetime, timezone
from uuid import UUID

from holdfast_sampler import Disconnected, Event, Invalid, Receipt, Rejected, Sample, Sampler, uuid7

ROOT = pathlib.Path(__file__).resolve().parents[3]
NODE = os.environ.get("HOLDFAST_NODE_BIN", str(ROOT / "target/debug/holdfast-node"))

CONFIG = """
[node]
node_id = "py-test"
tenant_id = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002"
farm_id = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0003"
barn_id = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0004"
device_id = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0005"
socket = "{folder}/sampler.sock"

[node.spool]
dir = "{folder}/spool"

[node.mqtt]
address = "mqtt://127.0.0.1:1"

[node.clock]
mode = "assume-set"
"""


class RealNode(unittest.TestCase):
    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)
        (self.folder / "node.toml").write_text(CONFIG.format(folder=self.folder))
        self.socket = str(self.folder / "sampler.sock")
        self.node = self.start()
        self.addCleanup(self.stop)

    def start(self) -> "subprocess.Popen[bytes]":
        log = open(self.folder / "node.log", "ab")
        self.addCleanup(log.close)
        return subprocess.Popen(
            [NODE, "run", "--config", str(self.folder / "node.toml")], stdout=log, stderr=log
        )

    def stop(self) -> None:
        if self.node.poll() is None:
            self.node.kill()
        self.node.wait()

    def sampler(self) -> Sampler:
        sampler = Sampler(self.socket, timeout=20.0)
        self.addCleanup(sampler.close)
        return sampler

    def test_sample_and_event_get_consecutive_receipts(self) -> None:
        node = self.sampler()
        first = node.sample("temperature", 26.4, "C")
        second = node.event("alarm.raised", {"code": "NH3_HIGH", "severity": "HIGH"})
        self.assertEqual((first.seq, second.seq), (1, 2))
        self.assertEqual(node.status()["head"], 2)

    def test_the_event_id_of_the_record_comes_back(self) -> None:
        reading = Sample("humidity", 61.0, "%", occurred_at=datetime.now(timezone.utc), quality="GOOD")
        self.assertEqual(self.sampler().send(reading).event_id, reading.event_id)

    def test_a_bad_record_names_its_field_and_its_neighbours_go_through(self) -> None:
        records = [
            Sample("temperature", 1.0, "C"),
            Sample("Temp erature", 1.0, "C"),
            Sample("temperature", math.nan, "C"),
            Event("alarm", {}),
            Sample("temperature", 2.0, "C"),
        ]
        outcomes = list(self.sampler().send_many(records))
        self.assertEqual([type(o) for o in outcomes], [Receipt, Rejected, Rejected, Rejected, Receipt])
        self.assertEqual([o.seq for o in outcomes if isinstance(o, Receipt)], [1, 2])
        errors = [o.error for o in outcomes if isinstance(o, Rejected)]
        self.assertTrue(all(isinstance(e, Invalid) for e in errors))
        self.assertEqual(errors[0].field, "metric_type")
        self.assertEqual(errors[2].field, "event_type")

    def test_many_records_are_pipelined(self) -> None:
        outcomes = list(self.sampler().send_many(Sample("weight", float(i), "kg") for i in range(5000)))
        self.assertEqual([o.seq for o in outcomes], list(range(1, 5001)))

    def test_a_killed_node_loses_nothing_that_had_a_receipt(self) -> None:
        node = self.sampler()
        before = [node.sample("temperature", float(i), "C").seq for i in range(20)]
        self.node.send_signal(signal.SIGKILL)
        self.node.wait()
        self.node = self.start()
        after = node.sample("temperature", 99.0, "C").seq  # reconnects by itself
        self.assertEqual(before, list(range(1, 21)))
        self.assertEqual(after, 21)

    def test_no_node_is_a_clear_error(self) -> None:
        with self.assertRaises(Disconnected) as caught:
            Sampler(str(self.folder / "nothing.sock"), timeout=0.2).sample("temperature", 1.0, "C")
        self.assertIn("nothing.sock", str(caught.exception))

    def test_the_example_runs(self) -> None:
        self.sampler().sample("temperature", 1.0, "C")  # the node is up
        example = pathlib.Path(__file__).resolve().parents[1] / "examples/thermometer.py"
        out = subprocess.run(
            [sys.executable, str(example), "--socket", self.socket, "--count", "3", "--every", "0.01"],
            capture_output=True, text=True, check=True, timeout=60,
        )
        self.assertEqual(len(out.stdout.splitlines()), 3)


class Ids(unittest.TestCase):
    def test_uuid7_is_version_7_and_ordered_by_time(self) -> None:
        ids = []
        for _ in range(3):
            ids.append(uuid7())
            until = time.time_ns() // 1_000_000 + 2
            while time.time_ns() // 1_000_000 < until:
                pass
        self.assertTrue(all(isinstance(i, UUID) and i.version == 7 for i in ids))
        self.assertEqual(ids, sorted(ids))

    def test_a_naive_time_is_refused(self) -> None:
        with self.assertRaises(Invalid) as caught:
            Sample("temperature", 1.0, "C", occurred_at=datetime(2026, 1, 1)).request()
        self.assertEqual(caught.exception.field, "occurred_at")


if __name__ == "__main__":
    unittest.main()
