# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Modules: shipped ones, files, and folders with sources."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from . import _parameters, _tool

if TYPE_CHECKING:
    import pyarrow

    from ._result import Result
    from ._run import Captures

#: A module as `run` takes it: a name, a path, or a `Module`.
ModuleLike = Union[str, "os.PathLike[str]", "Module"]

#: A pcap file without packets, for Ethernet.
_NO_PACKETS = bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a module. Values are texts in the notation of `weir run`, such as `10s`."""

    name: str
    #: `u64`, `duration`, `string-list` or another type of the module reference.
    type: str
    #: The value that a run would use: the one that was given, otherwise the default; None if one has to be given.
    value: str | None
    min: str | None
    max: str | None


class Module:
    """A module with values for some of its parameters. `weir.module` makes it."""

    def __init__(self, source: str, parameters: Mapping[str, Any]) -> None:
        #: Name of a shipped module, or absolute path of a WebAssembly file.
        self.source = source
        #: Values of parameters by their names.
        self.given: dict[str, Any] = dict(parameters)

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.given.items())
        return f"<weir.Module {self.source}{given}>"

    def with_parameters(self, parameters: Mapping[str, Any]) -> Module:
        """The same module, with these values instead of or beside the given ones."""
        return Module(self.source, {**self.given, **parameters})

    def run(self, captures: Captures, **options: Any) -> Result:
        """Runs this module alone over captures; the arguments are those of `weir.run`."""
        from ._run import start

        return start(captures, [self], options, stacklevel=3)[0]

    def check(self, *, profile: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The document of `weir check --json`: tier, bounds, and whether the module is admitted.

        A module that is not admitted is no error, nor is a file that is no module: `admitted` is false then, and
        `refusal` says why. `profile` is the path of a TOML file with limits. Raises `Error` for wrong parameters.
        """
        arguments = ["check", "--json"]
        if profile is not None:
            arguments.append(f"--profile={path(profile)}")
        with tempfile.TemporaryDirectory(prefix="weir-") as folder:
            output = _tool.call([*arguments, "--", self._argument(folder, 0)], folder=folder)
        if output.exit_code not in (0, 1) or not output.stdout:
            raise output.error()
        document: dict[str, Any] = json.loads(output.stdout)
        return document

    @property
    def name(self) -> str:
        """Name in the module's manifest. Raises `Error` for a file that is no module."""
        return str(self._read()["module"])

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The module's parameters by their names. Raises `Error` for a file that is no module."""
        keys = ("name", "type", "value", "min", "max")
        return {each["name"]: Parameter(*(each[key] for key in keys)) for each in self._read()["parameters"]}

    @property
    def records(self) -> dict[str, pyarrow.Schema]:
        """The Arrow schema of each record stream, with units and descriptions in the fields' metadata.

        They come from a run over no packets, so parameters without a default have to be given before.
        """
        from ._run import start

        result = start(_NO_PACKETS, [self], {}, stacklevel=None)[0]
        return {name: table.schema for name, table in result.tables.items()}

    def _read(self) -> dict[str, Any]:
        """The document of `check`. Raises `Error` for a file that is no module, of which nothing else is known."""
        document = self.check()
        if "parameters" not in document:
            raise _tool.Error(str(document.get("refusal")), 1)
        return document

    def _argument(self, folder: str, number: int) -> str:
        """The argument of `-m` for a run in `folder`."""
        source = self.source
        # weir takes what follows a comma for a parameter, knows no escape in the path before it, and refuses bytes here that
        # are not UTF-8 (surrogates in Python).
        if any(letter == "," or "\ud800" <= letter <= "\udfff" for letter in source):
            link = f"module{number}.wasm"
            os.symlink(source, os.path.join(folder, link))
            source = link
        return _parameters.argument(source, self.given)


def module(source: ModuleLike, /, *, parameters: Mapping[str, Any] | None = None, **keywords: Any) -> Module:
    """A module to run, check or inspect.

    `source` is the name of a shipped module (`"rtt"`), a WebAssembly file (`"mine.wasm"`), or sources: a folder with
    weir.toml, or a C file in such a folder. A text without a slash and suffix is a name; write `"./mine"` or `Path("mine")`
    for a folder. Sources are built by `weir build`, which needs clang for C and a Rust toolchain for Rust.

    Further keywords are values of parameters, with `_` for `-`; `parameters` has them under their exact names.

    Raises `Error` if the module cannot be built, and `FileNotFoundError` if there is no such file.
    """
    given = _parameters.merged(parameters, keywords)
    if isinstance(source, Module):
        return source.with_parameters(given)
    if isinstance(source, str) and os.sep not in source and not source.endswith((".wasm", ".c")):
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", source):
            raise _tool.Error(f"{source!r} is no name of a shipped module; a path has a slash, .wasm or .c")
        return Module(source, given)
    place = Path(path(source))
    if place.is_dir():
        place = _built(place)
    elif not place.exists():
        raise FileNotFoundError(f"{place}: there is no such module")
    elif place.suffix == ".c":
        if not (place.parent / "weir.toml").is_file():
            raise _tool.Error(
                f"{place}: its folder has no weir.toml, the module's manifest; `weir new NAME` makes a folder with one"
            )
        place = _built(place.parent)
    return Module(str(place), given)


def path(place: str | os.PathLike[str]) -> str:
    """An absolute path, which begins with no dash; `~` is the home folder."""
    return os.path.abspath(os.path.expanduser(os.fspath(place)))


def _built(folder: Path) -> Path:
    output = _tool.call(["build", str(folder)])
    if output.exit_code != 0:
        raise output.error()
    # The path in the message is escaped, so the name is taken from it, and the folder from the caller.
    found = re.search(r"([a-z][a-z0-9_-]*)\.wasm: \1 ", output.stdout.decode("utf-8", "replace"))
    if found is None:
        raise _tool.Error(f"weir build did not say which file it wrote: {output.stdout!r}")
    return folder / f"{found[1]}.wasm"
