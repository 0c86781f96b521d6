//! The manifest: a module's description of itself, as TOML in the custom section `weir.manifest`.
//!
//! The author of a module writes the manifest, so its statements may be false. A false layout or name of records is
//! harmless. Statements that matter for safety, such as the maximum of memory, are enforced by the host.

use crate::state::{self, RawState};
use crate::stream::RawStream;
use crate::table::{self, RawTable};
use crate::tcp::{self, DeclaredLayer, DeclaredTcp, RawTcp, RawValue};
use crate::{
    DeclaredState, DeclaredStream, DeclaredTable, ModuleParameter, Name, NameError, ParameterType,
    ValueError, escaped, is_plain,
};
use serde::Deserialize;
use weir_abi::{ABI_VERSION, PRIVATE_MAX, limit};
use weir_units::{Bytes, Nanos};

/// The longest manifest, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 64 * 1024;
const PARAMETERS_MAX: usize = 64;
/// The maximum number of values of one enum.
pub const ENUM_VALUES_MAX: usize = 64;
const STREAMS_MAX: usize = 32;
const SERVICES_MAX: usize = 16;
const OUTPUTS_MAX: usize = 8;
const TEXT_MAX: usize = 2048;
const MEMORY_DEFAULT: Bytes = Bytes(16 << 20);
const TICK_MIN: Nanos = Nanos(1_000);

/// A module's description of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The module's name.
    pub name: Name,
    /// The version, for people.
    pub version: String,
    /// The licence, as an SPDX expression.
    pub license: String,
    /// The purpose, in one line.
    pub summary: String,
    /// The kind of module: one that only observes, or one that affects packets.
    pub kind: ModuleKind,
    /// The way in which the module may be spread over threads.
    pub parallel: Parallel,
    /// The most private memory that the module may use.
    pub memory: Bytes,
    /// The most packets that the module keeps at once.
    pub keep: u32,
    /// The period of `weir_tick`; `None` without ticks.
    pub tick: Option<TickPeriod>,
    /// The parameters that an operator can set.
    pub parameters: Vec<ModuleParameter>,
    /// The record streams that the module emits.
    pub streams: Vec<DeclaredStream>,
    /// The services that the module can serve, if its session offers them to other sessions.
    pub services: Vec<DeclaredService>,
    /// The services of other sessions that the module calls, if its session uses them.
    pub calls: Vec<Name>,
    /// The outputs to which the module sends frames.
    pub outputs: Vec<DeclaredOutput>,
    /// The named tables that the module reads or publishes.
    pub tables: Vec<DeclaredTable>,
    /// The blocks of state that a newer version of the module takes over.
    pub states: Vec<DeclaredState>,
    /// The layer of the packets whose flows the module follows.
    pub layer: DeclaredLayer,
    /// The TCP streams that the module follows; `None` without.
    pub tcp: Option<DeclaredTcp>,
}

/// A service that a module can serve for modules of other sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredService {
    /// The service's name.
    pub name: Name,
    /// The purpose, in one line.
    pub summary: String,
    /// The longest request, in bytes.
    pub request: Bytes,
    /// The longest answer, in bytes.
    pub answer: Bytes,
}

/// A declared output for Ethernet frames that the module sends. The operator decides to which interface it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredOutput {
    /// The output's name.
    pub name: Name,
    /// The purpose, in one line.
    pub summary: String,
}

/// The kind of a module, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModuleKind {
    /// A module that measures. It also runs if the command names no module.
    Monitor,
    /// A module that drops or changes packets. It runs only if the command names it.
    Filter,
    /// A module that sends packets of its own, or that loads the node on purpose. It runs only if the command names it.
    Active,
}

/// The way in which a module may be spread over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Parallel {
    /// One instance sees every packet.
    None,
    /// Several instances share the packets by flow: each instance gets the packets whose flow hash is in its range. The
    /// module's output for a packet may depend only on packets of the same range.
    Flow,
}

