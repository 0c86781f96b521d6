//! C and Rust source files that weir generates from a module's manifest: rows as structs, streams and parameters as
//! functions. So the declarations of the manifest need not be repeated in the module's code.

use crate::{DeclaredStream, Manifest, ModuleParameter, Name, ParameterType, TableAccess};
use std::fmt::Write;
use weir_abi::row::FieldType;

/// Returns the C header `module.h`, which a module includes.
pub fn c_header(manifest: &Manifest) -> String {
    let mut out = format!(
        "/* Made from weir.toml of `{}`; changes here are lost. */\n#ifndef WEIR_MODULE_H\n#define WEIR_MODULE_H\n#include \"weir.h\"\n",
        manifest.name
    );
    for (index, stream) in manifest.streams.iter().enumerate() {
        let name = stream.name.identifier();
        _ = writeln!(out, "\n/* {} */\nstruct {name}_row {{", comment(&stream.summary));
        for field in &stream.fields {
            let (ty, suffix) = c_type(field.ty);
            let unit = bracketed(&field.unit);
            _ = writeln!(
                out,
                "    {ty} {}{suffix}; /* {}{} */",
                c_name(&field.name),
                comment(&field.summary),
                comment(&unit)
            );
        }
        for field in stream.fields.iter().filter(|field| field.presence.is_some()) {
            let (presence, field) = (field.presence_name(), c_name(&field.name));
            _ = writeln!(out, "    uint8_t {presence}; /* 0: {field} is null */");
        }
        _ = writeln!(
            out,
            "}};\n_Static_assert(sizeof(struct {name}_row) == {}, \"a row of {name} as weir reads it\");",
            stream.row_bytes()
        );
        _ = writeln!(out, "enum {{ STREAM_{name} = {index} }};");
        _ = writeln!(
            out,
            "static inline int32_t emit_{name}(const struct {name}_row *row) {{\n    return weir_emit(STREAM_{name}, row, sizeof *row);\n}}"
        );
    }
    for (index, output) in manifest.outputs.iter().enumerate() {
        let name = output.name.identifier();
        _ = writeln!(
            out,
            "\n/* {} */\nenum {{ OUTPUT_{name} = {index} }};\nstatic inline int32_t send_{name}(const void *frame, uint32_t len) {{\n    return weir_send(OUTPUT_{name}, frame, len);\n}}",
            comment(&output.summary)
        );
    }
    for (index, table) in manifest.tables.iter().enumerate() {
        let (name, bytes) = (table.name.identifier(), table.bytes);
        _ = writeln!(out, "\n/* {} */\nenum {{ TABLE_{name} = {index} }};", comment(&table.summary));
        _ = match table.access {
            TableAccess::Read { window } => writeln!(
                out,
                "static inline struct weir_table table_{name}(void) {{\n    return weir_table_at({window:#X}u, {bytes}u);\n}}"
            ),
            TableAccess::Publish => writeln!(
                out,
                "static inline int32_t publish_{name}(const void *bytes, uint32_t len) {{\n    return weir_publish(TABLE_{name}, bytes, len);\n}}"
            ),
        };
    }
    for state in &manifest.states {
        let (name, bytes) = (state.name.identifier(), state.bytes);
        _ = writeln!(out, "\n/* {} */\nenum {{ STATE_BYTES_{name} = {bytes} }};", comment(&state.summary));
    }
    for (index, parameter) in manifest.parameters.iter().enumerate() {
        let name = parameter.name.identifier();
        let unit = bracketed(&parameter.unit);
        _ = writeln!(out, "\n/* {}{} */", comment(&parameter.summary), comment(&unit));
        let line = match parameter.ty {
            ParameterType::U64 => {
                format!(
                    "static inline uint64_t param_{name}(void) {{ return (uint64_t)weir_param_int({index}); }}"
                )
            }
            ParameterType::I64 | ParameterType::Duration => {
                format!("static inline int64_t param_{name}(void) {{ return weir_param_int({index}); }}")
            }
            ParameterType::Bool => {
                format!("static inline bool param_{name}(void) {{ return weir_param_int({index}) != 0; }}")
            }
            ParameterType::Enum => c_enum(&name, &parameter.values, index),
            ParameterType::F64 => {
                format!("static inline double param_{name}(void) {{ return weir_param_float({index}); }}")
            }
            _ => format!(
                "static inline uint32_t param_{name}(uint8_t *destination, uint32_t room) {{\n    return (uint32_t)weir_param_bytes({index}, destination, room);\n}}"
            ),
        };
        _ = writeln!(out, "{line}");
    }
    out.push_str("\n#endif\n");
    out
}

