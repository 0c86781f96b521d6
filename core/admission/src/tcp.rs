//! The layer and the TCP streams that a module asks for in its manifest.

use crate::manifest::ManifestError;
use crate::{ModuleParameter, Name, ParameterType, ParameterValue, ValueError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;
use weir_units::{Bytes, Nanos};
use weir_wire::stream::{OverlapPolicy, StreamLayer, TCP_STREAMS_MAX, TCP_STREAMS_MIN, TcpStreamConfig};

/// The number of TCP streams if the manifest states none.
const STREAMS_DEFAULT: u32 = 65_536;
/// The memory for waiting bytes if the manifest states none, and its limits.
const BUFFER_DEFAULT: Bytes = Bytes(4 << 20);
/// A 64th of it is for streams of one range of flow hashes. That is room for two full segments of Ethernet.
const BUFFER_MIN: Bytes = Bytes(256 << 10);
const BUFFER_MAX: Bytes = Bytes(512 << 20);
/// The time after which a stream without packets ends, if the manifest states none.
const IDLE_DEFAULT: Nanos = Nanos(300 * Nanos::SECOND.0);

/// A value of a manifest that can also be that of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestValue<T> {
    /// The value itself.
    Fixed(T),
    /// The value of the parameter with this index.
    Parameter(usize),
}

/// The layer of the packets whose flows a module follows.
pub type DeclaredLayer = ManifestValue<StreamLayer>;

/// The TCP streams that a manifest asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredTcp {
    streams: ManifestValue<u32>,
    buffer: ManifestValue<Bytes>,
    first: Option<ManifestValue<u64>>,
    idle: ManifestValue<Nanos>,
    overlap: ManifestValue<OverlapPolicy>,
    checksums: ManifestValue<bool>,
    ports: Option<ManifestValue<TcpPorts>>,
    conflicts: bool,
}

/// A set of TCP ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPorts(Arc<[u64]>);

impl TcpPorts {
    /// Returns the set of these ports; `None` if one is no port.
    fn new(ports: &[u64]) -> Option<Self> {
        let mut words = vec![0_u64; 1024];
        for port in ports {
            let port = usize::from(u16::try_from(*port).ok()?);
            *words.get_mut(port / 64)? |= 1 << (port % 64);
        }
        Some(Self(words.into()))
    }

    /// Returns true if a port is in the set.
    #[inline]
    pub fn has(&self, port: u16) -> bool {
        let port = usize::from(port);
        self.0.get(port / 64).is_some_and(|word| word >> (port % 64) & 1 == 1)
    }
}

