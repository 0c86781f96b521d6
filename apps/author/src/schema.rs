//! The JSON schema of weir.toml, for editors: they complete keys, types and semantics, and show what they mean.
//!
//! The types and semantics follow from weir's tables. A test compares the keys with those that the manifest's parser knows.

use serde_json::{Value, json};
use weir_abi::ABI_VERSION;
use weir_abi::row::FieldType;
use weir_admission::{ENUM_VALUES_MAX, ParameterType, SEMANTICS};

/// The name of the schema's file, in the folder of generated files.
pub(crate) const FILE: &str = "weir.schema.json";

/// Returns the JSON schema (draft 7, which editors of TOML know) of a module's manifest.
pub fn manifest_schema() -> String {
    let mut text = format!("{:#}", schema());
    text.push('\n');
    text
}

fn schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "weir.toml",
        "description": "The manifest of a module for weir",
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "version", "abi", "license", "summary"],
        "properties": {
            "name": name("Name of the module"),
            "version": text("Version of the module, for people"),
            "abi": {
                "description": "Version of weir's module interface",
                "type": "integer", "enum": [ABI_VERSION],
            },
            "license": text("Licence, as an SPDX expression such as \"Apache-2.0 OR MIT\""),
            "summary": text("Purpose of the module, in one line"),
            "kind": choice(
                "monitor: only looks. filter: drops or patches packets. active: sends frames, or is a load on purpose. \
                 The last two run only when named",
                &["monitor", "filter", "active"],
                "monitor",
            ),
            "parallel": choice(
                "none: one instance sees every packet. flow: instances share the packets by flow",
                &["none", "flow"],
                "none",
            ),
            "memory": amount("Ceiling of the module's memory, such as \"16 MiB\""),
            "keep": {
                "description": "Packets that the module keeps at once", "type": "integer",
                "minimum": 0, "maximum": weir_abi::limit::KEPT_PACKETS, "default": 0,
            },
            "tick": or_parameter(
                "Period of weir_tick in packet time, such as \"1s\"; or a parameter of type duration",
                &json!({ "type": "string", "pattern": DURATION }),
            ),
            "layer": or_parameter(
                "IP header whose flows the module follows: that of the tunnel, or the one inside; or a parameter of type enum or string",
                &json!({ "enum": ["outer", "inner"] }),
            ),
            "calls": {
                "description": "Names of the services that the module calls", "type": "array",
                "items": { "type": "string" }, "maxItems": 16,
            },
            "tcp": tcp(),
            "parameter": list("A parameter, which the operator can set", parameter()),
            "stream": list("A stream of records that the module emits", stream()),
            "output": list("An output for frames that the module sends", json!({
                "type": "object", "additionalProperties": false, "required": ["name"],
                "properties": { "name": name("Name of the output"), "summary": text("The frames that are sent there") },
            })),
            "state": list("A block of state, which a newer version of the module takes over when it replaces this one", json!({
                "type": "object", "additionalProperties": false, "required": ["name", "version", "bytes"],
                "properties": {
                    "name": name("Name of the block; the source gives it an object with WEIR_STATE(NAME, OBJECT)"),
                    "version": {
                        "description": "Version of the layout: raise it whenever the layout changes", "type": "integer",
                        "minimum": 0, "maximum": u32::MAX,
                    },
                    "bytes": {
                        "description": "Size of the object, such as 4096 or \"64 KiB\"",
                        "anyOf": [{ "type": "integer", "minimum": 1, "maximum": weir_abi::limit::STATE_BYTES }, { "type": "string", "pattern": AMOUNT }],
                    },
                    "summary": text("Contents of the block, in one line"),
                },
            })),
            "service": list("A service for modules of other sessions", json!({
                "type": "object", "additionalProperties": false, "required": ["name", "request", "answer"],
                "properties": {
                    "name": { "description": "Name of the service", "type": "string" },
                    "summary": text("Purpose of the service"),
                    "request": amount("The longest request, such as \"64 B\""),
                    "answer": amount("The longest answer, such as \"1 KiB\""),
                },
            })),
            "table": list("A named table that sessions share", json!({
                "type": "object", "additionalProperties": false, "required": ["name", "access", "bytes"],
                "properties": {
                    "name": name("Name of the table"),
                    "summary": text("Contents of the table"),
                    "access": { "description": "read or publish", "enum": ["read", "publish"] },
                    "bytes": amount("The largest size, such as \"64 KiB\""),
                },
            })),
        },
    })
}

