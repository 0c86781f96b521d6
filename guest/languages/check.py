#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks the modules in other languages: builds, bounds, rows, and faults.

    guest/languages/check.py [--weir PROGRAM] [--traces FOLDER]

Each module is built again, and has to have the same bytes. It has to be proved under both profiles, and to emit the rows of
tests/sample/expected.jsonl, which have to be those that follow from tshark's fields. With --traces, it also runs over each
capture of a folder, where no call may fail, and all languages have to emit the same rows. A compiler, or tshark, that is
missing is SKIPPED. Exit status: 0 if all checks pass, 1 if one fails."""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SAMPLE = ROOT / "lab/sample/sample.pcap"
INTERVAL_S = 10
UDP_HEADER_BYTES = 8

# Exit statuses of `weir run --strict`: a capture that it does not read is an error; a fault of the module has the status 3.
REFUSED = 1

failures = []


def report(name, ok, detail=""):
    """Prints the result of a check; `ok` is None for one that was not made."""
    print(f"{name:44} {'SKIPPED' if ok is None else 'ok' if ok else 'FAILED'}  {detail}".rstrip())
    if ok is False:
        failures.append(name)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def has_compiler(language):
    if language == "zig":
        wanted = (HERE / "zig/requirements.txt").read_text().split("==")[1].strip()
        return run(os.environ.get("PYTHON", "python3"), "-m", "ziglang", "version").stdout.strip() == wanted
    return (HERE / language / "node_modules/.bin/asc").exists()


# Of a file: where the descriptor begins and ends, a field of it, a flag, and a host function with its arguments.
INTERFACES = {
    "c": ("../sdk-c/weir.h", r"struct weir_packet \{", r"\n\};", r"^    uint(?P<bits>\d+)_t (?P<name>\w+)(?=[;\[])",
          r"WEIR_(\w+) = 1 << (\d+),", r"WEIR_IMPORT\(\w+\) \w+ weir_host_(\w+)\((.*?)\);"),
    "zig": ("zig/weir.zig", r"const Packet = extern struct \{", r"comptime", r"^    (?P<name>\w+): (\[\d+\])?u(?P<bits>\d+),",
            r"pub const (\w+): u32 = 1 << (\d+);", r'extern "weir" fn (\w+)\((.*?)\)'),
    "assemblyscript": ("assemblyscript/weir.ts", r"class Packet \{", r"/\*\*", r"^  (?P<name>\w+): u(?P<bits>\d+);",
                       r"const (\w+): u32 = 1 << (\d+);", r"function host_(\w+)\((.*?)\)"),
}


def interface_of(language):
    """The descriptor's fields, the flags with their bits, and the host functions with their numbers of arguments."""
    file, begin, end, field, flag, function = INTERFACES[language]
    text = (HERE / file).read_text()
    descriptor = re.search(f"{begin}(.*?){end}", text, re.S)[1]
    fields = [(found["name"], found["bits"]) for found in re.finditer(field, descriptor, re.M)]
    flags = {name.lower(): int(bit) for name, bit in re.findall(flag, text)}
    functions = {name: arguments.count(",") + 1 for name, arguments in re.findall(function, text)}
    return [it for it in fields if not it[0].startswith("spare")], flags, functions


def rows_of(weir, module, capture):
    """The rows over a capture, as lines of JSON, weir's messages, and its exit status."""
    done = run(weir, "run", "-r", capture, "-m", module, "--strict", "--rows", "all", "--format", "json")
    return done.stdout, done.stderr, done.returncode


