# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of modules over captures."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Union, cast, overload

from . import _parameters, _tool
from ._modules import Module, ModuleLike, path
from ._modules import module as make_module
from ._result import Result, Results
from ._summary import Summary

if TYPE_CHECKING:
    import pyarrow

_Path = Union[str, "os.PathLike[str]"]
#: A path, folder or pattern, several of these, or one capture as bytes or as a file in binary mode.
Captures = Union[_Path, Iterable[_Path], bytes, bytearray, memoryview, BinaryIO]

#: Keywords of `run` that are not parameters of a module.
_NAMES = ("filter", "limit", "out", "write", "profile", "jobs", "time_limit")


# A text is also a list of texts for the type checker, so the overload for one module stands first.
@overload
def run(  # type: ignore[overload-overlap]
    captures: Captures,
    module: ModuleLike,
    *,
    filter: str | None = ...,
    limit: int | None = ...,
    out: _Path | None = ...,
    write: _Path | None = ...,
    profile: _Path | None = ...,
    jobs: int | None = ...,
    time_limit: float | None = ...,
    parameters: Mapping[str, Any] | None = ...,
    **keywords: Any,
) -> Result: ...


@overload
def run(
    captures: Captures,
    module: Iterable[ModuleLike] | None = ...,
    *,
    filter: str | None = ...,
    limit: int | None = ...,
    out: _Path | None = ...,
    write: _Path | None = ...,
    profile: _Path | None = ...,
    jobs: int | None = ...,
    time_limit: float | None = ...,
) -> Results: ...


