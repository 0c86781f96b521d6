//! The environment that the analysis assumes: the values that the host returns.

use crate::{Manifest, ModuleParameter, ParameterType, ParameterValue, TcpSettings};
use weir_abi::limit;
use weir_bounds::{Environment, ParamBound};
use weir_units::Bytes;

const WASM_PAGE: u64 = 65_536;

/// Returns the environment of a module with these parameter values, in the manifest's order. For a parameter without a
/// value, the environment has the manifest's limits: every value that is set later must satisfy them.
///
/// The module's author writes the manifest, but the host enforces it. `param_int` and `param_bytes` return these values.
/// `emit` accepts only declared streams, and reads only declared string fields. Memory does not grow beyond the declared
/// maximum. So a false manifest makes no bound wrong.
pub(crate) fn environment(
    manifest: &Manifest,
    tcp: Option<&TcpSettings>,
    values: &[Option<ParameterValue>],
) -> Environment {
    let string_bytes = |has_strings: bool| if has_strings { limit::RECORD_STRING_BYTES } else { 0 };
    Environment {
        parameters: manifest
            .parameters
            .iter()
            .zip(values)
            .map(|(parameter, value)| {
                value.as_ref().map_or_else(|| bound_of_any_value(parameter), bound_of_value)
            })
            .collect(),
        string_bytes: manifest
            .streams
            .iter()
            .map(|stream| string_bytes(stream.fields.iter().any(|field| field.ty.is_indirect())))
            .collect(),
        packet_max: limit::PACKET_BYTES,
        pages_max: own_memory(manifest, tcp).0 / WASM_PAGE,
    }
}

/// Returns the memory that the manifest leaves to the module itself: without that of its TCP streams.
pub(crate) fn own_memory(manifest: &Manifest, tcp: Option<&TcpSettings>) -> Bytes {
    let streams = tcp.map_or(0, |tcp| tcp.config.memory().0);
    Bytes(manifest.memory.0.saturating_sub(streams))
}

/// Returns the bound for a parameter that has this value.
fn bound_of_value(value: &ParameterValue) -> ParamBound {
    match value {
        ParameterValue::F64(_) => ParamBound::Float,
        _ => match value.as_int() {
            Some(value) => ParamBound::Int { min: value, max: value },
            None => {
                let len = u32::try_from(value.encoded().len()).unwrap_or(u32::MAX);
                ParamBound::Bytes { min: len, max: len }
            }
        },
    }
}

