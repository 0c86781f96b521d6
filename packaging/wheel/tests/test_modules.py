# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Modules: building, checking and describing them, and modules that fail."""

import os
import pathlib
import shutil
import subprocess

import pytest
import weir
from test_run import printed

needs_clang = pytest.mark.skipif(not shutil.which("clang-19") and not shutil.which("clang"), reason="needs clang")


def new(name):
    """Makes the folder of a module in C."""
    subprocess.run([weir.binary(), "new", f"./{name}"], check=True, capture_output=True)
    return pathlib.Path(name)


@needs_clang
def test_a_c_file_is_built_and_runs(sample):
    folder = new("mine")
    module = weir.module("mine/mine.c", interval="10s")
    assert module.source == os.path.abspath("mine/mine.wasm")
    table = module.run(sample).table
    expected = printed("-r", sample, "-m", "mine/mine.wasm,interval=10s")
    for column in ("protocol", "packets", "bytes"):
        assert table[column].to_pylist() == [row[column] for row in expected]
    for same in (folder, "./mine", "mine/mine.wasm", weir.module(folder)):
        assert weir.run(sample, same, interval="10s").table.equals(table)
    assert module.check()["tier"] == "proved"
    assert module.name == "mine"
    assert module.parameters == {"interval": weir.Parameter("interval", "duration", "10s", "1ms", "3600s")}
    assert module.records["protocols"].names == ["time", "protocol", "packets", "bytes"]
    assert module.records["protocols"].field("bytes").metadata[b"unit"] == b"bytes"


@needs_clang
def test_odd_folders(sample, place):
    table = weir.module(new("mine")).run(sample).table
    for name in ("-dash", "with space", "a,interval=1h", "new\nline", "x=1", os.fsdecode(b"\xff")):
        shutil.copytree("mine", name)
        assert weir.module(pathlib.Path(name)).run(sample).table.equals(table), name
        assert weir.module(f"./{name}/mine.c").check()["admitted"], name


@needs_clang
def test_an_error_of_the_compiler_is_its_message():
    folder = new("mine")
    (folder / "mine.c").write_text("int x = y;\n")
    with pytest.raises(weir.Error, match="mine.c:1:9: error: use of undeclared identifier 'y'") as error:
        weir.module(folder)
    assert error.value.exit_code == 1


def test_without_clang_the_error_says_how_to_get_it(monkeypatch):
    folder = new("mine")
    monkeypatch.setenv("PATH", "/nothing")
    with pytest.raises(weir.Error, match="apt-get install clang-19 lld-19"):
        weir.module(folder)


@needs_clang
def test_a_module_that_does_not_start(sample):
    folder = new("bad")
    with (folder / "bad.c").open("a") as source:
        source.write(
            'WEIR_EXPORT(weir_start) int32_t weir_start(void)\n{\n    WEIR_LOG(WEIR_ERROR, "no!");\n    return 1;\n}\n'
        )
    with pytest.raises(weir.Error, match="bad did not start") as error:
        weir.run(sample, folder)
    assert error.value.exit_code == 3
    assert error.value.results["bad"].ended and error.value.results["bad"].table.num_rows == 0
    with pytest.warns(weir.RunWarning, match="bad: the module was ended"):
        results = weir.run(sample, ["rtt", folder])
    assert results["bad"].ended and not results["rtt"].ended and results["rtt"].table.num_rows == 548


@needs_clang
def test_faults_are_warnings(sample):
    folder = new("trap")
    source = folder / "trap.c"
    source.write_text(
        source.read_text().replace("if (weir_is_ip(p)) {", "if (p->wire_len > 1000) __builtin_trap();\nif (weir_is_ip(p)) {")
    )
    with pytest.warns(weir.RunWarning, match="packets were lost for this module only"):
        result = weir.run(sample, folder)
    assert result.module["faults"] == result.module["lost_packets"] > 0
    assert not result.ended


def test_shipped_modules_are_described():
    module = weir.module("dns")
    names = module.records
    assert list(names) == ["queries", "findings"]
    assert all(field.metadata[b"description"] for field in names["queries"])
    assert module.parameters["answers-max"].type == "u64"


def test_a_module_that_changes_packets_is_described_without_a_warning(recwarn):
    assert "totals" in weir.module("dscp-mark", source="10.0.0.0/8", dscp=46).records
    assert not recwarn.list


def test_a_profile_decides_about_admission(sample, place):
    (place / "strict.toml").write_text("nonsense = 1\n")
    with pytest.raises(weir.Error, match="nonsense"):
        weir.run(sample, "rtt", profile="strict.toml")
    from conftest import ROOT

    strict = ROOT / "docs/profiles/strict.toml"
    assert weir.module("rtt").check(profile=strict)["admitted"]
    refused = weir.module("spin").check(profile=strict)
    assert not refused["admitted"] and refused["refusal"]


def test_wrong_modules(sample, place):
    with pytest.raises(weir.Error, match="there is no module `nothing`"):
        weir.run(sample, "nothing")
    with pytest.raises(FileNotFoundError, match="nothing.wasm"):
        weir.module("nothing.wasm")
    with pytest.raises(weir.Error, match="no name of a shipped module"):
        weir.module("-rtt")
    with pytest.raises(weir.Error, match="no name of a shipped module"):
        weir.module("rtt,slow=1ms")
    with pytest.raises(ValueError, match="empty"):
        weir.run(sample, [])
    (place / "x.c").write_text("")
    with pytest.raises(weir.Error, match="its folder has no weir.toml"):
        weir.module("x.c")
    (place / "x.wasm").write_bytes(b"\0asm nonsense")
    assert not weir.module("x.wasm").check()["admitted"]
    with pytest.raises(weir.Error, match="not valid WebAssembly"):
        _ = weir.module("x.wasm").parameters
    with pytest.raises(weir.Error):
        weir.run(sample, "x.wasm")


def test_a_name_is_a_shipped_module_also_beside_a_folder_of_that_name(sample, place):
    (place / "rtt").mkdir()
    assert weir.run(sample, "rtt").table.num_rows == 548