def run(
    captures: Captures,
    module: ModuleLike | Iterable[ModuleLike] | None = None,
    *,
    filter: str | None = None,
    limit: int | None = None,
    out: _Path | None = None,
    write: _Path | None = None,
    profile: _Path | None = None,
    jobs: int | None = None,
    time_limit: float | None = None,
    parameters: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Result | Results:
    """Runs modules over captures, and returns their records as Arrow tables.

    `captures` is a path, a folder, a pattern such as `"trace*.pcap.gz"`, or a list of these, whose packets are merged by
    their times; or one capture as bytes or as a file object that was opened in binary mode.

    `module` is what `weir.module` takes, and the call then returns a `Result`. A list of modules, which see each packet in
    one run, gives `Results`, a dict by their names. Without `module` the default modules run.

    Options, each None by default:

    - `filter`: an expression in tcpdump's language; the modules see only packets that match it.
    - `limit`: number of packets that match the filter after which the run ends.
    - `out`: a folder for the Parquet files of the records, which stay there. Tables are then read when they are used.
      Without `out` the files are in a temporary folder, and are removed before the call returns.
    - `write`: a capture to write, with the packets that no module dropped, and with the modules' changes.
    - `profile`: a TOML file with the limits of modules.
    - `jobs`: number of threads; by default one for each processor. The records do not depend on it.
    - `time_limit`: seconds after which the run is ended and fails.
    - `parameters`: values of parameters by their exact names, for one module.

    Further keywords are parameters of one module, with `_` for `-`. For several modules, give each its parameters with
    `weir.module`.

    Raises `Error` if the run failed, or no module saw all packets. A module that was ended beside others, and other
    warnings of weir, are a `RunWarning`. Raises `FileNotFoundError` for a module that does not exist, and `TypeError` and
    `ValueError` for wrong arguments.
    """
    options = {
        "filter": filter,
        "limit": limit,
        "out": out,
        "write": write,
        "profile": profile,
        "jobs": jobs,
        "time_limit": time_limit,
        "parameters": parameters,
        **keywords,
    }
    if module is None:
        return start(captures, [], options, stacklevel=3)[1]
    if isinstance(module, (str, os.PathLike, Module)):
        return start(captures, [module], options, stacklevel=3)[0]
    modules = list(module)
    if not modules:
        raise ValueError("the list of modules is empty; without a list the default modules run")
    return start(captures, modules, options, stacklevel=3)[1]


def start(
    captures: Captures, modules: list[ModuleLike], options: Mapping[str, Any], stacklevel: int | None
) -> tuple[Result, Results]:
    """One run: the first module's result, and all of them.

    `options` are those of `run`. Without `stacklevel`, warnings of weir are left out.
    """
    chosen, values = _options(options)
    if values and len(modules) != 1:
        raise TypeError(
            f"{', '.join(values)}: parameters belong to one module; write weir.module(NAME, PARAMETER=VALUE) in the list"
        )
    made = [make_module(each, parameters=values) for each in modules]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-", ignore_cleanup_errors=True))
        kept = chosen["out"] is not None
        # Relative to the folder in which weir runs, so that no name in the path matters.
        records = path(chosen["out"]) if kept else "records"
        arguments = ["run", "--quiet", "--json", f"--out={records}"]
        for option in ("write", "profile"):
            if chosen[option] is not None:
                arguments.append(f"--{option}={path(chosen[option])}")
        for option, name in (("limit", "count"), ("jobs", "jobs")):
            if chosen[option] is not None:
                arguments.append(f"--{name}={_number(option, chosen[option])}")
        arguments += [f"--module={each._argument(folder, number)}" for number, each in enumerate(made)]
        reads, capture = _captures(captures)
        arguments += [f"--read={read}" for read in reads]
        if chosen["filter"]:
            arguments += ["--", str(chosen["filter"])]

        output = _tool.call(arguments, capture=capture, folder=folder, time_limit=chosen["time_limit"])
        try:
            results = _results(output, Path(folder), kept)
        except Exception:
            if output.exit_code in (0, 3):
                raise
            results = None  # files of a failed run can be incomplete
        if results is None or output.exit_code not in (0, 3) or (results and all(r.ended for r in results.values())):
            error = output.error()
            error.results = results
            raise error
    if stacklevel is not None:
        output.warn(stacklevel)
    return next(iter(results.values())), results


def _options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a run, and the parameters of its module."""
    chosen = {name: options.get(name) for name in _NAMES}
    keywords = {name: value for name, value in options.items() if name not in _NAMES and name != "parameters"}
    return chosen, _parameters.merged(options.get("parameters"), keywords)


def _number(option: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ValueError(f"{option} is {value!r}, not a whole number of at least 1")
    return int(value.__index__())


def _captures(captures: Captures) -> tuple[list[str], bytes | BinaryIO | None]:
    """The values of `--read`, and what standard input has to supply."""
    if isinstance(captures, (bytes, bytearray, memoryview)):
        return ["-"], bytes(captures)
    if hasattr(captures, "read"):
        return ["-"], cast(BinaryIO, captures)
    if isinstance(captures, (str, os.PathLike)):
        return [path(captures)], None
    reads = []
    for each in captures:
        if not isinstance(each, (str, os.PathLike)):
            # weir merges captures by their times, for which it has to know when each begins.
            raise TypeError(f"a list of captures has paths only, not {type(each).__name__}; bytes and files are read alone")
        reads.append(path(each))
    if not reads:
        raise ValueError("the list of captures is empty")
    return reads, None


def _results(output: _tool.Output, folder: Path, kept: bool) -> Results | None:
    """The results that the summary names; None if there is no summary."""
    try:
        summary: Summary = json.loads(output.stdout)
        modules = summary["modules"]
    except (ValueError, KeyError, TypeError):
        return None
    results = {}
    for module in modules:
        files = {stream["name"]: folder / stream["path"] for stream in module["streams"] if stream["path"] is not None}
        result = Result(module, summary, partial(_read, files))
        if kept:
            result.files = files
        else:
            _ = result.tables  # reads all of them, because the folder is removed
        results[result.name] = result
    return Results(results, summary)


def _read(files: Mapping[str, Path], stream: str) -> pyarrow.Table:
    import pyarrow.parquet

    if stream not in files:
        raise _tool.Error(f"the records of the stream {stream} were not written")
    # As a single file: `read_table` would make columns of folders with names such as `day=1`.
    with open(files[stream], "rb") as file:
        return pyarrow.parquet.ParquetFile(file).read()
