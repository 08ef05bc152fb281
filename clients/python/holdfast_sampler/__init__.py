"""Hand readings and events to the Holdfast node on this machine.

>>> from holdfast_sampler import Sampler
>>> with Sampler("/run/holdfast/sampler.sock") as node:          # doctest: +SKIP
...     receipt = node.sample("temperature", 26.4, "C")
...     print(receipt.seq)

When a call returns a :class:`Receipt`, the record is on the disk of this machine: it survives a power cut and
will reach the edge, however long the link is down. When a call raises, the exception says what to do.
"""

from ._client import (
    Disconnected,
    Invalid,
    NotDurable,
    Receipt,
    Rejected,
    Sample,
    Event,
    Sampler,
    SamplerError,
    SpoolFull,
)
from ._ids import uuid7

__all__ = [
    "Disconnected",
    "Event",
    "Invalid",
    "NotDurable",
    "Receipt",
    "Rejected",
    "Sample",
    "Sampler",
    "SamplerError",
    "SpoolFull",
    "uuid7",
]