/// The period of `weir_tick`, in packet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickPeriod {
    /// A fixed period.
    Every(Nanos),
    /// The value of the duration parameter with this index.
    Parameter(usize),
}

/// Members of each row as JSON, before those of its fields. A field of such a name would be a second member of that name, which JSON
/// readers treat in different ways (RFC 8259, section 4).
pub(crate) const RESERVED_FIELDS: [&str; 2] = ["module", "stream"];

/// The reason for refusing a manifest.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ManifestError {
    /// A text that is not TOML, an unknown or missing key, or a value of a wrong type.
    #[error("the manifest cannot be read: {0}")]
    Toml(String),
    /// A manifest longer than [`MANIFEST_BYTES_MAX`].
    #[error("the manifest has {0} bytes; {MANIFEST_BYTES_MAX} is the most")]
    TooLong(usize),
    /// Bytes that are not UTF-8.
    #[error("the manifest is not UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// A module that was built for another version of the module interface.
    #[error(
        "the module was built for version {0} of weir's module interface; this weir has version {ABI_VERSION}: rebuild the module"
    )]
    Abi(u32),
    /// A name that is not legal.
    #[error("{at}: {error}")]
    Name {
        /// The key.
        at: String,
        /// The error in the name.
        error: NameError,
    },
    /// Two items with the same name.
    #[error("{at}: `{name}` is declared twice")]
    Twice {
        /// The list.
        at: &'static str,
        /// The name; `-` and `_` count as the same.
        name: Name,
    },
    /// Too many items in a list.
    #[error("{count} entries in {at}; {max} is the most")]
    TooMany {
        /// The list.
        at: String,
        /// The number of items.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// An unknown type.
    #[error("{at}: there is no type `{given}`; there is {known}")]
    Type {
        /// The key.
        at: String,
        /// The given type.
        given: String,
        /// The known types.
        known: String,
    },
    /// A default or limit that is not legal for its parameter.
    #[error("{at}: {error}")]
    Value {
        /// The key.
        at: String,
        /// The error in the value.
        error: ValueError,
    },
    /// An amount that cannot be read or is out of range.
    #[error("{at}: must be {wanted}")]
    Amount {
        /// The key.
        at: &'static str,
        /// A description of legal amounts.
        wanted: String,
    },
    /// An enum without legal values, or values of another type.
    #[error("{at}, values: {wanted}")]
    EnumValues {
        /// The parameter.
        at: String,
        /// A correction.
        wanted: String,
    },
    /// A table whose size is not legal.
    #[error("{at}, bytes: must be {wanted}")]
    Table {
        /// The table.
        at: String,
        /// A description of legal sizes.
        wanted: String,
    },
    /// A text that is too long or has control or invisible characters.
    #[error("{at}: must have at most {TEXT_MAX} characters, and no control or invisible characters")]
    Text {
        /// The key.
        at: String,
    },
    /// A licence that is not an SPDX expression.
    #[error("license: must be an SPDX expression such as \"Apache-2.0 OR MIT\", at most 128 characters")]
    License,
    /// A required text that is missing or blank.
    #[error("{at} is empty: give it a value such as \"{example}\"")]
    Empty {
        /// The key.
        at: &'static str,
        /// An example of a legal value.
        example: &'static str,
    },
    /// A field with a name that every row as JSON has already.
    #[error(
        "{at}: each row as JSON has `{name}` already: give the field another name, such as `{name}_name`"
    )]
    ReservedField {
        /// The stream.
        at: String,
        /// The name.
        name: Name,
    },
    /// A stream without fields.
    #[error("stream `{0}` has no field: give it at least one [[stream.field]]")]
    NoFields(Name),
    /// A stream of findings with fields of its own.
    #[error(
        "stream `{stream}` declares fields: leave them out, because all modules' findings have the same fields",
        stream = weir_abi::finding::STREAM
    )]
    FindingFields,
    /// An unknown semantic.
    #[error("{at}: there is no semantic `{given}`; `weir modules --semantics` lists them")]
    Semantic {
        /// The field.
        at: String,
        /// The given semantic.
        given: String,
    },
    /// A semantic that does not fit the field's type.
    #[error("{at}: type `{ty}` does not fit semantic `{semantic}`: give it {types}")]
    SemanticType {
        /// The field.
        at: String,
        /// The semantic.
        semantic: &'static str,
        /// The field's type.
        ty: &'static str,
        /// The types that fit.
        types: String,
    },
    /// A field whose name is that of another field's presence byte.
    #[error(
        "{at}, field `{field}`: optional field `{optional}` has a presence byte of this name in the row; choose another name"
    )]
    PresenceName {
        /// The stream.
        at: String,
        /// The field.
        field: Name,
        /// The optional field.
        optional: Name,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    version: String,
    abi: u32,
    license: String,
    summary: String,
    #[serde(default = "monitor")]
    kind: ModuleKind,
    #[serde(default = "one_instance")]
    parallel: Parallel,
    memory: Option<String>,
    #[serde(default)]
    keep: u32,
    tick: Option<RawTick>,
    #[serde(default)]
    parameter: Vec<RawParameter>,
    #[serde(default)]
    stream: Vec<RawStream>,
    #[serde(default)]
    service: Vec<RawService>,
    #[serde(default)]
    calls: Vec<String>,
    #[serde(default)]
    output: Vec<RawOutput>,
    #[serde(default)]
    table: Vec<RawTable>,
    #[serde(default)]
    state: Vec<RawState>,
    layer: Option<RawValue>,
    tcp: Option<RawTcp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawService {
    name: String,
    #[serde(default)]
    summary: String,
    request: String,
    answer: String,
}

fn monitor() -> ModuleKind {
    ModuleKind::Monitor
}

fn one_instance() -> Parallel {
    Parallel::None
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawTick {
    Every(String),
    Parameter { parameter: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParameter {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    values: Option<Vec<String>>,
    default: Option<toml::Value>,
    min: Option<toml::Value>,
    max: Option<toml::Value>,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    summary: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOutput {
    name: String,
    #[serde(default)]
    summary: String,
}

impl Manifest {
    /// Reads a manifest from the bytes of a custom section, or of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MANIFEST_BYTES_MAX {
            return Err(ManifestError::TooLong(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|e| ManifestError::NotUtf8(e.valid_up_to()))?;
        let raw: Raw = toml::from_str(text).map_err(|e| toml_error(&e, text))?;
        if raw.abi != ABI_VERSION {
            return Err(ManifestError::Abi(raw.abi));
        }
        check_count("parameter", raw.parameter.len(), PARAMETERS_MAX)?;
        check_count("stream", raw.stream.len(), STREAMS_MAX)?;
        check_count("service", raw.service.len(), SERVICES_MAX)?;
        check_count("calls", raw.calls.len(), SERVICES_MAX)?;
        check_count("output", raw.output.len(), OUTPUTS_MAX)?;
        check_count("table", raw.table.len(), limit::TABLES as usize)?;
        let parameters = raw.parameter.into_iter().map(parameter).collect::<Result<Vec<_>, _>>()?;
        let streams = raw.stream.into_iter().map(RawStream::checked).collect::<Result<Vec<_>, _>>()?;
        let outputs = raw.output.into_iter().map(output).collect::<Result<Vec<_>, _>>()?;
        check_unique("parameter", parameters.iter().map(|p| &p.name))?;
        check_unique("stream", streams.iter().map(|s| &s.name))?;
        let services = raw.service.into_iter().map(service).collect::<Result<Vec<_>, _>>()?;
        check_unique("service", services.iter().map(|s| &s.name))?;
        let calls = raw.calls.iter().map(|given| name("calls", given)).collect::<Result<Vec<_>, _>>()?;
        check_unique("calls", calls.iter())?;
        check_unique("output", outputs.iter().map(|o| &o.name))?;
        let tables = table::tables(raw.table)?;
        check_unique("table", tables.iter().map(|table| &table.name))?;
        let states = state::states(raw.state)?;
        Ok(Self {
            name: name("name", &raw.name)?,
            version: display_text("version", non_empty("version", raw.version, "0.1.0")?)?,
            license: license(non_empty("license", raw.license, "Apache-2.0 OR MIT")?)?,
            summary: display_text(
                "summary",
                non_empty("summary", raw.summary, "counts packets by protocol")?,
            )?,
            kind: raw.kind,
            parallel: raw.parallel,
            memory: memory(raw.memory.as_deref())?,
            keep: kept_packets(raw.keep)?,
            tick: raw.tick.map(|raw| tick(&raw, &parameters)).transpose()?,
            layer: tcp::layer(raw.layer.as_ref(), &parameters)?,
            tcp: raw.tcp.as_ref().map(|raw| DeclaredTcp::new(raw, &parameters)).transpose()?,
            parameters,
            streams,
            services,
            calls,
            outputs,
            tables,
            states,
        })
    }
}

fn service(raw: RawService) -> Result<DeclaredService, ManifestError> {
    let service_name = name("service.name", &raw.name)?;
    let maximum = Bytes(limit::MESSAGE_BYTES.into());
    let size = |at, text: &str| match text.parse::<Bytes>() {
        Ok(bytes) if bytes <= maximum => Ok(bytes),
        _ => {
            Err(ManifestError::Amount { at, wanted: format!("an amount up to {maximum} such as \"256 B\"") })
        }
    };
    Ok(DeclaredService {
        summary: display_text(&format!("service `{service_name}`, summary"), raw.summary)?,
        request: size("service.request", &raw.request)?,
        answer: size("service.answer", &raw.answer)?,
        name: service_name,
    })
}

/// Converts an error of the TOML reader, with its line number. The text of the line is left out, because it is untrusted
/// and the message is shown on a terminal.
fn toml_error(error: &toml::de::Error, text: &str) -> ManifestError {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    ManifestError::Toml(format!("{place}{}", escaped(error.message())))
}

fn tick(raw: &RawTick, parameters: &[ModuleParameter]) -> Result<TickPeriod, ManifestError> {
    match raw {
        RawTick::Every(text) => match text.parse::<Nanos>() {
            Ok(period) if period >= TICK_MIN => Ok(TickPeriod::Every(period)),
            _ => Err(ManifestError::Amount {
                at: "tick",
                wanted: format!("a duration of at least {TICK_MIN}, such as \"1s\""),
            }),
        },
        RawTick::Parameter { parameter } => parameters
            .iter()
            .position(|p| p.name.as_str() == parameter && p.ty == ParameterType::Duration)
            .map(TickPeriod::Parameter)
            .ok_or_else(|| ManifestError::Amount {
                at: "tick",
                wanted: format!("a parameter of type duration, and `{}` is none", parameter.escape_debug()),
            }),
    }
}

fn memory(text: Option<&str>) -> Result<Bytes, ManifestError> {
    let Some(text) = text else { return Ok(MEMORY_DEFAULT) };
    match text.parse::<Bytes>() {
        Ok(bytes) if bytes <= Bytes(PRIVATE_MAX.into()) => Ok(bytes),
        _ => Err(ManifestError::Amount {
            at: "memory",
            wanted: format!("an amount up to {} such as \"16 MiB\"", Bytes(PRIVATE_MAX.into())),
        }),
    }
}

fn kept_packets(packets: u32) -> Result<u32, ManifestError> {
    let wanted = || format!("a whole number up to {}", limit::KEPT_PACKETS);
    if packets <= limit::KEPT_PACKETS {
        Ok(packets)
    } else {
        Err(ManifestError::Amount { at: "keep", wanted: wanted() })
    }
}

fn parameter(raw: RawParameter) -> Result<ModuleParameter, ManifestError> {
    let parameter_name = name("parameter.name", &raw.name)?;
    let at = format!("parameter `{parameter_name}`");
    let ty = ParameterType::ALL.iter().find(|ty| ty.name() == raw.ty).copied().ok_or_else(|| {
        ManifestError::Type {
            at: at.clone(),
            given: escaped(&raw.ty),
            known: ParameterType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", "),
        }
    })?;
    let values = enum_values(&at, ty, raw.values)?;
    let mut parameter = ModuleParameter {
        name: parameter_name,
        ty,
        values,
        default: None,
        min: None,
        max: None,
        unit: display_text(&format!("{at}, unit"), raw.unit)?,
        summary: display_text(&format!("{at}, summary"), raw.summary)?,
    };
    let read = |parameter: &ModuleParameter, what: &str, value: Option<toml::Value>| {
        value
            .map(|value| {
                let texts = texts(&value);
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                parameter
                    .read(&texts)
                    .map_err(|error| ManifestError::Value { at: format!("{at}, {what}"), error })
            })
            .transpose()
    };
    // A later value is checked against earlier ones, because a lower limit above the upper limit would allow no value.
    parameter.min = read(&parameter, "min", raw.min)?;
    parameter.max = read(&parameter, "max", raw.max)?;
    parameter.default = read(&parameter, "default", raw.default)?;
    Ok(parameter)
}

/// Checks the values of an enum. They differ also as identifiers, which the SDKs make of them.
fn enum_values(at: &str, ty: ParameterType, given: Option<Vec<String>>) -> Result<Vec<Name>, ManifestError> {
    let wanted = match (ty, &given) {
        (ParameterType::Enum, None) => {
            "give the legal values, such as values = [\"fast\", \"strict\"]".to_owned()
        }
        (ParameterType::Enum, Some(given)) if given.is_empty() || given.len() > ENUM_VALUES_MAX => {
            format!("give 1 to {ENUM_VALUES_MAX} values")
        }
        (ParameterType::Enum, Some(_)) | (_, None) => String::new(),
        (ty, Some(_)) => format!("a parameter of type {} has none: give it the type enum", ty.name()),
    };
    if !wanted.is_empty() {
        return Err(ManifestError::EnumValues { at: at.to_owned(), wanted });
    }
    let at = format!("{at}, values");
    let values =
        given.iter().flatten().map(|value| name(&at, value)).collect::<Result<Vec<_>, ManifestError>>()?;
    // In Rust `a-1` and `a1` both become `A1`.
    let mut seen = std::collections::BTreeSet::new();
    match values.iter().find(|value| !seen.insert(value.identifier().replace('_', ""))) {
        Some(twice) => Err(ManifestError::Twice { at: "values", name: twice.clone() }),
        None => Ok(values),
    }
}

/// Returns a TOML value as the texts that a user would type, so that one parser reads both.
fn texts(value: &toml::Value) -> Vec<String> {
    match value {
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Array(items) => items.iter().flat_map(texts).collect(),
        toml::Value::Integer(value) => vec![value.to_string()],
        toml::Value::Float(value) => vec![value.to_string()],
        toml::Value::Boolean(value) => vec![value.to_string()],
        toml::Value::Datetime(value) => vec![value.to_string()],
        // No parameter type accepts this text, so the default or limit is refused with the parameter's name.
        toml::Value::Table(_) => vec!["a table".to_owned()],
    }
}

fn output(raw: RawOutput) -> Result<DeclaredOutput, ManifestError> {
    let name = name("output.name", &raw.name)?;
    let summary = display_text(&format!("output `{name}`, summary"), raw.summary)?;
    Ok(DeclaredOutput { name, summary })
}

pub(crate) fn name(at: &str, text: &str) -> Result<Name, ManifestError> {
    Name::new(text).map_err(|error| ManifestError::Name { at: at.to_owned(), error })
}

/// Checks a text that is displayed to people.
pub(crate) fn display_text(at: &str, text: String) -> Result<String, ManifestError> {
    if text.chars().count() > TEXT_MAX || !text.chars().all(is_plain) {
        return Err(ManifestError::Text { at: at.to_owned() });
    }
    Ok(text)
}

/// Checks a required text. A text of blanks alone is refused, because it would look like a missing value.
fn non_empty(at: &'static str, text: String, example: &'static str) -> Result<String, ManifestError> {
    if text.trim().is_empty() { Err(ManifestError::Empty { at, example }) } else { Ok(text) }
}

/// Checks a licence. Only the characters of SPDX expressions are allowed, so that a licence cannot imitate other parts
/// of the line in which weir displays the licence.
fn license(text: String) -> Result<String, ManifestError> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || " .-+()/:".contains(c);
    if text.len() > 128 || !text.chars().all(is_legal) {
        return Err(ManifestError::License);
    }
    Ok(text)
}

pub(crate) fn check_count(at: &str, count: usize, max: usize) -> Result<(), ManifestError> {
    if count > max { Err(ManifestError::TooMany { at: at.to_owned(), count, max }) } else { Ok(()) }
}

pub(crate) fn check_unique<'a>(
    at: &'static str,
    names: impl Iterator<Item = &'a Name>,
) -> Result<(), ManifestError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name.identifier()) {
            return Err(ManifestError::Twice { at, name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParameterValue;
    use proptest::prelude::*;

    const HEAD: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";

    fn parse(rest: &str) -> Result<Manifest, ManifestError> {
        Manifest::parse(format!("{HEAD}{rest}").as_bytes())
    }

    #[test]
    fn a_whole_manifest_is_read() {
        let manifest = parse(
            "kind = 'filter'\nparallel = 'flow'\nmemory = '1 MiB'\ntick = { parameter = 'interval' }\n\
             [[parameter]]\nname = 'interval'\ntype = 'duration'\ndefault = '1s'\nmin = '1ms'\n\
             [[parameter]]\nname = 'ports'\ntype = 'u64-list'\ndefault = [53, 123]\nmax = 65535\n\
             [[stream]]\nname = 'rows'\n[[stream.field]]\nname = 'a'\ntype = 'u8'\n[[stream.field]]\nname = 'b'\ntype = 'u64'\nunit = 'ns'\n\
             [[output]]\nname = 'repairs'\nsummary = 'what was lost'\n[[output]]\nname = 'other'\n",
        )
        .unwrap();
        assert_eq!(
            (manifest.kind, manifest.parallel, manifest.memory),
            (ModuleKind::Filter, Parallel::Flow, Bytes(1 << 20))
        );
        assert_eq!(manifest.tick, Some(TickPeriod::Parameter(0)));
        assert_eq!(manifest.parameters[1].default, Some(ParameterValue::U64List(vec![53, 123])));
        let outputs: Vec<_> =
            manifest.outputs.iter().map(|o| (o.name.as_str(), o.summary.as_str())).collect();
        assert_eq!(outputs, [("repairs", "what was lost"), ("other", "")]);
        let stream = &manifest.streams[0];
        assert_eq!(
            (stream.row_bytes(), stream.fields[1].offset, stream.fields[1].unit.as_str()),
            (16, 8, "ns")
        );
    }

    #[test]
    fn an_error_names_its_place() {
        for (rest, message) in [
            ("nmae = 'x'\n", "unknown field `nmae`"),
            ("memory = '2 GiB'\n", "memory: must be an amount up to 1023 MiB"),
            ("keep = 1025\n", "keep: must be a whole number up to 1024"),
            ("tick = '1'\n", "tick: must be a duration of at least 1 us"),
            ("tick = { parameter = 'x' }\n", "tick: must be a parameter of type duration, and `x` is none"),
            ("[[parameter]]\nname = 'A'\ntype = 'u64'\n", "parameter.name: `A` is not a name"),
            (
                "[[parameter]]\nname = 'a'\ntype = 'u65'\n",
                "parameter `a`: there is no type `u65`; there is u64",
            ),
            (
                "[[parameter]]\nname = 'a'\ntype = 'u64'\ndefault = 5\nmax = 4\n",
                "parameter `a`, default: parameter `a`: 5 is outside - to 4",
            ),
            (
                "[[parameter]]\nname = 'a'\ntype = 'u64'\nmin = 5\nmax = 4\n",
                "parameter `a`, max: parameter `a`: 4 is outside 5 to -",
            ),
            ("[[stream]]\nname = 'a'\n", "stream `a` has no field"),
            ("[[output]]\nname = 'A'\n", "output.name: `A` is not a name"),
            ("[[output]]\nname = 'a'\nrate = 5\n", "unknown field `rate`"),
            ("[[output]]\nname='a'\n[[output]]\nname='a'\n", "output: `a` is declared twice"),
            (&"[[output]]\nname='a'\n".repeat(9), "9 entries in output; 8 is the most"),
            (
                &"[[table]]\nname='a'\naccess='read'\nbytes='1 B'\n".repeat(9),
                "9 entries in table; 8 is the most",
            ),
            (&"[[table]]\nname='a'\naccess='read'\nbytes='1 B'\n".repeat(2), "table: `a` is declared twice"),
            (
                "[[stream]]\nname = 'a'\n[[stream.field]]\nname='x'\ntype='u7'\n",
                "stream `a`, field `x`: there is no type `u7`",
            ),
            (
                "[[stream]]\nname = 'a'\n[[stream.field]]\nname='module'\ntype='u8'\n",
                "stream `a`: each row as JSON has `module` already: give the field another name",
            ),
            (
                "[[stream]]\nname = 'a'\n[[stream.field]]\nname='x'\ntype='u8'\n[[stream.field]]\nname='stream'\ntype='u8'\n",
                "stream `a`: each row as JSON has `stream` already",
            ),
            (
                "[[parameter]]\nname='a-b'\ntype='u64'\n[[parameter]]\nname='a_b'\ntype='u64'\n",
                "parameter: `a_b` is declared twice",
            ),
        ] {
            let error = parse(rest).unwrap_err().to_string();
            assert!(error.contains(message), "{error}\n  should say: {message}");
        }
        assert_eq!(Manifest::parse(&[0xff]), Err(ManifestError::NotUtf8(0)));
        assert!(
            Manifest::parse(HEAD.replace("abi = 2", "abi = 9").as_bytes())
                .unwrap_err()
                .to_string()
                .contains("rebuild the module")
        );
    }

    #[test]
    fn an_empty_required_text_is_refused_with_its_key() {
        for (key, stated, example) in [
            ("version", "'1'", "0.1.0"),
            ("license", "'MIT'", "Apache-2.0 OR MIT"),
            ("summary", "'s'", "counts packets by protocol"),
        ] {
            for empty in ["''", "' '", "\"\\t\""] {
                let head = HEAD.replace(&format!("{key} = {stated}"), &format!("{key} = {empty}"));
                assert_ne!(head, HEAD);
                let error = Manifest::parse(head.as_bytes()).unwrap_err().to_string();
                assert_eq!(error, format!("{key} is empty: give it a value such as \"{example}\""));
            }
        }
        // Summaries of declared items are optional.
        assert!(parse("[[output]]\nname = 'a'\nsummary = ''\n").is_ok());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(name|tick|\\[\\[stream\\]\\]|= |'|\"|\n|[a-z0-9.\\[\\]{}-]){0,60}") {
            let _ = parse(&text);
        }
    }
}