/// Returns the Rust file `module.rs`: a Rust module for a crate that depends on `weir_guest`.
pub fn rust_source(manifest: &Manifest) -> String {
    let mut out = format!(
        "// Made from weir.toml of `{}`; changes here are lost.\n#![allow(dead_code)]\n",
        manifest.name
    );
    for (index, stream) in manifest.streams.iter().enumerate() {
        rust_row(&mut out, index, stream);
    }
    if !manifest.outputs.is_empty() {
        _ = writeln!(out, "\n/// The outputs.\npub mod output {{");
        for (index, output) in manifest.outputs.iter().enumerate() {
            _ = writeln!(
                out,
                "    #[doc = {:?}]\n    pub const {}: weir_guest::Output = weir_guest::Output::number({index});",
                output.summary,
                output.name.identifier().to_uppercase()
            );
        }
        out.push_str("}\n");
    }
    if !manifest.tables.is_empty() {
        _ = writeln!(out, "\n/// The named tables.\npub mod table {{");
        for (index, table) in manifest.tables.iter().enumerate() {
            let (name, bytes) = (table.name.identifier().to_uppercase(), table.bytes);
            _ = writeln!(out, "    #[doc = {:?}]", table.summary);
            _ = match table.access {
                TableAccess::Read { window } => writeln!(
                    out,
                    "    pub const {name}: weir_guest::Table<{bytes}> = weir_guest::generated::table({window:#X});"
                ),
                TableAccess::Publish => writeln!(
                    out,
                    "    pub const {name}: weir_guest::Published = weir_guest::generated::published({index});"
                ),
            };
        }
        out.push_str("}\n");
    }
    for state in &manifest.states {
        let name = state.name.identifier().to_uppercase();
        _ = writeln!(
            out,
            "\n#[doc = {:?}]\npub const STATE_BYTES_{name}: usize = {};",
            format!("Size of the state `{}` in bytes. {}", state.name, state.summary),
            state.bytes
        );
    }
    _ = writeln!(out, "\n/// The parameters, as the operator set them.\npub mod param {{");
    for (index, parameter) in manifest.parameters.iter().enumerate() {
        let unit = bracketed(&parameter.unit);
        if parameter.ty == ParameterType::Enum {
            rust_enum(&mut out, parameter);
        }
        let (arguments, result, body) = rust_parameter(parameter, index);
        _ = writeln!(
            out,
            "    #[doc = {:?}]\n    pub fn {}({arguments}) -> {result} {{\n        {body}\n    }}",
            format!("{}{unit}", parameter.summary),
            rust_name(&parameter.name)
        );
    }
    out.push_str("}\n");
    out
}

