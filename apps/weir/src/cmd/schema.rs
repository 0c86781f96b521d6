//! `weir schema`: JSON schemas of the documents that weir prints and reads.

use crate::Failure;
use crate::json;
use crate::module_arg::{ModuleArg, ModuleArgError};
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::Write;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, Manifest, StreamField, manifest_of};
use weir_units::Escape as _;

/// The name of the schema of rows, which depends on a module.
const ROWS: &str = "rows";

/// A schema in docs/reference, which is the same for all modules.
struct PublishedSchema {
    /// The name on the command line.
    name: &'static str,
    /// The documents that the schema describes.
    contents: &'static str,
    /// The file.
    text: &'static str,
}

/// Makes a [`PublishedSchema`] of a file in docs/reference.
macro_rules! published {
    ($name:literal, $file:literal, $contents:literal) => {
        PublishedSchema {
            name: $name,
            contents: $contents,
            text: include_str!(concat!("../../../../docs/reference/", $file, ".schema.json")),
        }
    };
}

const PUBLISHED: [PublishedSchema; 14] = [
    published!("summary", "summary", "the document of `weir run --json` and `weir run --summary FILE`"),
    published!("check", "check", "the document of `weir check --json`"),
    published!("compile", "compile", "the document of `weir compile --json`"),
    published!("test", "test", "the document of `weir test --json`"),
    published!("session", "session", "the document of `weir session show NAME --json`"),
    published!("link", "link", "the document of `weir link show IFACE --json`"),
    published!("records", "records", "the document of `weir records --json`"),
    published!("ledger", "ledger", "the document of `weir ledger --json`"),
    published!("ledger-decisions", "ledger-decisions", "the document of `weir ledger --decisions --json`"),
    published!("ledger-entry", "ledger-entry", "a line of `weir ledger --entries`"),
    published!("explanation", "explanation", "the document of `weir credential explain --json`"),
    published!("credentials", "credentials", "the document of `weir credential list --json`"),
    published!("revocations", "revocations", "the document of `weir credential revocations --json`"),
    published!("manifest", "weir", "weir.toml, the manifest of a module"),
];

/// `weir schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The schema; without it, all are listed
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print the schema of a row of this module, as `weir run --format json` and `weir follow --format json` print it: a shipped module, or a
    /// .wasm file
    #[arg(long, value_name = "MODULE", conflicts_with = "name")]
    pub rows: Option<String>,
}

/// Errors of `weir schema`.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// There is no schema of this name.
    #[error("there is no schema `{}`; `weir schema` lists them", .0.escaped())]
    Unknown(String),
    /// The schema of rows needs a module.
    #[error("the schema of rows depends on the module: name it with `weir schema --rows MODULE`")]
    RowsOfModule,
}

/// Prints a schema, or the list of schemas.
pub fn schema(out: &mut impl Write, args: &SchemaArgs) -> Result<(), Failure> {
    if let Some(module) = &args.rows {
        let spec = ModuleArg::parse(module)?;
        let (manifest, _) = manifest_of(&spec.bytes()?)
            .map_err(|refusal| ModuleArgError::Refused { name: module.clone(), refusal })?;
        json::document(out, &rows_schema(&manifest))?;
        return Ok(());
    }
    match args.name.as_deref() {
        None => {
            let list = PUBLISHED.iter().map(|schema| (schema.name, schema.contents));
            let list = list.chain([(ROWS, "a row of a module, by `weir schema --rows MODULE`")]);
            let width = list.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, contents) in list {
                writeln!(out, "{name:width$}  {contents}")?;
            }
        }
        Some(ROWS) => return Err(SchemaError::RowsOfModule.into()),
        Some(name) => {
            let found = PUBLISHED.iter().find(|schema| schema.name == name);
            let schema = found.ok_or_else(|| SchemaError::Unknown(name.to_owned()))?;
            out.write_all(schema.text.as_bytes())?;
        }
    }
    Ok(())
}