/// The TCP streams of a module, with the values of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// The configuration of the streams.
    pub config: TcpStreamConfig,
    /// The IP header whose TCP segments are followed.
    pub layer: StreamLayer,
    /// True if segments with a wrong checksum are left out.
    pub checks_sums: bool,
    /// The ports of the streams that are followed: either side has one of them. `None` for all ports.
    pub ports: Option<TcpPorts>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum RawValue {
    Parameter { parameter: String },
    Bool(bool),
    Number(u64),
    Text(String),
    Numbers(Vec<u64>),
    Other(IgnoredAny),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTcp {
    streams: Option<RawValue>,
    buffer: Option<RawValue>,
    first: Option<RawValue>,
    idle: Option<RawValue>,
    overlap: Option<RawValue>,
    checksums: Option<RawValue>,
    ports: Option<RawValue>,
    #[serde(default)]
    conflicts: bool,
}

/// A key of the manifest: its name, legal values in words, the type of a parameter that can give it, and its reader.
struct Key<T> {
    at: &'static str,
    wanted: &'static str,
    ty: ParameterType,
    read: fn(&Value<'_>) -> Option<T>,
}

/// A value as the manifest or a parameter gives it.
enum Value<'a> {
    Bool(bool),
    Number(u64),
    Text(&'a str),
    Duration(Nanos),
    Numbers(&'a [u64]),
}

impl<T> Key<T> {
    fn error(&self) -> ManifestError {
        ManifestError::Amount { at: self.at, wanted: self.wanted.to_owned() }
    }

    /// Returns true for a parameter that can give the value: one of the key's type or, in place of a string, an enum of which each
    /// value is legal here.
    fn accepts(&self, parameter: &ModuleParameter) -> bool {
        let is_legal = |value: &Name| (self.read)(&Value::Text(value.as_str())).is_some();
        match parameter.ty {
            ParameterType::Enum => self.ty == ParameterType::String && parameter.values.iter().all(is_legal),
            ty => ty == self.ty,
        }
    }

    /// Checks a value of the manifest.
    fn declared(
        &self,
        raw: &RawValue,
        parameters: &[ModuleParameter],
    ) -> Result<ManifestValue<T>, ManifestError> {
        let value = match raw {
            RawValue::Parameter { parameter } => {
                let index = parameters.iter().position(|p| p.name.as_str() == parameter && self.accepts(p));
                return index.map(ManifestValue::Parameter).ok_or_else(|| ManifestError::Amount {
                    at: self.at,
                    wanted: format!(
                        "{}, or a parameter of type {}, and `{}` is none",
                        self.wanted,
                        self.ty.name(),
                        parameter.escape_debug()
                    ),
                });
            }
            RawValue::Bool(value) => Value::Bool(*value),
            RawValue::Number(value) => Value::Number(*value),
            RawValue::Text(text) => Value::Text(text),
            RawValue::Numbers(numbers) => Value::Numbers(numbers),
            RawValue::Other(_) => return Err(self.error()),
        };
        (self.read)(&value).map(ManifestValue::Fixed).ok_or_else(|| self.error())
    }
}

impl<T: Clone> Key<T> {
    /// Returns the value, with those of the module's parameters. `open` replaces the value of a parameter that has none.
    fn resolve(
        &self,
        declared: &ManifestValue<T>,
        (parameters, values): (&[ModuleParameter], &[Option<ParameterValue>]),
        open: T,
    ) -> Result<T, ValueError> {
        let index = match declared {
            ManifestValue::Fixed(value) => return Ok(value.clone()),
            ManifestValue::Parameter(index) => *index,
        };
        let given = values.get(index).and_then(Option::as_ref);
        let read = given.map(|given| self.value_of(given));
        match (read, given, parameters.get(index)) {
            (None, ..) => Ok(open),
            (Some(Some(value)), ..) => Ok(value),
            (Some(None), Some(given), Some(parameter)) => Err(ValueError::Unreadable {
                parameter: parameter.name.clone(),
                given: given.to_string(),
                wanted: self.wanted,
            }),
            (Some(None), ..) => Ok(open),
        }
    }

    /// Reads the value of a parameter; `None` if the value is not legal here.
    fn value_of(&self, given: &ParameterValue) -> Option<T> {
        let value = match given {
            ParameterValue::U64(number) => Value::Number(*number),
            ParameterValue::Bool(value) => Value::Bool(*value),
            ParameterValue::Duration(time) => Value::Duration(*time),
            ParameterValue::U64List(numbers) => Value::Numbers(numbers),
            ParameterValue::Enum { name, .. } => Value::Text(name.as_str()),
            ParameterValue::String(text) => Value::Text(std::str::from_utf8(text).ok()?),
            _ => return None,
        };
        (self.read)(&value)
    }
}

fn amount(value: &Value<'_>) -> Option<Bytes> {
    match value {
        Value::Number(number) => Some(Bytes(*number)),
        Value::Text(text) => text.parse().ok(),
        Value::Bool(_) | Value::Duration(_) | Value::Numbers(_) => None,
    }
}

const LAYER: Key<StreamLayer> = Key {
    at: "layer",
    wanted: "\"inner\" or \"outer\"",
    ty: ParameterType::String,
    read: |value| match value {
        Value::Text("inner") => Some(StreamLayer::Inner),
        Value::Text("outer") => Some(StreamLayer::Outer),
        _ => None,
    },
};

const STREAMS: Key<u32> = Key {
    at: "tcp.streams",
    wanted: "a number of streams from 256 to 4194304",
    ty: ParameterType::U64,
    read: |value| match value {
        Value::Number(number) => {
            u32::try_from(*number).ok().filter(|n| (TCP_STREAMS_MIN..=TCP_STREAMS_MAX).contains(n))
        }
        _ => None,
    },
};

const BUFFER: Key<Bytes> = Key {
    at: "tcp.buffer",
    wanted: "an amount from 256 KiB to 512 MiB, such as \"4 MiB\"",
    ty: ParameterType::U64,
    read: |value| amount(value).filter(|bytes| (BUFFER_MIN..=BUFFER_MAX).contains(bytes)),
};

const FIRST: Key<u64> = Key {
    at: "tcp.first",
    wanted: "an amount of at least 1 B, such as \"16 KiB\"",
    ty: ParameterType::U64,
    read: |value| amount(value).map(|bytes| bytes.0).filter(|bytes| *bytes > 0),
};

const IDLE: Key<Nanos> = Key {
    at: "tcp.idle",
    wanted: "a duration of at least 1 s, such as \"5m\"",
    ty: ParameterType::Duration,
    read: |value| {
        let time = match value {
            Value::Text(text) => text.parse().ok(),
            Value::Duration(time) => Some(*time),
            Value::Bool(_) | Value::Number(_) | Value::Numbers(_) => None,
        };
        time.filter(|time| *time >= Nanos::SECOND)
    },
};

const OVERLAP: Key<OverlapPolicy> = Key {
    at: "tcp.overlap",
    wanted: "first, last, bsd, linux or windows",
    ty: ParameterType::String,
    read: |value| match value {
        Value::Text(text) => text.parse().ok(),
        _ => None,
    },
};

const CHECKSUMS: Key<bool> = Key {
    at: "tcp.checksums",
    wanted: "true or false",
    ty: ParameterType::Bool,
    read: |value| match value {
        Value::Bool(value) => Some(*value),
        Value::Number(_) | Value::Text(_) | Value::Duration(_) | Value::Numbers(_) => None,
    },
};

const PORTS: Key<TcpPorts> = Key {
    at: "tcp.ports",
    wanted: "a list of ports, such as [53, 853]",
    ty: ParameterType::U64List,
    read: |value| match value {
        Value::Numbers(ports) => TcpPorts::new(ports),
        _ => None,
    },
};

/// Reads the layer of a manifest.
pub(crate) fn layer(
    raw: Option<&RawValue>,
    parameters: &[ModuleParameter],
) -> Result<DeclaredLayer, ManifestError> {
    raw.map_or(Ok(ManifestValue::Fixed(StreamLayer::Outer)), |raw| LAYER.declared(raw, parameters))
}

/// Returns the layer of a module with the values of its parameters.
pub(crate) fn resolve_layer(
    declared: &DeclaredLayer,
    values: (&[ModuleParameter], &[Option<ParameterValue>]),
) -> Result<StreamLayer, ValueError> {
    LAYER.resolve(declared, values, StreamLayer::Inner)
}

impl DeclaredTcp {
    /// Checks the table `tcp` of a manifest.
    pub(crate) fn new(raw: &RawTcp, parameters: &[ModuleParameter]) -> Result<Self, ManifestError> {
        fn or<T>(
            key: &Key<T>,
            raw: Option<&RawValue>,
            parameters: &[ModuleParameter],
            default: T,
        ) -> Result<ManifestValue<T>, ManifestError> {
            raw.map_or(Ok(ManifestValue::Fixed(default)), |raw| key.declared(raw, parameters))
        }
        Ok(Self {
            streams: or(&STREAMS, raw.streams.as_ref(), parameters, STREAMS_DEFAULT)?,
            buffer: or(&BUFFER, raw.buffer.as_ref(), parameters, BUFFER_DEFAULT)?,
            first: raw.first.as_ref().map(|raw| FIRST.declared(raw, parameters)).transpose()?,
            idle: or(&IDLE, raw.idle.as_ref(), parameters, IDLE_DEFAULT)?,
            overlap: or(&OVERLAP, raw.overlap.as_ref(), parameters, OverlapPolicy::default())?,
            checksums: or(&CHECKSUMS, raw.checksums.as_ref(), parameters, false)?,
            ports: raw.ports.as_ref().map(|raw| PORTS.declared(raw, parameters)).transpose()?,
            conflicts: raw.conflicts,
        })
    }

    /// Returns the streams with the values of the module's parameters. An open parameter counts with the value that needs
    /// most memory.
    pub(crate) fn resolve(
        &self,
        layer: StreamLayer,
        values: (&[ModuleParameter], &[Option<ParameterValue>]),
    ) -> Result<TcpSettings, ValueError> {
        let first = self.first.as_ref().map(|first| FIRST.resolve(first, values, u64::MAX)).transpose()?;
        let config = TcpStreamConfig {
            streams: STREAMS.resolve(&self.streams, values, TCP_STREAMS_MAX)?,
            buffer: BUFFER.resolve(&self.buffer, values, BUFFER_MAX)?,
            first,
            idle: IDLE.resolve(&self.idle, values, IDLE_DEFAULT)?,
            overlap: OVERLAP.resolve(&self.overlap, values, OverlapPolicy::default())?,
            conflicts: self.conflicts,
        };
        let every_port = TcpPorts(vec![u64::MAX; 1024].into());
        let ports = self.ports.as_ref().map(|ports| PORTS.resolve(ports, values, every_port)).transpose()?;
        Ok(TcpSettings {
            config,
            layer,
            checks_sums: CHECKSUMS.resolve(&self.checksums, values, false)?,
            ports,
        })
    }
}