/// Writes the Rust struct of a stream's rows. With optional fields, the struct in the layout of weir is made when the row is
/// emitted.
fn rust_row(out: &mut String, index: usize, stream: &DeclaredStream) {
    let lifetime = if stream.fields.iter().any(|field| field.ty.is_indirect()) { "<'a>" } else { "" };
    let elided = if lifetime.is_empty() { "" } else { "<'_>" };
    let ty = camel(&stream.name.identifier());
    let optional = || stream.fields.iter().filter(|field| field.presence.is_some());
    let has_optional = optional().next().is_some();
    let repr = if has_optional { "" } else { "#[repr(C)]\n" };
    _ = writeln!(
        out,
        "\n#[doc = {:?}]\n{repr}#[derive(Clone, Copy, Debug)]\npub struct {ty}{lifetime} {{",
        stream.summary
    );
    for field in &stream.fields {
        let unit = bracketed(&field.unit);
        let value = rust_type(field.ty);
        _ = writeln!(
            out,
            "    #[doc = {:?}]\n    pub {}: {},",
            format!("{}{unit}", field.summary),
            rust_name(&field.name),
            if field.presence.is_some() { format!("Option<{value}>") } else { value.to_owned() }
        );
    }
    out.push_str("}\n");
    let size_check = |ty: &str| {
        format!(
            "const _: () = assert!(core::mem::size_of::<{ty}>() == {} || cfg!(not(target_arch = \"wasm32\")));",
            stream.row_bytes()
        )
    };
    if !has_optional {
        _ = writeln!(
            out,
            "{}\nimpl weir_guest::Row for {ty}{elided} {{\n    const STREAM: u32 = {index};\n}}",
            size_check(&ty)
        );
        return;
    }
    _ = writeln!(
        out,
        "impl{lifetime} weir_guest::Row for {ty}{lifetime} {{\n    const STREAM: u32 = {index};\n\n    \
         #[inline(always)]\n    fn emit(&self) -> bool {{\n        #[repr(C)]\n        struct Layout{lifetime} {{"
    );
    for field in &stream.fields {
        _ = writeln!(out, "            {}: {},", rust_name(&field.name), rust_type(field.ty));
    }
    for field in optional() {
        _ = writeln!(out, "            {}: bool,", field.presence_name());
    }
    _ = writeln!(
        out,
        "        }}\n        {}\n        weir_guest::generated::emit(Self::STREAM, &Layout {{",
        size_check("Layout")
    );
    for field in &stream.fields {
        let name = rust_name(&field.name);
        let default = if field.presence.is_some() { ".unwrap_or_default()" } else { "" };
        _ = writeln!(out, "            {name}: self.{name}{default},");
    }
    for field in optional() {
        let name = rust_name(&field.name);
        _ = writeln!(out, "            {}: self.{name}.is_some(),", field.presence_name());
    }
    out.push_str("        })\n    }\n}\n");
}

/// Returns the C enum of a parameter's values, and the function that reads the parameter.
fn c_enum(name: &str, values: &[Name], index: usize) -> String {
    let constants: Vec<_> =
        values.iter().map(|value| format!("PARAM_{name}_{}", value.identifier())).collect();
    format!(
        "enum param_{name} {{ {} }};\nstatic inline enum param_{name} param_{name}(void) {{ return (enum param_{name})weir_param_int({index}); }}",
        constants.join(", ")
    )
}

/// Writes the Rust enum of a parameter's values.
fn rust_enum(out: &mut String, parameter: &ModuleParameter) {
    _ = writeln!(
        out,
        "    #[doc = {:?}]\n    #[derive(Clone, Copy, Debug, PartialEq, Eq)]\n    pub enum {} {{",
        parameter.summary,
        camel(&parameter.name.identifier())
    );
    for value in &parameter.values {
        _ = writeln!(out, "        #[doc = \"`{value}`\"]\n        {},", camel(&value.identifier()));
    }
    out.push_str("    }\n");
}

/// Returns the Rust expression that reads an enum.
fn rust_enum_value(parameter: &ModuleParameter, read: &str) -> String {
    let ty = camel(&parameter.name.identifier());
    let mut out = format!("match {read} {{ ");
    for (index, value) in parameter.values.iter().enumerate() {
        // weir gives no other index than these, so the last arm takes what is left.
        let pattern = if index + 1 == parameter.values.len() { "_".to_owned() } else { index.to_string() };
        _ = write!(out, "{pattern} => {ty}::{}, ", camel(&value.identifier()));
    }
    out + "}"
}

/// Returns a unit in brackets, for the end of a text; empty without a unit.
fn bracketed(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(" [{unit}]") }
}

