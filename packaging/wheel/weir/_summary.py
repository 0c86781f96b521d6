# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Types of the summary of a run, as docs/reference/summary.schema.json in weir's repository describes it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict


class Capture(TypedDict, total=False):
    """The packets that were read."""

    files: List[str]
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

    packet: Optional[int]
    message: str


class Stream(TypedDict):
    """A record stream of a module and its rows."""

    name: str
    rows: int
    times_out_of_range: int
    path: Optional[str]


class ModuleSummary(TypedDict, total=False):
    """What a module did and cost."""

    name: str
    tier: str
    tier_reason: Optional[str]
    back_end: str
    packets: int
    records: int
    dropped_records: int
    faults: int
    first_faults: List[Fault]
    lost_packets: int
    exceeded: int
    strikes: int
    ns_per_packet: Optional[float]
    cycles_per_packet: Optional[float]
    memory_bytes: int
    ended: bool
    streams: List[Stream]
    outputs: List[Dict[str, Any]]
    tcp_streams: Dict[str, Any]
    dropped_frames: int


class Summary(TypedDict, total=False):
    """The document of `weir run --json`."""

    schema_version: int
    weir_version: str
    failure: Optional[str]
    capture: Capture
    interface: Dict[str, Any]
    sent: Dict[str, Any]
    written: Dict[str, Any]
    collector: Dict[str, Any]
    report: str
    summary: str
    failed_files: List[Dict[str, str]]
    overview: Dict[str, Any]
    modules: List[ModuleSummary]