/// The pattern of a length of time, as the manifest has it.
const DURATION: &str = r"^[0-9]+(\.[0-9]+)? ?(ns|us|µs|ms|s|m|min|h)$";
/// The pattern of an amount of bytes.
const AMOUNT: &str = r"^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB|kB|MB|GB)?$";

fn tcp() -> Value {
    let number = json!({ "type": "integer", "minimum": 0 });
    let bytes = json!({ "type": "string", "pattern": AMOUNT });
    let duration = json!({ "type": "string", "pattern": DURATION });
    let ports = json!({ "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 65535 } });
    json!({
        "description": "The module follows TCP streams, and exports weir_stream",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "streams": or_parameter("The most streams at a time", &number),
            "buffer": or_parameter("Memory for bytes that arrive out of order", &bytes),
            "first": or_parameter("Bytes of each direction that the module gets", &bytes),
            "idle": or_parameter("Time without packets after which a stream ends", &duration),
            "overlap": or_parameter("Rule that decides between two waiting segments with different bytes for the same place: first, last, bsd, linux or windows", &json!({ "type": "string" })),
            "checksums": or_parameter("True to leave out segments with a wrong checksum", &json!({ "type": "boolean" })),
            "ports": or_parameter("Ports of the streams that are followed", &ports),
            "conflicts": {
                "description": "True for events about repeated bytes that differ", "type": "boolean", "default": false,
            },
        },
    })
}

fn parameter() -> Value {
    let types: Vec<_> = ParameterType::ALL.iter().map(|ty| ty.name()).collect();
    // The schema states no type of these values: the parameter's own type decides which type of TOML is legal.
    let value = |description: &str| json!({ "description": description });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "type"],
        "properties": {
            "name": name("Name of the parameter; the source reads it with param_NAME()"),
            "type": { "description": "Type of the value", "enum": types },
            "values": {
                "description": "The legal values of an enum; the module gets the index of one", "type": "array",
                "items": name("A legal value"), "minItems": 1, "maxItems": ENUM_VALUES_MAX, "uniqueItems": true,
            },
            "default": value("Value if the operator gives none; without a default, the operator has to give one"),
            "min": value("The least value"),
            "max": value("The largest value"),
            "unit": text("Unit of the value, such as \"ns\" or \"packets\""),
            "summary": text("Effect of the parameter, in one line"),
        },
    })
}

fn stream() -> Value {
    let types: Vec<_> = FieldType::ALL.iter().map(|ty| ty.name()).collect();
    let semantics: Vec<_> = SEMANTICS
        .iter()
        .map(|semantic| json!({ "const": semantic.name, "description": semantic.summary }))
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": name("Name of the stream; the source emits its rows with emit_NAME()"),
            "summary": text("Meaning of a row, in one line"),
            "field": list("A field of each row", json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["name", "type"],
                "properties": {
                    "name": name("Name of the field"),
                    "type": { "description": "Type of the value", "enum": types },
                    "optional": { "description": "True if the value can be null", "type": "boolean", "default": false },
                    "semantic": { "description": "Meaning of the field, for other tools", "anyOf": semantics },
                    "unit": text("Unit of the value, such as \"ns\" or \"packets\""),
                    "summary": text("Contents of the field, in one line"),
                },
            })),
        },
    })
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": "string" })
}

fn name(description: &str) -> Value {
    json!({ "description": description, "type": "string", "pattern": "^[a-z][a-z0-9_-]{0,47}$" })
}

fn amount(description: &str) -> Value {
    json!({ "description": description, "type": "string", "pattern": AMOUNT })
}

fn choice(description: &str, values: &[&str], default: &str) -> Value {
    json!({ "description": description, "enum": values, "default": default })
}

fn list(description: &str, items: Value) -> Value {
    json!({ "description": description, "type": "array", "items": items })
}

/// Returns the schema of a key that has a value of the schema `value`, or the name of a parameter that gives the value.
fn or_parameter(description: &str, value: &Value) -> Value {
    let parameter = json!({
        "type": "object", "additionalProperties": false, "required": ["parameter"],
        "properties": { "parameter": name("Name of the parameter that gives the value") },
    });
    json!({ "description": description, "anyOf": [value, parameter] })
}
