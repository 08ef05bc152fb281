#!/usr/bin/env python3
"""An example sampler: reads a thermometer once a second and hands the reading to the node.

    python3 thermometer.py --socket /run/holdfast/sampler.sock
    python3 thermometer.py --socket /run/holdfast/sampler.sock --file /sys/class/thermal/thermal_zone0/temp

Without --file it invents readings around 26 degrees.
"""

import argparse
import random
import sys
import time

from holdfast_sampler import Disconnected, Sample, Sampler, SamplerError


def read_celsius(path: str) -> float:
    """The kernel gives thousandths of a degree."""
    if not path:
        return round(random.gauss(26.0, 0.3), 2)
    with open(path, encoding="ascii") as file:
        return int(file.read()) / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", default="/run/holdfast/sampler.sock")
    parser.add_argument("--file", default="", help="a kernel thermal zone to read")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between readings")
    parser.add_argument("--count", type=int, default=0, help="stop after so many readings (0: never)")
    options = parser.parse_args()

    taken = 0
    with Sampler(options.socket) as node:
        while options.count == 0 or taken < options.count:
            reading = Sample("temperature", read_celsius(options.file), "C")
            while True:
                try:
                    receipt = node.send(reading)
                    break
                except Disconnected as error:
                    # The node restarts; the same reading, with the same event id, is sent again.
                    print(f"waiting for the node: {error}", file=sys.stderr)
                except SamplerError as error:
                    print(f"refused: {error}", file=sys.stderr)
                    return 1
            print(f"seq {receipt.seq}: {reading.metric_value} {reading.unit}")
            taken += 1
            if options.count == 0 or taken < options.count:
                time.sleep(options.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
