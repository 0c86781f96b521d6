//! Written values, read back with the parquet crate's own reader.

use crate::rows::{Cell, lay_out, manifest, write, write_extremes};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types as t;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::path::Path;
use weir_records::{Durability, ModuleFiles, RecordSource};
use weir_session::{Record, RecordOrder};

pub fn batches(path: &Path) -> Vec<RecordBatch> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    reader.build().unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_type_comes_back_with_its_unit() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_extremes(dir.path());
    assert_eq!(path, dir.path().join("probe/all.parquet"));

    let batch = batches(&path).remove(0);
    let column = |name: &str| batch.column_by_name(name).unwrap();
    assert_eq!(column("a-u8").as_primitive::<t::UInt8Type>().values(), &[0, 255]);
    assert_eq!(column("a-u16").as_primitive::<t::UInt16Type>().values(), &[0, u16::MAX]);
    assert_eq!(column("a-u32").as_primitive::<t::UInt32Type>().values(), &[0, u32::MAX]);
    assert_eq!(column("a-u64").as_primitive::<t::UInt64Type>().values(), &[0, u64::MAX]);
    assert_eq!(column("a-i32").as_primitive::<t::Int32Type>().values(), &[i32::MIN, i32::MAX]);
    assert_eq!(column("a-i64").as_primitive::<t::Int64Type>().values(), &[i64::MIN, i64::MAX]);
    assert_eq!(column("a-f32").as_primitive::<t::Float32Type>().values(), &[-1.5, 1.5]);
    let floats = column("a-f64").as_primitive::<t::Float64Type>();
    assert!(floats.value(0) == -1e300 && floats.value(1).is_nan());
    let truths = column("a-bool").as_boolean();
    assert_eq!([truths.value(0), truths.value(1)], [false, true]);
    let times = column("a-timestamp").as_primitive::<t::TimestampNanosecondType>();
    assert_eq!(
        (times.values().to_vec(), times.timezone()),
        (vec![0, 1_700_000_000_123_456_789], Some("UTC"))
    );
    assert_eq!(column("a-duration").as_primitive::<t::Int64Type>().values(), &[-1, 1_500_000]);
    let addresses = column("a-ip").as_string::<i32>();
    assert_eq!([addresses.value(0), addresses.value(1)], ["10.0.0.1", "2001:db8::1"]);
    let texts = column("a-string").as_string::<i32>();
    assert_eq!([texts.value(0), texts.value(1)], ["", "näme \u{fffd}"]);
    let bytes = column("a-bytes").as_binary::<i32>();
    assert_eq!([bytes.value(0), bytes.value(1)], [b"\x00\xff".as_slice(), b""]);

    let schema = batch.schema();
    let unit = |name: &str| schema.field_with_name(name).unwrap().metadata().get("unit").cloned();
    assert_eq!(unit("a-u64").as_deref(), Some("packets"));
    assert_eq!((unit("a-duration").as_deref(), unit("a-ip")), (Some("ns"), None));
    assert_eq!(schema.field(0).metadata()["description"], "as u8");
    let file = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let from = |key: &str| file.schema().metadata().get(key).cloned().unwrap();
    assert_eq!(
        ["weir.module", "weir.module_version", "weir.label", "weir.stream"].map(from),
        ["probe", "2.1", "probe", "all"]
    );
    assert!(schema.fields().iter().all(|field| !field.is_nullable()));
}

#[test]
fn null_fields_of_every_type_come_back_as_nulls() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = crate::rows::manifest_with("optional = true");
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest, Durability::AtEnd).unwrap();
    let [values, _] = crate::rows::extremes();
    // Row n has null in field n, and a value in all others.
    for null in 0..values.len() {
        let mut cells = values.clone();
        cells[null] = Cell::Null;
        write(&mut files, &manifest, 0, &cells).unwrap();
    }
    let path = files.finish().unwrap().remove(0).path.unwrap();
    let batch = batches(&path).remove(0);
    assert!(batch.schema().fields().iter().all(|field| field.is_nullable()));
    for (field, column) in batch.columns().iter().enumerate() {
        let nulls: Vec<usize> = (0..column.len()).filter(|row| column.is_null(*row)).collect();
        assert_eq!(nulls, [field], "field {field}");
    }
}

