# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The program that the wheel contains: its path, calls of it, and its messages."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn

#: Seconds that a run has to complete its files after it was told to end.
_END_SECONDS = 5
#: Bytes of a file object that are handed over at a time.
_PIECE_BYTES = 1 << 20


class Error(Exception):
    """A refusal or failure of weir.

    `str()` gives the program's message. `exit_code` is its exit status: 1 for a failure, 2 for wrong usage, 3 for modules
    that did not start or were ended, negative for a signal, and None if the program was not run or was ended by
    `time_limit`. `stderr` has all that the program wrote to standard error. `results` has what a failed `run` could still
    read, and is None otherwise.
    """

    def __init__(self, message: str, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr
        self.results: Mapping[str, Any] | None = None


class RunWarning(UserWarning):
    """A warning of a run: a truncated capture, a fault of a module, packets that nothing wrote."""


@dataclass(frozen=True)
class Output:
    """Output of a call that ended by itself."""

    exit_code: int
    stdout: bytes
    stderr: str

    def error(self) -> Error:
        """The error that standard error describes."""
        messages = [text for kind, text in _messages(self.stderr) if kind == "error"]
        if self.exit_code < 0:
            messages.append(f"weir was ended by signal {-self.exit_code}")
        return Error("\n".join(messages) or f"weir ended with status {self.exit_code}", self.exit_code, self.stderr)

    def warn(self, stacklevel: int) -> None:
        """Passes the program's warnings on to `warnings`; `stacklevel` counts from the caller."""
        for kind, text in _messages(self.stderr):
            if kind == "warning":
                warnings.warn(text, RunWarning, stacklevel=stacklevel + 1)


def binary() -> Path:
    """Path of the program that came with this package.

    The search path of the shell is not used: another version there would not fit this package. Raises `Error` if the
    program is missing.
    """
    package = Path(__file__).resolve().parent
    folders = [
        package.parent / "bin",  # pip install --target
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))),
    ]
    for folder in folders:
        if (program := folder / "weir").is_file():
            return program
    raise Error(f"the program weir is not in {', '.join(map(str, folders))}; install the package weir-traffic again")


def replace(arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by the program."""
    program = str(binary())
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, *arguments])


def call(
    arguments: Sequence[str],
    *,
    capture: bytes | BinaryIO | None = None,
    folder: str | None = None,
    time_limit: float | None = None,
) -> Output:
    """Runs the program without a shell and returns its output.

    `capture` is fed to standard input. After `time_limit` seconds, or at an exception such as `KeyboardInterrupt`, the
    program is ended, and the call returns after that. Raises `Error` if the time was up or the program cannot be run.
    """
    feed = None if capture is None else _Feed(capture)
    try:
        process = subprocess.Popen(
            [str(binary()), *arguments],
            stdin=subprocess.DEVNULL if feed is None else feed.reader,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            # Ctrl-C in a terminal would be a first signal, and `_end` then a second one, after which files stay incomplete.
            start_new_session=True,
        )
    except OSError as error:
        raise Error(f"weir cannot be run: {error}") from error
    finally:
        if feed is not None:
            os.close(feed.reader)
            feed.start()  # ends at once if there is no process
    try:
        stdout, stderr = process.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        _end(process)
        raise Error(f"weir was ended after the time limit of {time_limit} s") from None
    except BaseException:
        _end(process)
        raise
    if feed is not None:
        feed.finish()
    return Output(process.returncode, stdout, stderr.decode("utf-8", "replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    # The signal lets weir complete the files of `out` and `write`. A second Ctrl-C ends the wait.
    process.terminate()
    try:
        process.communicate(timeout=_END_SECONDS)
    except BaseException as error:
        process.kill()
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


class _Feed:
    """A thread that writes a capture into a pipe."""

    def __init__(self, capture: bytes | BinaryIO) -> None:
        self._capture = capture
        self._error: BaseException | None = None
        self.reader, writer = os.pipe()
        self._pipe: IO[bytes] = os.fdopen(writer, "wb", buffering=0)
        self._thread = threading.Thread(target=self._write, name="weir capture", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Raises the error with which reading the capture ended."""
        # The program may have ended before the capture, at `limit`. Then the thread ends with its next write.
        self._thread.join(timeout=1)
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        try:
            with self._pipe:
                for piece in self._pieces():
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[self._pipe.write(rest) :]
        except BrokenPipeError:
            pass  # the program wants no more
        except BaseException as error:
            self._error = error

    def _pieces(self) -> Any:
        if isinstance(self._capture, bytes):
            yield self._capture
            return
        while piece := self._capture.read(_PIECE_BYTES):
            if isinstance(piece, str):
                raise TypeError("a capture is read from a file that was opened in binary mode")
            yield piece


def _messages(stderr: str) -> list[tuple[str, str]]:
    """The messages of standard error with their kinds, `warning` or `error`; lines without a prefix continue one."""
    messages: list[tuple[str, str]] = []
    for line in stderr.splitlines():
        for prefix, kind in (("weir: warning: ", "warning"), ("weir: ", "error"), ("error: ", "error")):
            if line.startswith(prefix):
                messages.append((kind, line[len(prefix) :]))
                break
        else:
            if messages:
                kind, text = messages[-1]
                messages[-1] = (kind, f"{text}\n{line}")
            elif line:
                messages.append(("error", line))
    return [(kind, text.rstrip()) for kind, text in messages]
