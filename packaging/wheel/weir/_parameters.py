# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Values of parameters in the notation of `weir run -m MODULE,KEY=VALUE`."""

from __future__ import annotations

import datetime
import ipaddress
import numbers
import os
from collections.abc import Iterable, Mapping
from typing import Any

_ESCAPES = {"\\": "\\\\", ",": "\\,", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network)


def merged(parameters: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """One dict of both: names of `parameters` are taken as they are, in those of `keywords` each `_` means `-`.

    Raises `TypeError` if both give a value for one name.
    """
    values = dict(parameters or {})
    for keyword, value in keywords.items():
        name = keyword.replace("_", "-")
        if name in values:
            raise TypeError(f"the parameter {name} is given twice")
        values[name] = value
    return values


def argument(source: str, parameters: Mapping[str, Any]) -> str:
    """The argument of `-m`. None stands for the default of a parameter. Raises `TypeError` for other values."""
    pieces = [source]
    for name, value in parameters.items():
        if not name or set(name) & set(",=\\"):
            raise TypeError(f"{name!r} is no name of a parameter")
        if value is not None:
            pieces.append(f"{name}={text(value)}")
    return ",".join(pieces)


def text(value: Any) -> str:
    """One value, with lists as their items with commas between them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "".join(_ESCAPES.get(letter, letter) for letter in value)
    if isinstance(value, (bytes, bytearray)):
        return "".join(f"\\x{byte:02x}" for byte in value)
    if isinstance(value, datetime.timedelta):
        # pandas.Timedelta is a timedelta with nanoseconds.
        ns = (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1000 + getattr(value, "nanoseconds", 0)
        return f"{ns}ns"
    if isinstance(value, _ADDRESSES):
        return str(value)
    if isinstance(value, os.PathLike):
        return text(os.fsdecode(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        items = list(value)
        if any(isinstance(item, Iterable) and not isinstance(item, (str, bytes, *_ADDRESSES)) for item in items):
            raise TypeError("a list that is the value of a parameter cannot contain lists")
        return ",".join(text(item) for item in items)
    raise TypeError(f"a value of type {type(value).__name__} cannot be given to a module: {value!r}")
