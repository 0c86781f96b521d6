# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The wheel itself, judged by the packaging tools."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import weir
from conftest import ROOT

BUILD = ROOT / "packaging/wheel/build"
PROGRAM = (
    '#include <stdio.h>\n#include <math.h>\nint main(int c, char **v) { puts("weir 1.2.3"); return (int)pow(c - 2, 2); }\n'
)
compiler = shutil.which("gcc") or shutil.which("clang-19")
needs_compiler = pytest.mark.skipif(compiler is None, reason="needs a C compiler")


def notices():
    """The licences of the installed wheel, for those that a test makes."""
    files = importlib.metadata.files("weir-traffic")
    return next(file.locate() for file in files if file.name == "third-party.txt")


def build(binary, out="dist", **environment):
    return subprocess.run(
        [sys.executable, BUILD, "--notices", notices(), binary, out],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def compiled(*options):
    pathlib.Path("program.c").write_text(PROGRAM)
    subprocess.run([compiler, *options, "-o", "program", "program.c", "-lm"], check=True)
    return build("program").stdout.strip()


@pytest.fixture
def wheel(place):
    """A wheel of the program of the installed one."""
    made = build(weir.binary())
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_bytes_are_reproducible(wheel):
    again = build(weir.binary(), "again", TZ="Asia/Tokyo", PYTHONHASHSEED="7").stdout.strip()
    assert pathlib.Path(wheel).read_bytes() == pathlib.Path(again).read_bytes()
    later = build(weir.binary(), "later", SOURCE_DATE_EPOCH="1700000000").stdout.strip()
    with zipfile.ZipFile(later) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    assert sorted(os.listdir("dist")) == [os.path.basename(wheel)]


def test_contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[-1].endswith("/RECORD") and "weir/py.typed" in names
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        info = re.match(r".*?\.dist-info", names[-1])[0]
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            assert archive.read(f"{info}/licenses/{licence}") == (ROOT / licence).read_bytes()
        # PEP 639: each file of licenses/ is a License-File, and the reverse.
        stored = {name.removeprefix(f"{info}/licenses/") for name in names if name.startswith(f"{info}/licenses/")}
        lines = archive.read(f"{info}/METADATA").decode().split("\n\n")[0].splitlines()
        stated = [line.removeprefix("License-File: ") for line in lines if line.startswith("License-File: ")]
        assert sorted(stated) == sorted(stored) == ["LICENSE-APACHE", "LICENSE-MIT", "third-party.txt"]
    scripts = [name for name, mode in modes.items() if mode & 0o111]
    assert len(scripts) == 1 and scripts[0].endswith(".data/scripts/weir")
    assert not any("__pycache__" in name for name in names)


def test_each_crate_in_the_program_has_its_licence():
    # Panic messages in the program name files of the crates that it contains.
    program = pathlib.Path(weir.binary()).read_bytes()
    found = set(re.findall(rb"/(?:crates|registry/src/[^/\0 ]+)/([a-z0-9_-]+)-(\d+\.\d+\.\d[^/\0 ]*)/", program))
    assert len(found) > 20, found
    text = notices().read_text()
    assert [crate for crate in found if f"\n{crate[0].decode()} {crate[1].decode()} (" not in text] == []
    # What each of the usual licences asks to be repeated.
    for part in ("Permission is hereby granted", "Redistribution and use in source and binary forms", "Apache License"):
        assert part in text


def test_a_wheel_without_licences_is_refused(place):
    (place / "empty.txt").write_text("\n")
    command = [sys.executable, BUILD, "--notices", "empty.txt", weir.binary(), "dist"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "there are no licences in it" in refused.stderr


def test_twine_accepts_the_metadata(wheel):
    pytest.importorskip("twine")
    checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def audited(wheel):
    """The platform tag that auditwheel finds."""
    pytest.importorskip("auditwheel")
    said = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True)
    return re.search(r'constrains the platform tag to "(\w+)"|following platform tag:\s+"(\w+)"', said.stdout + said.stderr)


def test_the_platform_tag_is_that_of_auditwheel(wheel):
    found = audited(wheel)
    tag = found[1] or found[2]
    if "musllinux" in wheel:
        # A static program needs no C library, so auditwheel finds the oldest platform that it knows.
        oldest, stated = (int(re.search(r"manylinux_2_(\d+)_", text)[1]) for text in (tag, wheel))
        assert oldest <= stated
    else:
        assert tag in wheel


@needs_compiler
def test_the_platform_tag_of_a_small_program_is_that_of_auditwheel():
    wheel = compiled()
    assert wheel.startswith("dist/weir_traffic-1.2.3-py3-none-manylinux_2_")
    found = audited(wheel)
    assert (found[1] or found[2]) in wheel


@needs_compiler
def test_static_programs_run_everywhere():
    for option in ("-static", "-static-pie"):
        wheel = compiled(option)
        assert wheel.endswith("-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl")


@needs_compiler
def test_a_program_with_other_libraries_is_refused():
    pathlib.Path("program.c").write_text("int other(void); int main(void) { return other(); }\n")
    pathlib.Path("other.c").write_text("int other(void) { return 0; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libother.so", "other.c"], check=True)
    subprocess.run([compiler, "-o", "program", "program.c", "./libother.so"], check=True)
    refused = build("program")
    assert refused.returncode == 1 and "libother.so, which is not on every Linux" in refused.stderr
    assert not os.path.exists("dist")


def test_files_that_are_no_program_are_refused(place):
    content = pathlib.Path("/bin/true").resolve().read_bytes()
    for broken in (b"", b"#!/bin/sh\n", b"\x7fELF", content[:64], content[:1000], content[:32] + b"\xff" * 8 + content[40:]):
        (place / "broken").write_bytes(broken)
        refused = build("broken")
        assert refused.returncode == 1 and "not a readable ELF file" in refused.stderr, refused.stderr
    shutil.copy("/bin/true", "other")
    refused = build("other")
    assert refused.returncode == 1 and "not `weir` and a version" in refused.stderr


def test_pip_installs_it_into_a_folder(wheel, place):
    options = ["-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--target"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "target", wheel], check=True)
    command = [sys.executable, "-c", "import weir; print(weir.binary())"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "target"})
    assert said.stdout == f"{place}/target/bin/weir\n"
