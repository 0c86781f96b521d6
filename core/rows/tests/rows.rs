//! Rows of every field type in every format, also with hostile contents.

use proptest::prelude::*;
use serde_json::Value;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, Manifest};
use weir_rows::{CsvRows, JsonRows, RowTable, utc};
use weir_session::{RecordOrder, Records};
use weir_units::{Timestamp, is_plain};

/// Returns a stream with one field of each type, named after the type.
fn stream_of_all_types() -> DeclaredStream {
    stream_of_types("")
}

/// Returns a stream with one field of each type, named after the type, with these keys.
fn stream_of_types(keys: &str) -> DeclaredStream {
    let fields: Vec<String> = FieldType::ALL
        .iter()
        .map(|ty| {
            format!(
                "{{ name = \"a_{0}\", type = \"{0}\", unit = \"{1}\", summary = \"s\"{keys} }}",
                ty.name(),
                unit(*ty)
            )
        })
        .collect();
    let manifest = format!(
        "name = \"m\"\nversion = \"1.0.0\"\nabi = {}\nlicense = \"MIT\"\nsummary = \"s\"\nkind = \"monitor\"\nmemory = \"1 MiB\"\n\
         [[stream]]\nname = \"all\"\nsummary = \"one field of each type\"\nfield = [{}]\n",
        weir_abi::ABI_VERSION,
        fields.join(",\n")
    );
    Manifest::parse(manifest.as_bytes()).unwrap().streams[0].clone()
}

fn unit(ty: FieldType) -> &'static str {
    match ty {
        FieldType::Timestamp | FieldType::Duration => "ns",
        FieldType::U64 => "bytes",
        _ => "1",
    }
}

/// A row of [`stream_of_all_types`] with these values.
struct Row<'a> {
    unsigned: u64,
    signed: i64,
    float: f64,
    address: [u8; 16],
    text: &'a [u8],
}

impl Row<'_> {
    fn records(&self, stream: &DeclaredStream) -> Records {
        let mut row = vec![0; stream.row_bytes()];
        let mut put = |offset: usize, bytes: &[u8]| row[offset..offset + bytes.len()].copy_from_slice(bytes);
        let mut indirect = Vec::new();
        for field in &stream.fields {
            let size = field.ty.size();
            match field.ty {
                FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 | FieldType::Timestamp => {
                    put(field.offset, &self.unsigned.to_le_bytes()[..size]);
                }
                FieldType::I32 | FieldType::I64 | FieldType::Duration => {
                    put(field.offset, &self.signed.to_le_bytes()[..size]);
                }
                FieldType::F32 => put(field.offset, &narrow(self.float).to_le_bytes()),
                FieldType::F64 => put(field.offset, &self.float.to_le_bytes()),
                FieldType::Bool => put(field.offset, &[1]),
                FieldType::Ip => put(field.offset, &self.address),
                FieldType::String | FieldType::Bytes => indirect.push(field.offset),
            }
        }
        let mut records = Records::default();
        records.begin(RecordOrder::packet(0), 0, &row);
        for offset in indirect {
            records.append_tail(offset, self.text);
        }
        records
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "tests choose values that an f32 can hold, or do not compare them"
)]
fn narrow(float: f64) -> f32 {
    float as f32
}

const V4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 10];

/// Returns a row as JSON line, CSV line and table line.
fn formats(row: &Row<'_>) -> [String; 3] {
    let stream = stream_of_all_types();
    let records = row.records(&stream);
    let record = records.iter().next().unwrap();
    let (mut json, mut csv, mut line) = (Vec::new(), Vec::new(), String::new());
    JsonRows::new("m", &stream, utc).push(&mut json, &record);
    CsvRows::new(&stream, utc).push(&mut csv, &record);
    let mut table = RowTable::new(&stream, utc, None);
    let cells = table.cells(&record);
    table.push_heading(&mut String::new(), &[]);
    table.push_row(&mut line, &cells);
    [String::from_utf8(json).unwrap(), String::from_utf8(csv).unwrap(), line]
}

#[test]
fn null_is_null_in_json_empty_in_csv_and_a_dash_in_tables() {
    let stream = stream_of_types(", optional = true");
    // The presence bytes are 0; the value of a null field is never read, and so may be anything.
    let mut row = vec![0xff; stream.row_bytes()];
    for field in &stream.fields {
        row[field.presence.unwrap()] = 0;
    }
    let mut records = Records::default();
    records.begin(RecordOrder::packet(0), 0, &row);
    let record = records.iter().next().unwrap();
    let (mut json, mut csv) = (Vec::new(), Vec::new());
    JsonRows::new("m", &stream, utc).push(&mut json, &record);
    CsvRows::new(&stream, utc).push(&mut csv, &record);
    let json: Value = serde_json::from_slice(&json).unwrap();
    for field in &stream.fields {
        assert_eq!(json[field.name.as_str()], Value::Null);
    }
    assert_eq!(csv, format!("{}\n", ",".repeat(stream.fields.len() - 1)).as_bytes());
    assert!(RowTable::new(&stream, utc, None).cells(&record).iter().all(|cell| cell == "–"));
}

