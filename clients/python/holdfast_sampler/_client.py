"""The client of the sampler socket: one JSON object a line, one reply a line, in order."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Union
from uuid import UUID

from ._ids import uuid7

DEFAULT_SOCKET = "/run/holdfast/sampler.sock"

# How many requests may wait for their reply. More would let both sides block on full socket buffers.
WINDOW = 128

# Longest reply we accept; the node's replies are far shorter.
_MAX_REPLY_BYTES = 64 * 1024


class SamplerError(Exception):
    """Base of everything this package raises."""


class Invalid(SamplerError):
    """The request breaks a rule. Sending it again will not help; ``field`` names what to fix."""

    def __init__(self, message: str, field: Optional[str]) -> None:
        super().__init__(message)
        self.field = field


class SpoolFull(SamplerError):
    """The node's disk budget is used up and its policy is to push back. Try again later."""


class NotDurable(SamplerError):
    """The node could not make the record durable. It may or may not survive: try again with the same event id."""


class Disconnected(SamplerError):
    """The node could not be reached, or went away, within ``timeout``. Try again with the same event id."""


@dataclass(frozen=True)
class Receipt:
    """Proof that a record is durable on this machine."""

    seq: int
    event_id: UUID


@dataclass(frozen=True)
class Sample:
    """One reading. ``occurred_at`` must be aware of its time zone; without it the node takes its own clock."""

    metric_type: str
    metric_value: float
    unit: str
    device_id: Optional[UUID] = None
    occurred_at: Optional[datetime] = None
    quality: Optional[str] = None
    trace_id: Optional[str] = None
    event_id: UUID = field(default_factory=uuid7)

    def request(self) -> Dict[str, Any]:
        """The line that goes over the socket."""
        return _without_none(
            event_id=str(self.event_id),
            device_id=_text(self.device_id),
            metric_type=self.metric_type,
            metric_value=self.metric_value,
            unit=self.unit,
            occurred_at=_rfc3339(self.occurred_at),
            quality=self.quality,
            trace_id=self.trace_id,
        )


@dataclass(frozen=True)
class Event:
    """Anything that is not a reading: an alarm, a door, a session. ``event_type`` is dotted: ``alarm.raised``."""

    event_type: str
    payload: Mapping[str, Any]
    device_id: Optional[UUID] = None
    session_id: Optional[UUID] = None
    occurred_at: Optional[datetime] = None
    trace_id: Optional[str] = None
    event_id: UUID = field(default_factory=uuid7)

    def request(self) -> Dict[str, Any]:
        """The line that goes over the socket."""
        return _without_none(
            event_id=str(self.event_id),
            event_type=self.event_type,
            device_id=_text(self.device_id),
            session_id=_text(self.session_id),
            occurred_at=_rfc3339(self.occurred_at),
            trace_id=self.trace_id,
            payload=dict(self.payload),
        )


Record = Union[Sample, Event]


@dataclass(frozen=True)
class Rejected:
    """A record of :meth:`Sampler.send_many` that was not accepted; its neighbours were."""

    record: Record
    error: SamplerError