/// Returns the schema of a row of the module, of whichever stream.
fn rows_schema(manifest: &Manifest) -> Value {
    let rows: Vec<Value> = manifest.streams.iter().map(row_schema).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Rows of {}", manifest.name),
        "description": format!("{}. A line of `--format json`.", manifest.summary),
        // A module without streams has no rows.
        "oneOf": if rows.is_empty() { vec![json!(false)] } else { rows },
    })
}

fn row_schema(stream: &DeclaredStream) -> Value {
    let mut properties = Map::new();
    properties.insert(
        "module".to_owned(),
        json!({ "type": "string", "description": "Label of the module: its name in the run or session." }),
    );
    properties.insert("stream".to_owned(), json!({ "const": stream.name.as_str() }));
    for field in &stream.fields {
        properties.insert(field.name.to_string(), field_schema(field));
    }
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "title": stream.name.as_str(),
        "description": stream.summary,
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

/// Returns the schema of a field's values, as `weir_rows::JsonRows` writes them. `unit` and `semantic` are annotations, which
/// validators ignore.
fn field_schema(field: &StreamField) -> Value {
    let integer = |min: i64, max: u64| ("integer", json!({ "minimum": min, "maximum": max }));
    let signed = |min: i64, max: i64| ("integer", json!({ "minimum": min, "maximum": max }));
    let (kind, bounds) = match field.ty {
        FieldType::U8 => integer(0, u8::MAX.into()),
        FieldType::U16 => integer(0, u16::MAX.into()),
        FieldType::U32 => integer(0, u32::MAX.into()),
        FieldType::U64 => integer(0, u64::MAX),
        FieldType::I32 => signed(i32::MIN.into(), i32::MAX.into()),
        FieldType::I64 | FieldType::Duration => signed(i64::MIN, i64::MAX),
        FieldType::F32 | FieldType::F64 => ("number", json!({})),
        FieldType::Bool => ("boolean", json!({})),
        FieldType::Timestamp => ("string", json!({ "format": "date-time" })),
        FieldType::Ip => ("string", json!({ "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] })),
        FieldType::String => ("string", json!({})),
        FieldType::Bytes => ("string", json!({ "pattern": "^([0-9a-f]{2})*$" })),
    };
    let mut schema = Map::new();
    // A float that is not finite is null.
    let is_float = matches!(field.ty, FieldType::F32 | FieldType::F64);
    let has_null = field.presence.is_some() || is_float;
    schema.insert("type".to_owned(), if has_null { json!([kind, "null"]) } else { json!(kind) });
    if let Value::Object(bounds) = bounds {
        // The formats of addresses apply to strings alone, so null fits them, too.
        schema.extend(bounds);
    }
    schema.insert("description".to_owned(), json!(field.summary));
    if !field.unit.is_empty() {
        schema.insert("unit".to_owned(), json!(field.unit));
    }
    if let Some(semantic) = field.semantic {
        schema.insert("semantic".to_owned(), json!(semantic.name));
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::PUBLISHED;
    use clap::{Command, CommandFactory as _};

    /// Adds the commands that have an option `--json`.
    fn add_with_json(command: &Command, path: &str, found: &mut Vec<String>) {
        if command.get_arguments().any(|argument| argument.get_long() == Some("json")) {
            found.push(path.to_owned());
        }
        for below in command.get_subcommands() {
            add_with_json(below, &format!("{path} {}", below.get_name()), found);
        }
    }

    #[test]
    fn each_command_with_json_has_a_schema() {
        let mut commands = Vec::new();
        add_with_json(&crate::cli::Cli::command(), "weir", &mut commands);
        for command in &commands {
            let is_of =
                |contents: &str| contents.contains(&format!("`{command} ")) && contents.contains("--json`");
            assert!(PUBLISHED.iter().any(|schema| is_of(schema.contents)), "{command} --json has no schema");
        }
        assert!(commands.contains(&"weir session show".to_owned()), "{commands:?}");
    }
}
