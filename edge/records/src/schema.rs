//! The Arrow schema of a stream.

use arrow_schema::{DataType, Field as Column, Schema, TimeUnit};
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, Manifest, StreamField};

/// The key of a column's unit, and the unit of times that state none.
const UNIT: &str = "unit";
const NANOSECONDS: &str = "ns";

/// The columns of a stream, with units and descriptions as metadata. No column has nulls.
pub(crate) fn schema(label: &str, manifest: &Manifest, stream: &DeclaredStream) -> Schema {
    let columns: Vec<Column> = stream.fields.iter().map(column).collect();
    Schema::new_with_metadata(columns, metadata(label, manifest, stream))
}

/// Where the rows come from. It is both in the schema and among the file's key-value pairs.
pub(crate) fn metadata(label: &str, manifest: &Manifest, stream: &DeclaredStream) -> HashMap<String, String> {
    [
        ("weir.module", manifest.name.as_str()),
        ("weir.module_version", manifest.version.as_str()),
        ("weir.label", label),
        ("weir.stream", stream.name.as_str()),
        ("weir.version", env!("CARGO_PKG_VERSION")),
        ("description", stream.summary.as_str()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

fn column(field: &StreamField) -> Column {
    let ty = match field.ty {
        FieldType::U8 => DataType::UInt8,
        FieldType::U16 => DataType::UInt16,
        FieldType::U32 => DataType::UInt32,
        FieldType::U64 => DataType::UInt64,
        FieldType::I32 => DataType::Int32,
        // A duration is a number of nanoseconds: Arrow's Duration comes back as three different types from DuckDB (BIGINT), pandas
        // (timedelta64) and DataFusion (Duration, which few of its aggregates take), an integer as the same in all.
        FieldType::I64 | FieldType::Duration => DataType::Int64,
        FieldType::F32 => DataType::Float32,
        FieldType::F64 => DataType::Float64,
        FieldType::Bool => DataType::Boolean,
        FieldType::Timestamp => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        FieldType::Ip | FieldType::String => DataType::Utf8,
        FieldType::Bytes => DataType::Binary,
    };
    let unit = match (field.unit.as_str(), field.ty) {
        ("", FieldType::Timestamp | FieldType::Duration) => NANOSECONDS,
        (unit, _) => unit,
    };
    let metadata: HashMap<_, _> = [(UNIT, unit), ("description", field.summary.as_str())]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Column::new(field.name.as_str(), ty, false).with_metadata(metadata)
}

/// How the columns are encoded.
pub(crate) fn properties(schema: &Schema) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        // Statistics per row group let readers skip; those per page would be held in memory until the end of the run.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_size_limit(256 << 10)
        .set_dictionary_page_size_limit(256 << 10)
        // Row groups are ended by the file, which writes a footer behind each.
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(None);
    for field in schema.fields() {
        let is_time = field.metadata().get(UNIT).is_some_and(|unit| unit == NANOSECONDS);
        let encoding = match field.data_type() {
            // Times rise in small steps, and hardly ever repeat.
            DataType::Timestamp(..) => Encoding::DELTA_BINARY_PACKED,
            DataType::Int64 if is_time => Encoding::DELTA_BINARY_PACKED,
            DataType::Float32 | DataType::Float64 => Encoding::PLAIN,
            _ => continue,
        };
        let path = ColumnPath::from(field.name().as_str());
        properties =
            properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
    }
    properties.build()
}