def rows_by_tshark():
    """The rows that follow from tshark's fields of the sample capture."""
    fields = ["frame.time_epoch", "udp.length", "dns.flags.response", "dns.flags.truncated", "dns.qry.name.len"]
    options = [word for field in fields for word in ("-e", field)]
    done = run("tshark", "-n", "-r", SAMPLE, "-Y", "dns && udp.port == 53", "-T", "fields", *options, check=True)
    ranges = collections.defaultdict(lambda: [0, 0, 0, 0])
    for line in done.stdout.splitlines():
        time, length, response, truncated, name = line.split("\t")
        begin = int(time.split(".")[0]) // INTERVAL_S * INTERVAL_S
        size = int(length) - UDP_HEADER_BYTES
        is_answer = response in ("1", "True")
        found = ranges[begin, is_answer, size.bit_length()]
        found[0] += 1
        found[1] += truncated in ("1", "True")
        found[2] += size
        # As encoded, a name has a length before each label and a zero at its end, instead of dots between labels.
        found[3] = max(found[3], int(name) + 2 if name else 0)
    for (begin, is_answer, bits), (messages, truncated, size, name) in sorted(ranges.items()):
        yield {
            "module": "dns-sizes",
            "stream": "sizes",
            "time": datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000000000Z"),
            "messages": messages,
            "truncated": truncated,
            "bytes": size,
            "bytes_min": 1 << (bits - 1),
            "bytes_max": (1 << bits) - 1,
            "name_bytes_max": name,
            "is_answer": is_answer,
        }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--weir", default=os.environ.get("WEIR", "weir"))
    arguments.add_argument("--traces", type=pathlib.Path)
    asked = arguments.parse_args()
    weir = shutil.which(asked.weir)
    if weir is None:
        sys.exit(f"{asked.weir} is not in PATH: name it with --weir")
    languages = sorted(folder.parent.name for folder in HERE.glob("*/weir.toml"))
    modules = {language: HERE / language / "dns-sizes.wasm" for language in languages}
    manifests = {(HERE / language / "weir.toml").read_bytes() for language in languages}
    report("all: the same manifest", len(manifests) == 1)

    fields, flags, functions = interface_of("c")
    cryptography = {"hmac", "hkdf", "aead_open", "aes_block"}
    functions = {name: count for name, count in functions.items() if name not in cryptography}
    for language in languages:
        got = interface_of(language)
        found = min(len(fields), len(flags), len(functions)) > 10
        report(f"{language}: the interface of weir.h", found and got == (fields, flags, functions), f"{len(fields)} fields, {len(functions)} functions")

    for language, module in modules.items():
        if has_compiler(language):
            with tempfile.TemporaryDirectory() as folder:
                again = pathlib.Path(folder) / "again.wasm"
                built = run(HERE / language / "build.sh", again, env={**os.environ, "WEIR": weir})
                same = built.returncode == 0 and again.read_bytes() == module.read_bytes()
                report(f"{language}: built again, the same bytes", same, "" if built.returncode == 0 else built.stderr)
        else:
            report(f"{language}: built again", None, "its compiler is not there: see README.md")
        for profile in ("default", "strict"):
            done = run(weir, "check", module, "--profile", ROOT / f"docs/profiles/{profile}.toml")
            proved = done.returncode == 0 and "\nTier: proved" in done.stdout
            report(f"{language}: proved under {profile}.toml", proved)
        rows, messages, status = rows_of(weir, module, SAMPLE)
        expected = (HERE / language / "tests/sample/expected.jsonl").read_text()
        report(f"{language}: rows over the sample capture", (rows, status) == (expected, 0) and expected != "", messages if status else "")
        if shutil.which("tshark"):
            got = [json.loads(line) for line in expected.splitlines()]
            report(f"{language}: the rows that follow from tshark", got == list(rows_by_tshark()), f"{len(got)} rows")
        else:
            report(f"{language}: the rows that follow from tshark", None, "tshark is not there")

    if asked.traces:
        suffixes = (".pcap", ".pcapng", ".cap", ".gz", ".zst")
        captures = [path for path in sorted(asked.traces.rglob("*")) if path.name.endswith(suffixes)]
        refused, faults, differing, emitted = [], [], [], 0
        for capture in captures:
            results = {language: rows_of(weir, module, capture) for language, module in modules.items()}
            statuses = {status for _, _, status in results.values()}
            if statuses == {REFUSED}:
                refused.append(capture.name)
                continue
            faults += [f"{capture}: {language}: {messages}" for language, (_, messages, status) in results.items() if status]
            if len({rows for rows, _, _ in results.values()}) != 1:
                differing.append(str(capture))
            emitted += sum(rows.count("\n") for rows, _, _ in results.values())
        read = len(captures) - len(refused)
        report("traces: no call failed", not faults and read > 0, f"{read} captures, {len(refused)} not read; " + "; ".join(faults[:3]))
        report("traces: the same rows in all languages", not differing and emitted > 0, f"{emitted} rows {differing[:3]}")
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
