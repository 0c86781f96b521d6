//! The Arrow schema of a stream.

use crate::RecordSource;
use arrow_schema::{DataType, Field as Column, Schema, TimeUnit};
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, Semantic, StreamField};

/// The metadata key of a column's unit.
const UNIT: &str = "unit";
/// The metadata key of a column's semantic. The names of the same field in other tools are under the name of the tool.
const SEMANTIC: &str = "semantic";
/// The unit of times and durations whose field has no unit.
const NANOSECONDS: &str = "ns";

/// Returns the columns of a stream, with units, descriptions and semantics as metadata. Only the columns of optional fields
/// can have nulls.
pub(crate) fn schema(source: &RecordSource<'_>, stream: &DeclaredStream) -> Schema {
    let columns: Vec<Column> = stream.fields.iter().map(column).collect();
    Schema::new_with_metadata(columns, metadata(source, stream))
}

/// Returns the metadata of a file: the module, label and stream that its rows come from, and the facts by which they can be
/// made again. It is stored both in the Arrow schema and among the Parquet file's key-value pairs.
fn metadata(source: &RecordSource<'_>, stream: &DeclaredStream) -> HashMap<String, String> {
    let RecordSource { label, manifest, facts } = source;
    let facts = facts.iter().map(|(key, value)| (*key, value.as_str()));
    [
        ("weir.module", manifest.name.as_str()),
        ("weir.module_version", manifest.version.as_str()),
        ("weir.label", label),
        ("weir.stream", stream.name.as_str()),
        ("weir.version", env!("CARGO_PKG_VERSION")),
        ("description", stream.summary.as_str()),
    ]
    .into_iter()
    .chain(facts)
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
        // A duration is an integer number of nanoseconds. Readers map Arrow's Duration to different types: DuckDB to
        // BIGINT, pandas to timedelta64, DataFusion to a Duration that few of its aggregates accept. They all read an
        // integer as an integer.
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
    let names = field.semantic.into_iter().flat_map(Semantic::foreign_names);
    let semantic = field.semantic.map(|semantic| (SEMANTIC, semantic.name));
    let metadata: HashMap<_, _> = [(UNIT, unit), ("description", field.summary.as_str())]
        .into_iter()
        .chain(semantic.into_iter().chain(names).map(|(key, value): (&str, &str)| (key, value)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Column::new(field.name.as_str(), ty, field.presence.is_some()).with_metadata(metadata)
}

/// Returns the settings of the Parquet writer: compression, statistics, and the encoding of each column.
pub(crate) fn properties(schema: &Schema) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        // By the statistics of row groups readers can skip row groups. Statistics of pages would stay in memory until the
        // end of the run.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_size_limit(256 << 10)
        .set_dictionary_page_size_limit(256 << 10)
        // Not ended by the Parquet writer: `OpenFile` ends row groups, and writes a footer after each.
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(None);
    for field in schema.fields() {
        let is_time = field.metadata().get(UNIT).is_some_and(|unit| unit == NANOSECONDS);
        let encoding = match field.data_type() {
            // Times rise in small steps, and rarely repeat.
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
