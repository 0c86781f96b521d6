# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results in pandas, polars and DuckDB, compared with one another, and the examples of the documents."""

import doctest
import re

import pytest
import weir
from conftest import ROOT

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")


def test_the_libraries_see_the_same(sample):
    result = weir.run(sample, "flows")
    rows = result.table.to_pylist()
    expected = sum(row["source_bytes"] for row in rows), sum(row["rtt_ns"] or 0 for row in rows)
    frame, lazy = result.to_pandas(), result.to_polars()
    assert (frame["source_bytes"].sum(), frame["rtt_ns"].sum()) == expected
    assert (lazy["source_bytes"].sum(), lazy["rtt_ns"].sum()) == expected
    assert duckdb.sql("select sum(source_bytes), sum(rtt_ns) from result").fetchall() == [expected]
    assert polars.DataFrame(result).equals(lazy)
    assert pandas.DataFrame(lazy.to_dict(as_series=False))["src"].equals(frame["src"])


def test_pandas_types(sample):
    result = weir.run(sample, "flows")
    frame = result.to_pandas()
    assert list(frame.columns) == result.table.column_names
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert str(frame["src_port"].dtype) == "UInt16" and str(frame["rtt_ns"].dtype) == "Int64"
    assert str(frame["protocol"].dtype) == "uint8" and str(frame["source_bytes"].dtype) == "uint64"
    assert frame["rtt_ns"].isna().sum() == result.table["rtt_ns"].null_count > 0
    assert frame["time"].iloc[0].value == result.table["time"][0].value
    flags = weir.run(sample, "tls").to_pandas()
    assert str(flags["resumed"].dtype) == "boolean" and str(flags["retried"].dtype) == "bool"
    # The options of pyarrow replace these types.
    assert str(result.to_pandas(types_mapper=pandas.ArrowDtype)["src_port"].dtype) == "uint16[pyarrow]"


def test_polars_and_duckdb_types(sample):
    result = weir.run(sample, "flows")
    assert result.to_polars().schema["time"] == polars.Datetime("ns", "UTC")
    assert result.to_polars().schema["src"] == polars.String
    types = dict(duckdb.sql("select column_name, column_type from (describe select * from result)").fetchall())
    assert types["src_port"] == "USMALLINT" and types["rtt_ns"] == "BIGINT" and types["time"].startswith("TIMESTAMP")


def test_findings_and_named_streams(sample):
    result = weir.run(sample, "rtt", slow="10ms")
    assert len(result.to_pandas("findings")) == result.to_polars("findings").height == result.findings.num_rows > 0
    assert duckdb.sql("select count(*) from result").fetchall() == [(result["rtts"].num_rows,)]


@pytest.mark.parametrize("document", ["packaging/wheel/README.md", "docs/COOKBOOK.md"])
def test_examples(document, place):
    # From each block of its own, so that text behind an example is no output of it.
    blocks = re.findall(r"^```pycon\n(.*?)^```", (ROOT / document).read_text(), re.S | re.M)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, document, document, 0)
    assert len(test.examples) >= 2
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.failures == 0
