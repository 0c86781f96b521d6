//! Source files that spare a module's author from writing the manifest's contents a second time: rows as structs, streams and
//! parameters as functions.

use crate::{Manifest, ParameterType};
use std::fmt::Write;
use weir_abi::row::FieldType;

/// `module.h`: for C, to be included after `weir.h`.
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
            let unit = if field.unit.is_empty() { String::new() } else { format!(" [{}]", field.unit) };
            _ = writeln!(
                out,
                "    {ty} {}{suffix}; /* {}{} */",
                field.name.identifier(),
                comment(&field.summary),
                comment(&unit)
            );
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
    for (index, parameter) in manifest.parameters.iter().enumerate() {
        let name = parameter.name.identifier();
        let unit = if parameter.unit.is_empty() { String::new() } else { format!(" [{}]", parameter.unit) };
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

/// `module.rs`: for Rust, to be included where the crate `weir_guest` is known.
pub fn rust_source(manifest: &Manifest) -> String {
    let mut out = format!("// Made from weir.toml of `{}`; changes here are lost.\n", manifest.name);
    for (index, stream) in manifest.streams.iter().enumerate() {
        let ty = camel(&stream.name.identifier());
        _ = writeln!(
            out,
            "\n#[doc = {:?}]\n#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {ty} {{",
            stream.summary
        );
        for field in &stream.fields {
            _ = writeln!(
                out,
                "    #[doc = {:?}]\n    pub r#{}: {},",
                format!("{} {}", field.summary, field.unit).trim(),
                field.name.identifier(),
                rust_type(field.ty)
            );
        }
        _ = writeln!(
            out,
            "}}\nconst _: () = assert!(core::mem::size_of::<{ty}>() == {});\nimpl weir_guest::Row for {ty} {{\n    const STREAM: u32 = {index};\n}}",
            stream.row_bytes()
        );
    }
    _ = writeln!(out, "\n#[doc = \"The parameters, as the operator set them.\"]\npub mod param {{");
    for (index, parameter) in manifest.parameters.iter().enumerate() {
        let name = parameter.name.identifier();
        let (ty, body) = match parameter.ty {
            ParameterType::U64 => ("u64", format!("weir_guest::param_int({index}) as u64")),
            ParameterType::I64 | ParameterType::Duration => {
                ("i64", format!("weir_guest::param_int({index})"))
            }
            ParameterType::Bool => ("bool", format!("weir_guest::param_int({index}) != 0")),
            ParameterType::F64 => ("f64", format!("weir_guest::param_float({index})")),
            _ => {
                _ = writeln!(
                    out,
                    "    #[doc = {:?}]\n    pub fn r#{name}(destination: &mut [u8]) -> usize {{\n        weir_guest::param_bytes({index}, destination)\n    }}",
                    parameter.summary
                );
                continue;
            }
        };
        _ = writeln!(
            out,
            "    #[doc = {:?}]\n    pub fn r#{name}() -> {ty} {{\n        {body}\n    }}",
            parameter.summary
        );
    }
    out.push_str("}\n");
    out
}

/// Text that cannot end a C comment.
fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace("/*", "/ *")
}

fn camel(name: &str) -> String {
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
        FieldType::U8 | FieldType::Bool => "u8",
        FieldType::U16 => "u16",
        FieldType::U32 => "u32",
        FieldType::U64 | FieldType::Timestamp => "u64",
        FieldType::I32 => "i32",
        FieldType::I64 | FieldType::Duration => "i64",
        FieldType::F32 => "f32",
        FieldType::F64 => "f64",
        FieldType::Ip => "[u8; 16]",
        FieldType::String | FieldType::Bytes => "weir_guest::Str",
    }
}