/// Returns the bound for a parameter that can have any legal value.
fn bound_of_any_value(parameter: &ModuleParameter) -> ParamBound {
    // The address in 16 bytes, and the prefix length in one.
    const PREFIX_BYTES: u32 = 17;
    let limit_or = |limit: &Option<ParameterValue>, otherwise: i64| {
        limit.as_ref().and_then(ParameterValue::as_int).unwrap_or(otherwise)
    };
    match parameter.ty {
        ParameterType::F64 => ParamBound::Float,
        ParameterType::Bool => ParamBound::Int { min: 0, max: 1 },
        ParameterType::Enum => ParamBound::Int {
            min: 0,
            max: i64::try_from(parameter.values.len()).unwrap_or(i64::MAX).saturating_sub(1),
        },
        ParameterType::I64 => ParamBound::Int {
            min: limit_or(&parameter.min, i64::MIN),
            max: limit_or(&parameter.max, i64::MAX),
        },
        // Unsigned values reach the module bit for bit. A range across 2^63 is not a range of signed numbers.
        ParameterType::U64 | ParameterType::Duration => {
            match (limit_or(&parameter.min, 0), limit_or(&parameter.max, u64::MAX.cast_signed())) {
                (min, max) if min <= max => ParamBound::Int { min, max },
                _ => ParamBound::Int { min: i64::MIN, max: i64::MAX },
            }
        }
        ParameterType::Prefix => ParamBound::Bytes { min: PREFIX_BYTES, max: PREFIX_BYTES },
        ParameterType::String
        | ParameterType::U64List
        | ParameterType::StringList
        | ParameterType::PrefixList => {
            ParamBound::Bytes { min: 0, max: u32::try_from(ParameterValue::BYTES_MAX).unwrap_or(u32::MAX) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest(ty: &str, rest: &str) -> Manifest {
        let head = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '64 KiB'\n";
        let text = format!("{head}[[parameter]]\nname = 'p'\ntype = '{ty}'\n{rest}\n");
        Manifest::parse(text.as_bytes()).unwrap()
    }

    /// Returns the bound for the manifest's parameter without a value.
    fn bound_if_unset(manifest: &Manifest) -> ParamBound {
        environment(manifest, None, &[None]).parameters[0]
    }

    /// Returns true if the value is one of those that the analysis covered.
    fn is_covered(given: &ParamBound, of: &ParamBound) -> bool {
        match (given, of) {
            (ParamBound::Int { min, max }, ParamBound::Int { min: least, max: most }) => {
                least <= min && max <= most
            }
            (ParamBound::Bytes { min, max }, ParamBound::Bytes { min: least, max: most }) => {
                least <= min && max <= most
            }
            (ParamBound::Float, ParamBound::Float) => true,
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn every_value_of_an_unset_parameter_is_covered_by_the_analysis(
            ty in proptest::sample::select(vec!["u64", "i64", "duration"]), limits: [u64; 2], bits in 0u32..64, value: u64,
        ) {
            let text = |number: u64| match ty {
                "i64" => number.cast_signed().to_string(),
                "duration" => format!("'{number}ns'"),
                _ => number.to_string(),
            };
            // TOML's integers are signed.
            let limits = limits.map(|limit| (limit >> bits) & if ty == "u64" { u64::MAX >> 1 } else { u64::MAX });
            let [mut min, mut max] = limits;
            if (ty == "i64" && min.cast_signed() > max.cast_signed()) || (ty != "i64" && min > max) {
                (min, max) = (max, min);
            }
            let manifest = manifest(ty, &format!("min = {}\nmax = {}", text(min), text(max)));
            let given = text(value >> bits);
            if let Ok(value) = manifest.parameters[0].read(&[given.trim_matches('\'')]) {
                prop_assert!(is_covered(&super::bound_of_value(&value), &bound_if_unset(&manifest)), "{value:?}: {:?}", bound_if_unset(&manifest));
            }
        }
    }

    #[test]
    fn a_parameter_without_a_value_has_the_range_of_its_limits() {
        for (ty, rest, wanted) in [
            ("u64", "min = 1\nmax = 1000", ParamBound::Int { min: 1, max: 1000 }),
            ("u64", "max = 1000", ParamBound::Int { min: 0, max: 1000 }),
            ("u64", "min = 1", ParamBound::Int { min: i64::MIN, max: i64::MAX }),
            ("i64", "min = -5", ParamBound::Int { min: -5, max: i64::MAX }),
            ("bool", "", ParamBound::Int { min: 0, max: 1 }),
            ("duration", "min = '1us'\nmax = '2us'", ParamBound::Int { min: 1_000, max: 2_000 }),
            ("f64", "", ParamBound::Float),
            ("prefix", "", ParamBound::Bytes { min: 17, max: 17 }),
            ("string", "", ParamBound::Bytes { min: 0, max: 65_536 }),
            ("u64-list", "max = 65535", ParamBound::Bytes { min: 0, max: 65_536 }),
            ("string-list", "", ParamBound::Bytes { min: 0, max: 65_536 }),
        ] {
            assert_eq!(bound_if_unset(&manifest(ty, rest)), wanted, "{ty} {rest}");
        }
    }

    #[test]
    fn a_value_of_every_type_is_covered_by_the_analysis() {
        for (ty, values) in [
            ("u64", &["0", "18446744073709551615"][..]),
            ("i64", &["-9223372036854775808", "9223372036854775807"]),
            ("bool", &["true", "false"]),
            ("duration", &["0ns", "18446744073709551615ns"]),
            ("f64", &["-1e300"]),
            ("prefix", &["10.0.0.0/8", "::/0"]),
            ("string", &["", "abc"]),
            ("u64-list", &["1"]),
            ("string-list", &["", "abc"]),
        ] {
            let manifest = manifest(ty, "");
            for value in values {
                let value = manifest.parameters[0].read(&[value]).unwrap();
                assert!(
                    is_covered(&super::bound_of_value(&value), &bound_if_unset(&manifest)),
                    "{ty}: {value}"
                );
            }
        }
        let longest = ParameterValue::String(vec![b'x'; ParameterValue::BYTES_MAX]);
        assert!(is_covered(&super::bound_of_value(&longest), &bound_if_unset(&manifest("string", ""))));
    }
}