/// Returns arguments, result type and body of the Rust function for a parameter.
fn rust_parameter(parameter: &ModuleParameter, index: usize) -> (&'static str, String, String) {
    let call = |function: &str| format!("weir_guest::generated::{function}({index}");
    let (arguments, result, body) = match parameter.ty {
        ParameterType::U64 => ("", "u64", call("int") + ") as u64"),
        ParameterType::I64 => ("", "i64", call("int") + ")"),
        // Admission refuses negative durations.
        ParameterType::Duration => ("", "u64", call("int") + ") as u64"),
        ParameterType::Enum => {
            let body = rust_enum_value(parameter, &(call("int") + ")"));
            return ("", camel(&parameter.name.identifier()), body);
        }
        ParameterType::Bool => ("", "bool", call("int") + ") != 0"),
        ParameterType::F64 => ("", "f64", call("float") + ")"),
        ParameterType::Prefix => ("", "weir_guest::Prefix", call("prefix") + ")"),
        ParameterType::String => {
            ("room: &mut [u8]", "Result<&[u8], weir_guest::TooLong>", call("bytes") + ", room)")
        }
        ParameterType::U64List => {
            ("room: &mut [u64]", "Result<&[u64], weir_guest::TooLong>", call("words") + ", room)")
        }
        ParameterType::PrefixList => (
            "room: &mut [u8]",
            "Result<weir_guest::PrefixList<'_>, weir_guest::TooLong>",
            call("prefixes") + ", room)",
        ),
        ParameterType::StringList => {
            ("room: &mut [u8]", "Result<weir_guest::List<'_>, weir_guest::TooLong>", call("list") + ", room)")
        }
    };
    (arguments, result.to_owned(), body)
}

/// Returns the name of a field in C. A keyword gets an `_` at its end.
fn c_name(name: &Name) -> String {
    let identifier = name.identifier();
    if C_KEYWORDS.split(' ').any(|word| word == identifier) { identifier + "_" } else { identifier }
}

/// Returns the name of a field or function in Rust. A keyword becomes a raw identifier, or gets an `_` if the keyword
/// cannot be raw.
fn rust_name(name: &Name) -> String {
    let identifier = name.identifier();
    match identifier.as_str() {
        "self" | "super" | "crate" => identifier + "_",
        word if RUST_KEYWORDS.split(' ').any(|keyword| keyword == word) => format!("r#{word}"),
        _ => identifier,
    }
}

/// The keywords of C11 and C23, and the macros of `<stdbool.h>`, that are legal as names of a manifest.
const C_KEYWORDS: &str = "alignas alignof asm auto bool break case char const constexpr continue default do double else \
    enum extern false float for goto if inline int long nullptr register restrict return short \
    signed sizeof static struct switch true typedef typeof union unsigned void volatile while";

/// The keywords of all editions of Rust.
const RUST_KEYWORDS: &str = "abstract as async await become box break const continue do dyn else enum extern false final fn \
    for gen if impl in let loop macro match mod move mut override priv pub ref return static struct \
    trait true try type typeof unsafe unsized use virtual where while yield";

/// Returns a text with changes that keep it from ending a C comment.
fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace("/*", "/ *")
}

/// Returns a name in upper camel case, for a Rust type. The only keyword that the result could equal is `Self`.
fn camel(name: &str) -> String {
    if name == "self" {
        return "Self_".to_owned();
    }
    name.split('_')
        .map(|word| {
            word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)).collect::<String>()
        })
        .collect()
}

fn c_type(ty: FieldType) -> (&'static str, &'static str) {
    match ty {
        FieldType::U8 | FieldType::Bool => ("uint8_t", ""),
        FieldType::U16 => ("uint16_t", ""),
        FieldType::U32 => ("uint32_t", ""),
        FieldType::U64 | FieldType::Timestamp => ("uint64_t", ""),
        FieldType::I32 => ("int32_t", ""),
        FieldType::I64 | FieldType::Duration => ("int64_t", ""),
        FieldType::F32 => ("float", ""),
        FieldType::F64 => ("double", ""),
        FieldType::Ip => ("uint8_t", "[16]"),
        FieldType::String | FieldType::Bytes => ("struct weir_str", ""),
    }
}

fn rust_type(ty: FieldType) -> &'static str {
    match ty {
        FieldType::U8 => "u8",
        FieldType::Bool => "bool",
        FieldType::U16 => "u16",
        FieldType::U32 => "u32",
        FieldType::U64 | FieldType::Timestamp => "u64",
        FieldType::I32 => "i32",
        FieldType::I64 | FieldType::Duration => "i64",
        FieldType::F32 => "f32",
        FieldType::F64 => "f64",
        FieldType::Ip => "weir_guest::Ip",
        FieldType::String | FieldType::Bytes => "weir_guest::Str<'a>",
    }
}