#[test]
fn every_type_has_its_text_in_every_format() {
    let row = Row {
        unsigned: 1_700_000_000_123_456_789,
        signed: -1_500,
        float: 0.1,
        address: V4,
        text: b"a,\"b\"",
    };
    let [json, csv, table] = formats(&row);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["module"], &value["stream"]), (&"m".into(), &"all".into()));
    assert_eq!(value["a_u64"], 1_700_000_000_123_456_789_u64);
    assert_eq!(value["a_timestamp"], "2023-11-14T22:13:20.123456789Z");
    assert_eq!(value["a_duration"], -1_500);
    assert_eq!((&value["a_f32"], &value["a_f64"]), (&0.1.into(), &0.1.into()));
    assert_eq!(value["a_ip"], "192.0.2.10");
    assert_eq!(value["a_bool"], true);
    assert_eq!((&value["a_string"], &value["a_bytes"]), (&"a,\"b\"".into(), &"612c226222".into()));
    // Without quotes of JSON, and with those of CSV, the values are the same.
    assert!(
        csv.contains(",2023-11-14T22:13:20.123456789Z,-1500,192.0.2.10,\"a,\"\"b\"\"\",612c226222\n"),
        "{csv}"
    );
    assert!(table.contains("2023-11-14 22:13:20.123456") && table.contains("-1.5 µs"), "{table}");
}

#[test]
fn a_float_that_is_not_finite_is_null() {
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let [json, csv, table] = formats(&Row { unsigned: 0, signed: 0, float, address: V4, text: b"" });
        let value: Value = serde_json::from_str(&json).unwrap();
        assert!(value["a_f32"].is_null() && value["a_f64"].is_null(), "{json}");
        assert!(csv.contains("0,0,,,true"), "{csv}");
        assert!(table.contains('–'), "{table}");
    }
}

#[test]
fn a_text_that_a_spreadsheet_takes_for_a_formula_begins_with_an_apostrophe() {
    for (text, shown) in [
        (&b"=1+1"[..], ",'=1+1,"),
        (b"+1", ",'+1,"),
        (b"-1", ",'-1,"),
        (b"@A1", ",'@A1,"),
        (b"\t=1", ",\\t=1,"),
        (b"=a,b", ",\"'=a,b\","),
        (b"a=1", ",a=1,"),
    ] {
        let [_, csv, _] = formats(&Row { unsigned: 0, signed: 0, float: 0.0, address: V4, text });
        assert!(csv.contains(shown), "{csv}");
    }
}

#[test]
fn local_times_have_their_offset() {
    let stream = stream_of_all_types();
    let row = Row { unsigned: 1_700_000_000_000_000_000, signed: 0, float: 0.0, address: V4, text: b"" };
    let records = row.records(&stream);
    let record = records.iter().next().unwrap();
    let mut json = Vec::new();
    JsonRows::new("m", &stream, |_: Timestamp| -(3 * 3_600 + 1_800)).push(&mut json, &record);
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["a_timestamp"], "2023-11-14T18:43:20.000000000-03:30");
    let cells = RowTable::new(&stream, |_: Timestamp| 3_600, None).cells(&record);
    assert!(cells.iter().any(|cell| cell == "2023-11-14 23:13:20.000000"), "{cells:?}");
}

#[test]
fn a_table_fits_its_line_by_narrow_texts_and_then_by_fewer_fields() {
    let stream = stream_of_all_types();
    let text = "wide ".repeat(30);
    let row = Row { unsigned: 7, signed: 7, float: 0.5, address: V4, text: text.as_bytes() };
    let records = row.records(&stream);
    let record = records.iter().next().unwrap();
    let mut hidden = Vec::new();
    for width in [400, 200, 160, 80, 40, 10] {
        let mut table = RowTable::new(&stream, utc, Some(width));
        let cells = table.cells(&record);
        let mut out = String::new();
        table.push_heading(&mut out, std::slice::from_ref(&cells));
        table.push_row(&mut out, &cells);
        let widest = out.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{widest} of {width}: {out}");
        hidden.push(table.hidden_fields());
    }
    assert!(hidden.is_sorted() && hidden[0] == 0 && hidden[5] > 8, "{hidden:?}");
}

proptest! {
    #[test]
    fn a_row_with_any_bytes_is_one_line_of_plain_characters(
        unsigned: u64,
        signed: i64,
        float: f64,
        address: [u8; 16],
        text in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let lines = formats(&Row { unsigned, signed, float, address, text: &text });
        for line in &lines {
            let line = line.strip_suffix('\n').expect("a line feed ends the row");
            prop_assert!(line.chars().all(is_plain), "{line:?}");
        }
        let value: Value = serde_json::from_str(&lines[0]).unwrap();
        let text = String::from_utf8_lossy(&text);
        prop_assert_eq!(value["a_string"].as_str(), Some(&*text));
        prop_assert_eq!(value["a_u64"].as_u64(), Some(unsigned));
        prop_assert_eq!(value["a_i64"].as_i64(), Some(signed));
        // serde_json itself rounds some floats.
        let number = lines[0].split("\"a_f64\":").nth(1).and_then(|rest| rest.split(',').next());
        prop_assert_eq!(number.unwrap().parse().ok(), Some(float).filter(|float| float.is_finite()));
    }
}
