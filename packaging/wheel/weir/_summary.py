# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Types of the summary of a run, as docs/reference/summary.schema.json in weir's repository describes it."""

from __future__ import annotations

from typing import Any, TypedDict


class Capture(TypedDict, total=False):
    """The packets that were read."""

    files: list[str]
    packets: int
    bytes: int
    duration_ns: int
    truncated: bool
    interrupted: bool
    selected: int
    tcp: int
    udp: int
    ipv6: int
    tcp_syn: int


class Fault(TypedDict):
    """A fault of a module; `packet` is null for one in no packet's call."""

    packet: int | None
    message: str


class Stream(TypedDict):
    """A record stream of a module and its rows."""

    name: str
    rows: int
    times_out_of_range: int
    path: str | None


class ModuleSummary(TypedDict, total=False):
    """What a module did and cost."""

    name: str
    tier: str
    tier_reason: str | None
    back_end: str
    packets: int
    records: int
    dropped_records: int
    faults: int
    first_faults: list[Fault]
    lost_packets: int
    exceeded: int
    strikes: int
    ns_per_packet: float | None
    cycles_per_packet: float | None
    memory_bytes: int
    ended: bool
    streams: list[Stream]
    outputs: list[dict[str, Any]]
    tcp_streams: dict[str, Any]
    dropped_frames: int


class Summary(TypedDict, total=False):
    """The document of `weir run --json`."""

    schema_version: int
    weir_version: str
    failure: str | None
    capture: Capture
    interface: dict[str, Any]
    sent: dict[str, Any]
    written: dict[str, Any]
    collector: dict[str, Any]
    report: str
    summary: str
    failed_files: list[dict[str, str]]
    overview: dict[str, Any]
    modules: list[ModuleSummary]
