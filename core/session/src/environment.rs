//! What the analysis is told about a module beside its bytes: what the host will answer, and no more.

use crate::{Manifest, Value};
use weir_abi::limit;
use weir_bounds::{Environment, Given};

const WASM_PAGE: u64 = 65_536;

/// The environment of a module with these values.
///
/// The manifest is the module's own allegation, but the host answers by it too: `param_int` and `param_bytes` give what is here, `emit` takes no
/// stream that is not declared and reads no string field that is not, and memory grows no further. So a manifest that lies gains nothing.
pub(crate) fn environment(manifest: &Manifest, values: &[Value]) -> Environment {
    let string_bytes = |has_strings: bool| if has_strings { limit::RECORD_STRING_BYTES } else { 0 };
    Environment {
        parameters: values.iter().map(given).collect(),
        string_bytes: manifest
            .streams
            .iter()
            .map(|stream| string_bytes(stream.fields.iter().any(|field| field.ty.is_indirect())))
            .collect(),
        packet_max: limit::PACKET_BYTES,
        pages_max: manifest.memory.0 / WASM_PAGE,
    }
}

fn given(value: &Value) -> Given {
    match value {
        Value::F64(_) => Given::Float,
        _ => match value.as_int() {
            Some(value) => Given::Int { min: value, max: value },
            None => {
                let len = u32::try_from(value.encoded().len()).unwrap_or(u32::MAX);
                Given::Bytes { min: len, max: len }
            }
        },
    }
}
