# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs untrusted packet-processing modules over captures, and gives their records as Arrow tables.

import weir
weir.run("traffic.pcap", "rtt").to_pandas()
weir.run("traffic.pcap")["dns"].table
weir.module("mine/mine.c").run("traffic.pcap", interval="10s")
"""

from importlib.metadata import PackageNotFoundError, version

from ._modules import Module, ModuleLike, Parameter, module
from ._result import Result, Results
from ._run import Captures, run
from ._summary import Summary
from ._tool import Error, RunWarning, binary

try:
    __version__ = version("weir-traffic")
except PackageNotFoundError:  # a checkout, which is not installed
    __version__ = "unknown"

__all__ = [
    "Captures",
    "Error",
    "Module",
    "ModuleLike",
    "Parameter",
    "Result",
    "Results",
    "RunWarning",
    "Summary",
    "binary",
    "module",
    "run",
]
