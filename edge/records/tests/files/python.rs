//! pandas and DuckDB read the same values.

use crate::rows::write_extremes;
use std::io::Write;
use std::process::Command;

const SCRIPT: &str = r#"
import sys
path = sys.argv[1]
try:
    import pyarrow.parquet as pq, pandas
except ImportError:
    print("skip pandas")
else:
    table = pq.read_table(path)
    field = table.schema.field("a-u64")
    assert field.metadata == {b"unit": b"packets", b"description": b"as u64"}, field.metadata
    assert table.schema.field("a-duration").metadata[b"unit"] == b"ns"
    assert table.schema.metadata[b"weir.module"] == b"probe", table.schema.metadata
    assert table.schema.metadata[b"weir.stream"] == b"all"
    assert sum(column.null_count for column in table.columns) == 0
    frame = pandas.read_parquet(path)
    assert list(frame["a-u64"]) == [0, 2**64 - 1] and str(frame["a-u64"].dtype) == "uint64"
    assert list(frame["a-i64"]) == [-2**63, 2**63 - 1]
    assert str(frame["a-timestamp"].dtype) == "datetime64[ns, UTC]", frame["a-timestamp"].dtype
    assert frame["a-timestamp"][1].value == 1700000000123456789
    assert list(frame["a-duration"]) == [-1, 1500000]
    assert list(frame["a-ip"]) == ["10.0.0.1", "2001:db8::1"]
    assert list(frame["a-string"]) == ["", "n\u00e4me \ufffd"]
    assert list(frame["a-bytes"]) == [b"\x00\xff", b""]
    assert list(frame["a-bool"]) == [False, True]
    assert frame["a-f32"][0] == -1.5 and frame["a-f64"][0] == -1e300 and frame["a-f64"].isna()[1]
    # The row groups' statistics are there, so that readers can skip.
    statistics = pq.ParquetFile(path).metadata.row_group(0).column(3).statistics
    assert statistics.has_min_max and statistics.max == 2**64 - 1, statistics
    print("pandas ok")
try:
    import duckdb
except ImportError:
    print("skip duckdb")
else:
    rows = duckdb.sql(f"""select "a-u8", "a-u64", "a-i32", "a-duration", "a-ip", "a-bool", epoch_ns("a-timestamp"), "a-string"
        from '{path}' where "a-u64" > 0""").fetchall()
    assert rows == [(255, 2**64 - 1, 2**31 - 1, 1500000, "2001:db8::1", True, 1700000000123456789, "n\u00e4me \ufffd")], rows
    pairs = dict(duckdb.sql(f"select key::varchar, value::varchar from parquet_kv_metadata('{path}')").fetchall())
    assert pairs["weir.module"] == "probe" and pairs["weir.module_version"] == "2.1", pairs
    assert duckdb.sql(f"select count(*) from '{path.replace('all', 'none')}'").fetchall() == [(0,)]
    print("duckdb ok")
try:
    from datafusion import SessionContext
except ImportError:
    print("skip datafusion")
else:
    context = SessionContext()
    context.register_parquet("t", path)
    rows = context.sql('select median("a-duration") as m, max("a-u64") as u, count(distinct "a-ip") as n from t').to_pylist()
    assert rows[0]["u"] == 2**64 - 1 and rows[0]["n"] == 2, rows
    print("datafusion ok")
"#;

/// The variable PYTHON names the interpreter if it is not `python3`.
#[test]
fn pandas_duckdb_and_datafusion_read_the_written_values() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let dir = tempfile::tempdir().unwrap();
    let path = write_extremes(dir.path());
    match Command::new(&python).arg("-c").arg(SCRIPT).arg(&path).output() {
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: {python} does not start: {error}");
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let _ = write!(std::io::stderr(), "{text}");
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