#[test]
fn a_column_names_its_field_as_other_tools_do() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = weir_admission::Manifest::parse(
        b"name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n[[stream]]\nname='s'\n\
          [[stream.field]]\nname='src'\ntype='ip'\nsemantic='source.ip'\n",
    )
    .unwrap();
    let mut files = ModuleFiles::create(Some(dir.path()), "m", &manifest, Durability::AtEnd).unwrap();
    write(&mut files, &manifest, 0, &[Cell::Ip("192.0.2.1")]).unwrap();
    let batch = batches(&files.finish().unwrap().remove(0).path.unwrap()).remove(0);
    let schema = batch.schema();
    let metadata = schema.field(0).metadata();
    assert_eq!(
        ["semantic", "ecs", "zeek", "eve", "ipfix"].map(|key| metadata[key].as_str()),
        ["source.ip", "source.ip", "id.orig_h", "src_ip", "sourceIPv4Address, sourceIPv6Address"]
    );
}

#[test]
fn addresses_are_written_as_the_standard_library_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = weir_admission::Manifest::parse(
        b"name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n[[stream]]\nname='s'\n[[stream.field]]\nname='a'\ntype='ip'\n",
    )
    .unwrap();
    let mut files = ModuleFiles::create(Some(dir.path()), "m", &manifest, Durability::AtEnd).unwrap();
    let wanted: Vec<String> = (0..=255u8)
        .map(|i| std::net::Ipv4Addr::new(i, i.wrapping_mul(7), i.wrapping_add(99), 255 - i).to_string())
        .chain(["::".into(), "::1".into(), "fe80::1:2".into(), "0.0.0.0".into(), "255.255.255.255".into()])
        .collect();
    for text in &wanted {
        write(&mut files, &manifest, 0, &[Cell::Ip(text)]).unwrap();
    }
    let path = files.finish().unwrap().remove(0).path.unwrap();
    let batch = batches(&path).remove(0);
    let read: Vec<_> = batch.column(0).as_string::<i32>().iter().map(|a| a.unwrap().to_owned()).collect();
    assert_eq!(read, wanted);
}

#[test]
fn text_that_is_not_utf8_is_replaced_and_the_file_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest();
    let mut cells = crate::rows::extremes()[0].clone();
    cells[12] = Cell::Text(b"a\xffb");
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest, Durability::AtEnd).unwrap();
    write(&mut files, &manifest, 0, &cells).unwrap();
    let path = files.finish().unwrap().remove(0).path.unwrap();
    assert_eq!(
        batches(&path)[0].column_by_name("a-string").unwrap().as_string::<i32>().value(0),
        "a\u{fffd}b"
    );
}

#[test]
fn times_beyond_the_range_of_a_file_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest();
    let last = i64::MAX.cast_unsigned();
    let files = |out: Option<&Path>| {
        let mut files = ModuleFiles::create(out, "probe", &manifest, Durability::AtEnd).unwrap();
        for time in [0, last, last + 1, u64::MAX] {
            let mut cells = crate::rows::extremes()[0].clone();
            cells[9] = Cell::Bits(time);
            write(&mut files, &manifest, 0, &cells).unwrap();
        }
        files
    };
    assert_eq!(files(Some(dir.path())).so_far()[0].late, 2);
    let stream = files(Some(dir.path())).finish().unwrap().remove(0);
    assert_eq!((stream.rows, stream.late), (4, 2));
    let batch = batches(&stream.path.unwrap()).remove(0);
    let times = batch.column_by_name("a-timestamp").unwrap().as_primitive::<t::TimestampNanosecondType>();
    assert_eq!(times.values(), &[0, i64::MAX, i64::MAX, i64::MAX]);
    // Without files there are no wrong times.
    assert_eq!(files(None).finish().unwrap()[0].late, 0);
}

