# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs, options, captures and errors. The rows are compared with those that the command prints."""

import datetime
import fractions
import io
import ipaddress
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import weir


def printed(*arguments):
    """Rows as `weir run --format json` prints them."""
    command = [weir.binary(), "run", "-q", "--format", "json", *arguments]
    lines = subprocess.run(command, check=True, capture_output=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_rows_are_those_that_the_command_prints(sample):
    result = weir.run(sample, "rtt", slow="10ms")
    for stream in ("rtts", "findings"):
        expected = printed("-r", sample, "-m", "rtt,slow=10ms", "--stream", stream)
        assert expected
        # The times are compared below: pyarrow has no objects with nanoseconds.
        rows = result[stream].drop_columns(["time"]).to_pylist()
        assert rows == [{name: row[name] for name in row if name not in ("module", "stream", "time")} for row in expected]


def test_times_are_exact(sample):
    import pyarrow as pa

    result = weir.run(sample, "rtt")
    assert result.table.schema.field("time").type == pa.timestamp("ns", tz="UTC")
    ns = result.table["time"].cast(pa.int64()).to_pylist()
    expected = [row["time"] for row in printed("-r", sample, "-m", "rtt", "--stream", "rtts")]
    seconds = [datetime.datetime.fromtimestamp(each // 10**9, datetime.timezone.utc) for each in ns]
    assert [f"{s:%Y-%m-%dT%H:%M:%S}.{each % 10**9:09}Z" for s, each in zip(seconds, ns)] == expected


def test_the_default_modules_run_without_a_module(sample):
    results = weir.run(sample)
    command = subprocess.run([weir.binary(), "run", "-q", "-r", sample, "--json"], check=True, capture_output=True)
    expected = json.loads(command.stdout)
    assert list(results) == [module["name"] for module in expected["modules"]]
    for module in expected["modules"]:
        assert {name: table.num_rows for name, table in results[module["name"]].tables.items()} == {
            stream["name"]: stream["rows"] for stream in module["streams"]
        }
    assert results.summary["overview"] == expected["overview"]
    assert set(results.tables) == {f"{m['name']}.{s['name']}" for m in expected["modules"] for s in m["streams"]}


def test_several_modules_share_a_run(sample):
    results = weir.run(sample, ["rtt", weir.module("rtt", slow="1ms"), weir.module("port-count", ports=[53, 123])])
    assert list(results) == ["rtt", "rtt-2", "port-count"]
    assert results["rtt"].findings.num_rows == 0 < results["rtt-2"].findings.num_rows
    assert results["rtt"].summary is results.summary
    with pytest.raises(weir.Error, match="port-count has 2 record streams: counts, totals"):
        _ = results["port-count"].table
    with pytest.raises(KeyError, match="no stream 'nothing'; it has counts, totals"):
        results["port-count"]["nothing"]


def test_filter_limit_and_jobs(sample):
    result = weir.run(sample, "rtt", filter="tcp port 80", limit=50, jobs=1)
    assert result.summary["capture"]["selected"] == 50
    for wrong in (0, -1, True, "10", 1.5):
        with pytest.raises(ValueError, match="limit is"):
            weir.run(sample, "rtt", limit=wrong)
    with pytest.raises(weir.Error, match="filter expression `-x`"):
        weir.run(sample, "rtt", filter="-x")


def test_the_result_does_not_depend_on_the_kind_of_capture(sample):
    content = pathlib.Path(sample).read_bytes()
    rows = weir.run(sample, "rtt").table
    for capture in (
        pathlib.Path(sample),
        os.path.abspath(sample),
        [sample],
        (each for each in [sample]),
        "traf*.pcap",
        ".",
        content,
        bytearray(content),
        memoryview(content),
        io.BytesIO(content),
    ):
        assert weir.run(capture, "rtt").table.equals(rows)
    with open(sample, "rb") as file:
        assert weir.run(file, "rtt").table.equals(rows)
    shutil.copy(sample, "copy.pcap")
    assert weir.run([sample, "copy.pcap"], "rtt").summary["capture"]["packets"] == 17400


def test_captures_with_odd_paths(sample, place):
    rows = weir.run(sample, "rtt").table
    names = ["with space.pcap", "-r.pcap", "a,b=c.pcap", "[1]*?.pcap", "-", "new\nline.pcap", "$(true);'\".pcap"]
    names.append(os.fsdecode(b"\xff.pcap"))
    for name in names:
        os.link(sample, name)
        assert weir.run(name, "rtt").table.equals(rows), name
        os.unlink(name)


def test_wrong_captures(sample):
    with pytest.raises(weir.Error, match="nothing.pcap: cannot be opened") as error:
        weir.run("nothing.pcap", "rtt")
    assert error.value.exit_code == 1
    with pytest.raises(ValueError, match="the list of captures is empty"):
        weir.run([], "rtt")
    with pytest.raises(TypeError, match="paths only"):
        weir.run([b"bytes"], "rtt")
    with pytest.raises(weir.Error, match="not a capture"):
        weir.run(b"no capture, but long enough to be one", "rtt")
    with open(sample, encoding="latin-1") as text, pytest.raises(TypeError, match="binary mode"):
        weir.run(text, "rtt")


def test_a_file_that_fails_is_an_error(sample):
    class Failing(io.RawIOBase):
        def __init__(self):
            self.pieces = [pathlib.Path(sample).read_bytes()[:100_000]]

        def read(self, size=-1):
            if self.pieces:
                return self.pieces.pop()
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        weir.run(Failing(), "rtt")


def test_an_endless_file_ends_with_the_limit(sample):
    class Endless:
        def __init__(self):
            content = pathlib.Path(sample).read_bytes()
            self.pieces, self.packets = [content[:24]], content[24:]

        def read(self, size):
            return self.pieces.pop() if self.pieces else self.packets

    with pytest.warns(weir.RunWarning, match="time goes backwards"):
        result = weir.run(Endless(), "rtt", limit=20_000)
    assert result.summary["capture"]["packets"] == 20_000


def test_parameters(sample):
    both = [weir.run(sample, "rtt", table_size=256), weir.run(sample, "rtt", **{"table-size": 256})]
    both.append(weir.run(sample, "rtt", parameters={"table-size": 256}))
    for result in both:
        assert json.loads(result.table.schema.metadata[b"weir.parameters"])["table-size"] == "256"
    with pytest.raises(TypeError, match="table-size is given twice"):
        weir.run(sample, "rtt", table_size=1, parameters={"table-size": 2})
    with pytest.raises(weir.Error, match="no parameter `foo`; there is `table-size`") as error:
        weir.run(sample, "rtt", foo=1)
    assert error.value.exit_code == 2
    with pytest.raises(TypeError, match="parameters belong to one module"):
        weir.run(sample, ["rtt", "flows"], slow="1ms")
    for wrong in ({"slow": object()}, {"slow": {"a": 1}}, {"slow": [[1]]}):
        with pytest.raises(TypeError):
            weir.run(sample, "rtt", parameters=wrong)
    for name in ("a,slow", "a=b", "", "a\\"):
        with pytest.raises(TypeError, match="no name of a parameter"):
            weir.run(sample, "rtt", parameters={name: 1})


def test_values_of_parameters(sample):
    def value(module, name, given):
        return weir.module(module, parameters={name: given}).parameters[name].value

    assert value("rtt", "slow", datetime.timedelta(milliseconds=1500)) == value("rtt", "slow", "1500ms") == "1.5s"
    assert value("port-count", "ports", [53, 123]) == value("port-count", "ports", range(53, 124, 70)) == "53,123"
    source = ipaddress.ip_network("192.0.2.0/24")
    assert value("dscp-mark", "source", source) == value("dscp-mark", "source", "192.0.2.0/24") == "192.0.2.0/24"
    assert value("rtt", "layer", None) == "inner"
    assert value("rtt", "table-size", fractions.Fraction(512).numerator) == "512"
    assert value("scan", "failed", 0.25) == "0.25"


def test_a_text_is_one_value(sample):
    # Packets of the sample have these bytes; a comma or backslash that were not escaped would end or change the value.
    assert weir.run(sample, "payload-match", needle="/bin/").table.num_rows > 0
    for needle in ("a,first=1", "a\\b", "a\\,b", "a=b", "new\nline", " space ", "ä"):
        table = weir.run(sample, "payload-match", needle=needle).table
        shown = json.loads(table.schema.metadata[b"weir.parameters"])
        assert shown["first"] == "2"
        spelled = "".join(f"\\x{byte:02x}" for byte in needle.encode())
        also = weir.run(sample, "payload-match", needle=needle.encode()).table
        command = weir.module("payload-match", needle=needle).check()
        assert also.schema.metadata[b"weir.parameters"] == table.schema.metadata[b"weir.parameters"], spelled
        assert command["admitted"]


def test_out_keeps_the_files(sample, place):
    result = weir.run(sample, "rtt", out="with space/records")
    assert result.files["rtts"] == place / "with space/records/rtt/rtts.parquet"
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(result.files["rtts"]).equals(result.table)
    with pytest.raises(weir.Error, match="earlier run"):
        weir.run(sample, "rtt", out="with space/records")
    assert weir.run(sample, "rtt").files == {}


def test_write_has_the_packets(sample):
    weir.run(sample, "dscp-mark", source="198.51.100.0/24", dscp=46, write="marked out.pcap")
    again = weir.run("marked out.pcap", "rtt")
    assert again.summary["capture"]["packets"] == 8700


def test_warnings_point_to_the_call(sample):
    with open(sample, "r+b") as file:
        file.truncate(100_001)
    with pytest.warns(weir.RunWarning, match="truncated at offset") as caught:
        result = weir.run(sample, "rtt")
    assert [each.filename for each in caught] == [__file__]
    assert result.summary["capture"]["truncated"]
    with pytest.warns(weir.RunWarning) as caught:
        weir.module("rtt").run(sample)
    assert [each.filename for each in caught] == [__file__]


def test_time_limit(sample):
    begin = time.monotonic()
    with pytest.raises(weir.Error, match="time limit of 0.5 s"):
        weir.run(Waiting(sample), "rtt", time_limit=0.5)
    assert time.monotonic() - begin < 8


class Waiting:
    """A file that gives the begin of a capture, and then nothing, and no end."""

    def __init__(self, path):
        self.pieces = [pathlib.Path(path).read_bytes()[:100_000]]
        self.never = threading.Event()

    def read(self, size):
        return self.pieces.pop() if self.pieces else self.never.wait()


CTRL_C = """
import os, sys, weir
sys.path.insert(0, sys.argv[1])
from test_run import Waiting
try:
    weir.run(Waiting("traffic.pcap"), "rtt", write="out.pcap")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


def test_ctrl_c_ends_the_program_and_leaves_nothing(sample, place):
    here = os.path.dirname(__file__)
    python = subprocess.Popen([sys.executable, "-c", CTRL_C, here], stdout=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not os.path.exists("out.pcap.part"):  # the run has begun
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = pathlib.Path(f"/proc/{python.pid}/task/{python.pid}/children").read_text().split()
        assert len(children) == 1
        os.kill(python.pid, signal.SIGINT)
        assert python.communicate(timeout=300)[0] == b"interrupted\n"
        assert not os.path.exists(f"/proc/{children[0]}")
    finally:
        python.kill()
        python.wait()
    # The signal let weir complete the user's file.
    assert os.path.exists("out.pcap") and not os.path.exists("out.pcap.part")


def test_no_child_is_left_and_no_program_of_the_path_is_used(sample, place, monkeypatch):
    (place / "weir").write_text("#!/bin/sh\nexit 7\n")
    (place / "weir").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    assert weir.run(sample, "rtt").table.num_rows
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_summary_has_the_fields_of_its_schema(sample):
    from conftest import ROOT
    from weir import _summary

    schema = json.loads((ROOT / "docs/reference/summary.schema.json").read_text())["properties"]
    module = schema["modules"]["items"]["properties"]
    for kind, properties in (
        (_summary.Summary, schema),
        (_summary.Capture, schema["capture"]["properties"]),
        (_summary.ModuleSummary, module),
        (_summary.Fault, module["first_faults"]["items"]["properties"]),
        (_summary.Stream, module["streams"]["items"]["properties"]),
    ):
        assert set(kind.__annotations__) == set(properties)


def test_the_command_is_the_program():
    assert subprocess.run([weir.binary(), "--version"], check=True, capture_output=True, text=True).stdout == (
        f"weir {weir.__version__}\n"
    )
    for arguments in (["--version"], ["check", "no such module"]):
        command = subprocess.run([weir.binary(), *arguments], capture_output=True)
        module = subprocess.run([sys.executable, "-m", "weir", *arguments], capture_output=True)
        assert (command.stdout, command.stderr, command.returncode) == (module.stdout, module.stderr, module.returncode)