class Sampler:
    """A connection to the node. Reconnects by itself; use one per thread.

    Every record carries an event id made here, so a record that is sent twice, because the reply to the first
    sending was lost, is stored once.
    """

    def __init__(self, path: str = DEFAULT_SOCKET, timeout: float = 10.0) -> None:
        self._path = path
        self._timeout = timeout
        self._socket: Optional[socket.socket] = None
        self._unread = b""

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._unread = None, b""

    def sample(self, metric_type: str, metric_value: float, unit: str, **more: Any) -> Receipt:
        """Hand over one reading; returns when it is durable. ``more``: the other fields of :class:`Sample`."""
        return self.send(Sample(metric_type, metric_value, unit, **more))

    def event(self, event_type: str, payload: Mapping[str, Any], **more: Any) -> Receipt:
        """Hand over one event; returns when it is durable. ``more``: the other fields of :class:`Event`."""
        return self.send(Event(event_type, payload, **more))

    def send(self, record: Record) -> Receipt:
        """Hand over one record; returns when it is durable, or raises what is wrong with it."""
        (outcome,) = self.send_many([record])
        if isinstance(outcome, Rejected):
            raise outcome.error
        return outcome

    def send_many(self, records: Iterable[Record]) -> Iterator[Union[Receipt, Rejected]]:
        """Hand over many records, pipelined; yields an outcome for each, in order.

        A bad record yields :class:`Rejected` and its neighbours go through. If the node goes away, what has no
        outcome yet is sent again until ``timeout`` has passed without progress, then :class:`Disconnected` is raised.
        """
        source = iter(records)
        waiting: Deque[Record] = deque()
        exhausted = False
        deadline = time.monotonic() + self._timeout
        attempt = 0
        while True:
            try:
                if self._socket is None:
                    self._connect()
                    self._write(list(waiting))
                while not exhausted and len(waiting) < WINDOW:
                    fresh = _take(source, WINDOW - len(waiting))
                    exhausted = not fresh
                    waiting.extend(fresh)
                    self._write(fresh)
                if not waiting:
                    return
                outcome = _outcome(waiting[0], self._read())
            except _Gone as gone:
                self.close()
                if time.monotonic() >= deadline:
                    raise Disconnected(f"{self._path}: {gone}") from gone
                attempt += 1
                time.sleep(min(0.05 * 2**attempt, 1.0) * random.uniform(0.5, 1.0))
                continue
            waiting.popleft()
            deadline = time.monotonic() + self._timeout
            attempt = 0
            yield outcome

    def status(self) -> Dict[str, Any]:
        """The node's status: head, acked, backlog, bytes, drops, clock and more."""
        try:
            if self._socket is None:
                self._connect()
            self._send_line({"cmd": "status"})
            return self._read()
        except _Gone as gone:
            self.close()
            raise Disconnected(f"{self._path}: {gone}") from gone

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout)
        try:
            connection.connect(self._path)
        except OSError as error:
            connection.close()
            raise _Gone(f"cannot connect: {error.strerror or error}") from error
        self._socket, self._unread = connection, b""

    def _write(self, records: List[Record]) -> None:
        self._send(b"".join(_line(record.request()) for record in records))

    def _send_line(self, request: Mapping[str, Any]) -> None:
        self._send(_line(request))

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _Gone(f"the node went away: {error.strerror or error}") from error

    def _read(self) -> Dict[str, Any]:
        assert self._socket is not None
        while b"\n" not in self._unread:
            if len(self._unread) > _MAX_REPLY_BYTES:
                raise _Gone("a reply is longer than any the node sends")
            try:
                chunk = self._socket.recv(16 * 1024)
            except OSError as error:
                raise _Gone(f"no reply: {error.strerror or error}") from error
            if not chunk:
                raise _Gone("the node closed the connection")
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise _Gone("a reply is not JSON") from error
        error = reply.get("error") if isinstance(reply, dict) else None
        if error and error.get("code") == "stopping":
            raise _Gone("the node is stopping")
        return reply


class _Gone(Exception):
    """The connection is unusable; what was not answered must be sent again."""


def _outcome(record: Record, reply: Mapping[str, Any]) -> Union[Receipt, Rejected]:
    error = reply.get("error")
    if error is None:
        return Receipt(seq=int(reply["seq"]), event_id=UUID(reply["event_id"]))
    message = error.get("message", "the node gave no reason")
    code = error.get("code")
    if code == "full":
        return Rejected(record, SpoolFull(message))
    if code == "not_durable":
        return Rejected(record, NotDurable(message))
    return Rejected(record, Invalid(message, error.get("field")))


def _take(source: Iterator[Record], count: int) -> List[Record]:
    return list(islice(source, count))


def _line(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _without_none(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _text(value: Optional[UUID]) -> Optional[str]:
    return None if value is None else str(value)


def _rfc3339(value: Optional[datetime]) -> Optional[str]:
    if value is None:
        return None
    if value.tzinfo is None:
        raise Invalid("occurred_at has no time zone: use datetime.now(timezone.utc)", "occurred_at")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