#[test]
fn a_stream_without_rows_has_a_file_with_its_columns() {
    let dir = tempfile::tempdir().unwrap();
    write_extremes(dir.path());
    let file = File::open(dir.path().join("probe/none.parquet")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert_eq!(
        (reader.schema().field(0).name().as_str(), reader.metadata().file_metadata().num_rows()),
        ("x", 0)
    );
}

#[test]
fn a_file_has_the_facts_by_which_its_rows_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest();
    let facts = [("weir.module_digest", "12ab".to_owned()), ("weir.filter", "udp".to_owned())];
    let source = RecordSource { label: "probe", manifest: &manifest, facts: &facts };
    let done =
        ModuleFiles::create_from(Some(dir.path()), &source, Durability::AtEnd).unwrap().finish().unwrap();
    let file = File::open(done[2].path.as_ref().unwrap()).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let value = |key: &str| pairs.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
    assert_eq!((value("weir.module_digest"), value("weir.filter")), (Some("12ab"), Some("udp")));
    assert_eq!((value("weir.label"), value("weir.stream")), (Some("probe"), Some("small")));
    assert_eq!(reader.schema().metadata()["weir.filter"], "udp");
}

#[test]
fn a_million_rows_come_back_in_order_from_row_groups_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest();
    let mut files = ModuleFiles::create(Some(dir.path()), "probe-2", &manifest, Durability::AtEnd).unwrap();
    for n in 0..1_000_000u64 {
        let row = [n.to_le_bytes(), n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()].concat();
        files.write(&Record { order: RecordOrder::packet(0), stream: 2, row: &row, tail: &[] }).unwrap();
    }
    let done = files.finish().unwrap();
    assert_eq!(
        done.iter().map(|s| (s.name.as_str(), s.rows)).collect::<Vec<_>>(),
        [("all", 0), ("none", 0), ("small", 1_000_000)]
    );
    let file = File::open(done[2].path.as_ref().unwrap()).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let groups = reader.metadata().row_groups();
    assert!(
        groups.len() > 5 && groups.iter().all(|g| g.num_rows() <= 140_000 && g.total_byte_size() < 6 << 20)
    );
    let mut next = 0u64;
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        for n in batch.column(0).as_primitive::<t::UInt64Type>().values() {
            assert_eq!(*n, next);
            next += 1;
        }
    }
    assert_eq!(next, 1_000_000);
}

#[test]
fn long_texts_end_a_row_group_by_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest();
    // The upper bytes of a linear congruential generator, which snappy cannot shrink.
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest, Durability::AtEnd).unwrap();
    for _ in 0..500 {
        let mut cells = crate::rows::extremes()[0].clone();
        let text: Vec<u8> = std::iter::repeat_with(&mut noise).take(60_000).collect();
        cells[13] = Cell::Text(&text);
        let (row, tail) = lay_out(&manifest.streams[0], &cells);
        files.write(&Record { order: RecordOrder::packet(0), stream: 0, row: &row, tail: &tail }).unwrap();
    }
    let path = files.finish().unwrap().remove(0).path.unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let rows: Vec<i64> = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
    assert!(rows.len() > 3 && rows.iter().sum::<i64>() == 500, "{rows:?}");
}

#[test]
fn without_a_folder_rows_are_counted() {
    let manifest = manifest();
    let mut files = ModuleFiles::create(None, "probe", &manifest, Durability::AtEnd).unwrap();
    for cells in crate::rows::extremes() {
        write(&mut files, &manifest, 0, &cells).unwrap();
    }
    assert_eq!(
        files.so_far().iter().map(|stream| (stream.name.as_str(), stream.rows)).next(),
        Some(("all", 2))
    );
    let done = files.finish().unwrap();
    assert_eq!((done[0].rows, done[0].path.clone(), done[1].rows), (2, None, 0));
}
