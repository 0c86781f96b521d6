//! Parameters: their declaration in a manifest, their values from a user, and their encoding for a module.

use crate::{Name, NameError};
use core::net::IpAddr;
use std::fmt;
use weir_units::Nanos;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// An unsigned integer.
    U64,
    /// A signed integer.
    I64,
    /// A float.
    F64,
    /// `true` or `false`.
    Bool,
    /// A duration: `1.5s`.
    Duration,
    /// One of the values that the manifest names: `strict`.
    Enum,
    /// Bytes, with the escapes `\xNN`, `\n`, `\r`, `\t`, `\0`, `\\` and `\,`.
    String,
    /// An IP prefix: `10.0.0.0/8`.
    Prefix,
    /// A list of unsigned integers: `53,123`.
    U64List,
    /// A list of strings.
    StringList,
    /// A list of IP prefixes: `10.0.0.0/8,2001:db8::/32`.
    PrefixList,
}

impl ParameterType {
    /// All types.
    pub const ALL: &'static [ParameterType] = &[
        Self::U64,
        Self::I64,
        Self::F64,
        Self::Bool,
        Self::Duration,
        Self::Enum,
        Self::String,
        Self::Prefix,
        Self::U64List,
        Self::StringList,
        Self::PrefixList,
    ];

    /// Returns the name that a manifest uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Duration => "duration",
            Self::Enum => "enum",
            Self::String => "string",
            Self::Prefix => "prefix",
            Self::U64List => "u64-list",
            Self::StringList => "string-list",
            Self::PrefixList => "prefix-list",
        }
    }

    /// Returns true for a list, which has any number of values.
    pub const fn is_list(self) -> bool {
        matches!(self, Self::U64List | Self::StringList | Self::PrefixList)
    }
}

/// A declared parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleParameter {
    /// The parameter's name.
    pub name: Name,
    /// The parameter's type.
    pub ty: ParameterType,
    /// The legal values of an enum, of which the module gets the index; empty for other types.
    pub values: Vec<Name>,
    /// The value if the user gives none; `None` if the user must give a value.
    pub default: Option<ParameterValue>,
    /// The lower limit of a number or duration.
    pub min: Option<ParameterValue>,
    /// The upper limit of a number or duration.
    pub max: Option<ParameterValue>,
    /// The unit, for people.
    pub unit: String,
    /// The purpose, in one line.
    pub summary: String,
}

/// An IP prefix. An IPv4 prefix is stored as an IPv6 prefix of mapped addresses, ::ffff:a.b.c.d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address, in the 16 bytes of IPv6.
    pub address: [u8; 16],
    /// The prefix length, from 0 to 128.
    pub bits: u8,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterValue {
    /// Unsigned integer.
    U64(u64),
    /// Signed integer.
    I64(i64),
    /// A finite float.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// Length of time.
    Duration(Nanos),
    /// One of the values that the manifest names.
    Enum {
        /// The value's index in the manifest.
        index: u32,
        /// The value.
        name: Name,
    },
    /// Bytes.
    String(Vec<u8>),
    /// IP prefix.
    Prefix(Prefix),
    /// Unsigned integers.
    U64List(Vec<u64>),
    /// Byte strings.
    StringList(Vec<Vec<u8>>),
    /// IP prefixes, without bits behind their lengths.
    PrefixList(Vec<Prefix>),
}

/// Returns a user's text in quotes for a message.
fn quoted(given: &str) -> String {
    if given.is_empty() { "an empty value".to_owned() } else { format!("`{}`", given.escape_debug()) }
}

/// The reason for refusing a parameter's value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// The value cannot be read as the parameter's type.
    #[error("parameter `{parameter}`: {} is not {wanted}", quoted(.given))]
    Unreadable {
        /// The parameter.
        parameter: Name,
        /// The given text.
        given: String,
        /// A description of legal values.
        wanted: &'static str,
    },
    /// The value is none of those that the manifest names.
    #[error("parameter `{parameter}`: {} is none of {known}", quoted(.given))]
    NotAmong {
        /// The parameter.
        parameter: Name,
        /// The given text.
        given: String,
        /// The legal values.
        known: String,
    },
    /// An address with bits behind the length of its prefix, which may be a mistake in either.
    #[error("parameter `{parameter}`: `{}` has bits behind its length; write {prefix}", .given.escape_debug())]
    HostBits {
        /// The parameter.
        parameter: Name,
        /// The given text.
        given: String,
        /// The prefix with the address that has no bits behind the length.
        prefix: Prefix,
    },
    /// The value is outside the limits that the manifest declares.
    #[error("parameter `{parameter}`: {given} is outside {min} to {max}")]
    OutOfRange {
        /// The parameter.
        parameter: Name,
        /// The given value.
        given: ParameterValue,
        /// The lower limit, or "-".
        min: String,
        /// The upper limit, or "-".
        max: String,
    },
    /// Several values for a parameter that is not a list.
    #[error(
        "parameter `{parameter}` is no list: give it once, and write `\\,` for a comma that belongs to the value"
    )]
    Several {
        /// The parameter.
        parameter: Name,
    },
    /// The parameter has neither a value nor a default.
    #[error("parameter `{parameter}` ({ty}) must be given: {summary}", ty = .ty.name())]
    Missing {
        /// The parameter.
        parameter: Name,
        /// The parameter's type.
        ty: ParameterType,
        /// The parameter's purpose.
        summary: String,
    },
    /// There is no parameter with this name.
    #[error("there is no parameter `{}`; there is {known}", .given.escape_debug())]
    Unknown {
        /// The given name.
        given: String,
        /// The declared names.
        known: String,
    },
    /// The value is too long.
    #[error("parameter `{parameter}` has more than {} bytes", ParameterValue::BYTES_MAX)]
    TooLong {
        /// The parameter.
        parameter: Name,
    },
    /// A name that is not legal.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl ModuleParameter {
    /// Returns the legal values of an enum as text; empty for other types.
    pub fn values_as_text(&self) -> String {
        self.values.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Reads a value from the user's texts: one text, or the items of a list. Checks the value's type and limits.
    pub fn read(&self, given: &[&str]) -> Result<ParameterValue, ValueError> {
        if given.len() != 1 && !self.ty.is_list() {
            return Err(ValueError::Several { parameter: self.name.clone() });
        }
        let value = match self.ty {
            ParameterType::U64List => ParameterValue::U64List(
                given
                    .iter()
                    .map(|text| text.trim().parse().map_err(|_| self.unreadable(text, "an unsigned integer")))
                    .collect::<Result<_, _>>()?,
            ),
            ParameterType::StringList => ParameterValue::StringList(
                given
                    .iter()
                    .map(|text| unescape(text).ok_or_else(|| self.unreadable(text, LEGAL_STRING)))
                    .collect::<Result<_, _>>()?,
            ),
            ParameterType::PrefixList => ParameterValue::PrefixList(
                given.iter().map(|text| self.read_network(text)).collect::<Result<_, _>>()?,
            ),
            ParameterType::Enum => self.read_enum(given[0])?,
            ty => Self::read_text(ty, given[0]).map_err(|wanted| self.unreadable(given[0], wanted))?,
        };
        self.check(value)
    }

    fn read_text(ty: ParameterType, text: &str) -> Result<ParameterValue, &'static str> {
        let trimmed = text.trim();
        match ty {
            ParameterType::U64 => trimmed.parse().map(ParameterValue::U64).map_err(|_| "an unsigned integer"),
            ParameterType::I64 => trimmed.parse().map(ParameterValue::I64).map_err(|_| "an integer"),
            ParameterType::F64 => match trimmed.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(ParameterValue::F64(value)),
                _ => Err("a finite number"),
            },
            ParameterType::Bool => trimmed.parse().map(ParameterValue::Bool).map_err(|_| "`true` or `false`"),
            ParameterType::Duration => {
                trimmed.parse().map(ParameterValue::Duration).map_err(|e: weir_units::ParseError| e.wanted)
            }
            ParameterType::Prefix => Prefix::read(trimmed).map(ParameterValue::Prefix).ok_or(LEGAL_PREFIX),
            ParameterType::Enum
            | ParameterType::String
            | ParameterType::U64List
            | ParameterType::StringList
            | ParameterType::PrefixList => unescape(text).map(ParameterValue::String).ok_or(LEGAL_STRING),
        }
    }

    fn read_enum(&self, text: &str) -> Result<ParameterValue, ValueError> {
        let trimmed = text.trim();
        let found = (0u32..).zip(&self.values).find(|(_, value)| value.as_str() == trimmed);
        found.map(|(index, name)| ParameterValue::Enum { index, name: name.clone() }).ok_or_else(|| {
            ValueError::NotAmong {
                parameter: self.name.clone(),
                given: text.chars().take(80).collect(),
                known: self.values_as_text(),
            }
        })
    }

    /// Reads a prefix of a list. An address has no bits behind the length.
    fn read_network(&self, text: &str) -> Result<Prefix, ValueError> {
        let given = Prefix::read(text.trim()).ok_or_else(|| self.unreadable(text, LEGAL_PREFIX))?;
        let prefix = given.network();
        if prefix != given {
            let given = text.trim().chars().take(80).collect();
            return Err(ValueError::HostBits { parameter: self.name.clone(), given, prefix });
        }
        Ok(prefix)
    }

    /// Checks a value's limits and length.
    pub(crate) fn check(&self, value: ParameterValue) -> Result<ParameterValue, ValueError> {
        let below = self.min.as_ref().is_some_and(|min| value.is_less_than(min));
        let above = self.max.as_ref().is_some_and(|max| max.is_less_than(&value));
        if below || above {
            let show = |limit: &Option<ParameterValue>| {
                limit.as_ref().map_or_else(|| "-".to_owned(), ParameterValue::to_string)
            };
            return Err(ValueError::OutOfRange {
                parameter: self.name.clone(),
                given: value,
                min: show(&self.min),
                max: show(&self.max),
            });
        }
        if value.encoded().len() > ParameterValue::BYTES_MAX {
            return Err(ValueError::TooLong { parameter: self.name.clone() });
        }
        Ok(value)
    }

    fn unreadable(&self, given: &str, wanted: &'static str) -> ValueError {
        ValueError::Unreadable {
            parameter: self.name.clone(),
            given: given.chars().take(80).collect(),
            wanted,
        }
    }
}

const LEGAL_PREFIX: &str = "an IP prefix such as 10.0.0.0/8 or 2001:db8::/32";
const LEGAL_STRING: &str = "a string with only the escapes \\xNN, \\n, \\r, \\t, \\0, \\\\ and \\,";

impl ParameterValue {
    /// The maximum size of one parameter's value, in bytes.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// Returns the value that `param_int` returns to the module; a duration in ns, an enum
    /// as its index. `None` for other types.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            // An unsigned integer is passed with the same bits, and the SDK converts it back.
            Self::U64(value) => Some(value.cast_signed()),
            Self::I64(value) => Some(*value),
            Self::Bool(value) => Some(i64::from(*value)),
            Self::Duration(value) => Some(value.0.cast_signed()),
            Self::Enum { index, .. } => Some(i64::from(*index)),
            _ => None,
        }
    }

    /// Returns the value that `param_float` returns to the module; `None` for other types.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::F64(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the bytes that `param_bytes` copies for the module: a string unchanged; a prefix as 16 address bytes and
    /// the number of bits, also in a list; a list of integers as 8 bytes each; a list of strings as the u32 length and the bytes of
    /// each, as `find_compile` reads them. Empty for numbers.
    pub fn encoded(&self) -> Vec<u8> {
        match self {
            Self::String(bytes) => bytes.clone(),
            Self::Prefix(prefix) => prefix.encoded().to_vec(),
            Self::PrefixList(prefixes) => prefixes.iter().flat_map(Prefix::encoded).collect(),
            Self::U64List(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::StringList(values) => values
                .iter()
                .flat_map(|v| {
                    u32::try_from(v.len())
                        .unwrap_or(u32::MAX)
                        .to_le_bytes()
                        .into_iter()
                        .chain(v.iter().copied())
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn is_less_than(&self, other: &ParameterValue) -> bool {
        match (self, other) {
            (Self::U64(a), Self::U64(b)) => a < b,
            (Self::I64(a), Self::I64(b)) => a < b,
            (Self::F64(a), Self::F64(b)) => a < b,
            (Self::Duration(a), Self::Duration(b)) => a < b,
            (Self::U64List(a), Self::U64List(b)) => match b.as_slice() {
                [limit] => a.iter().any(|v| v < limit),
                limits => a.as_slice().first().is_some_and(|limit| limits.iter().any(|v| limit < v)),
            },
            _ => false,
        }
    }
}

impl Prefix {
    /// Returns the 16 bytes of the address, and the number of bits.
    fn encoded(&self) -> [u8; 17] {
        let mut bytes = [self.bits; 17];
        bytes[..16].copy_from_slice(&self.address);
        bytes
    }

    /// Returns the prefix with the bits of the address behind its length cleared.
    fn network(self) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        Self { address: (u128::from_be_bytes(self.address) & mask).to_be_bytes(), bits: self.bits }
    }

    fn read(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let (address, width) = match address.parse().ok()? {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 32),
            IpAddr::V6(v6) => (v6, 128),
        };
        let bits = bits.unwrap_or(width);
        // IPv4 prefixes are written as IPv4. An IPv6 prefix such as `::ffff:10.0.0.0/104` would also match IPv4 packets.
        if width == 128 && bits >= 96 && address.to_ipv4_mapped().is_some() {
            return None;
        }
        (bits <= width).then(|| Self { address: address.octets(), bits: bits + (128 - width) })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = core::net::Ipv6Addr::from(self.address);
        match address.to_ipv4_mapped() {
            Some(v4) if self.bits >= 96 => write!(f, "{v4}/{}", self.bits - 96),
            _ => write!(f, "{address}/{}", self.bits),
        }
    }
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        match self {
            Self::U64(value) => write!(f, "{value}"),
            Self::I64(value) => write!(f, "{value}"),
            Self::F64(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Duration(value) => f.write_str(&value.to_string().replace(' ', "")),
            Self::Enum { name, .. } => write!(f, "{name}"),
            Self::String(value) => f.write_str(&text(value)),
            Self::Prefix(value) => write!(f, "{value}"),
            Self::U64List(values) => {
                f.write_str(&values.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
            }
            Self::PrefixList(prefixes) => {
                f.write_str(&prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>().join(","))
            }
            Self::StringList(values) => {
                f.write_str(&values.iter().map(|v| text(v).replace(',', "\\,")).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Replaces `\xNN`, `\n`, `\r`, `\t`, `\0`, `\\` and `\,`; `None` if a backslash precedes anything else.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            same @ (b'\\' | b',' | b'=') => same,
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(
        ty: ParameterType,
        min: Option<ParameterValue>,
        max: Option<ParameterValue>,
    ) -> ModuleParameter {
        ModuleParameter {
            name: Name::new("p").unwrap(),
            ty,
            values: Vec::new(),
            default: None,
            min,
            max,
            unit: String::new(),
            summary: String::new(),
        }
    }

    #[test]
    fn values_are_read_by_type_and_reach_the_module_as_documented() {
        use ParameterType as T;
        let read = |ty, text: &[&str]| parameter(ty, None, None).read(text).unwrap();
        assert_eq!(read(T::U64, &["18446744073709551615"]).as_int(), Some(-1));
        assert_eq!(read(T::Duration, &["1.5ms"]).as_int(), Some(1_500_000));
        assert_eq!(read(T::Bool, &["true"]).as_int(), Some(1));
        assert_eq!(read(T::String, &[r"\x00a\,\\"]).encoded(), b"\0a,\\");
        assert_eq!(
            read(T::U64List, &["53", "256"]).encoded(),
            [53, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(read(T::StringList, &["ab", ""]).encoded(), [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
        let prefix = read(T::Prefix, &["10.0.0.0/8"]);
        assert_eq!(prefix.to_string(), "10.0.0.0/8");
        assert_eq!(prefix.encoded(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 0, 104]);
        // An IPv6 prefix has fewer than 96 bits, or is outside of the IPv4-mapped addresses.
        for text in ["::/0", "::/96", "::ffff:0:0/95", "2001:db8::/32", "64:ff9b::a00:0/104", "0.0.0.0/0"] {
            let prefix = read(T::Prefix, &[text]);
            let expected = text == "0.0.0.0/0" || text == "::/96" || text.ends_with("104");
            assert_eq!(prefix.encoded()[16] >= 96, expected, "{text}");
            assert_eq!(read(T::Prefix, &[&prefix.to_string()]), prefix, "{text}");
        }
    }

    #[test]
    fn an_enum_is_one_of_its_values_and_reaches_the_module_as_an_index() {
        let mut mode = parameter(ParameterType::Enum, None, None);
        mode.values = ["fast", "very-strict"].map(|name| Name::new(name).unwrap()).to_vec();
        let value = mode.read(&[" very-strict "]).unwrap();
        assert_eq!(
            (value.as_int(), value.encoded().len(), value.to_string()),
            (Some(1), 0, "very-strict".into())
        );
        assert_eq!(mode.read(&[&value.to_string()]).unwrap(), value);
        for (text, message) in [
            ("Fast", "parameter `p`: `Fast` is none of fast, very-strict"),
            ("very_strict", "parameter `p`: `very_strict` is none of fast, very-strict"),
            ("1", "parameter `p`: `1` is none of fast, very-strict"),
            ("", "parameter `p`: an empty value is none of fast, very-strict"),
        ] {
            assert_eq!(mode.read(&[text]).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_list_of_prefixes_has_no_bits_behind_their_lengths() {
        let list = parameter(ParameterType::PrefixList, None, None);
        let value = list.read(&["10.0.0.0/8", " 2001:db8::/32", "192.0.2.1", "0.0.0.0/0", "::/0"]).unwrap();
        assert_eq!(value.to_string(), "10.0.0.0/8,2001:db8::/32,192.0.2.1/32,0.0.0.0/0,::/0");
        let bytes = value.encoded();
        let bits: Vec<u8> = bytes.chunks(17).map(|prefix| prefix[16]).collect();
        assert_eq!((bytes.len(), bits), (85, vec![104, 32, 128, 96, 0]));
        assert_eq!(bytes[..17], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 0, 104]);
        for (text, message) in [
            ("10.1.2.3/8", "parameter `p`: `10.1.2.3/8` has bits behind its length; write 10.0.0.0/8"),
            (
                "2001:db8::1/32",
                "parameter `p`: `2001:db8::1/32` has bits behind its length; write 2001:db8::/32",
            ),
            ("1.2.3.4/0", "parameter `p`: `1.2.3.4/0` has bits behind its length; write 0.0.0.0/0"),
            ("::1/0", "parameter `p`: `::1/0` has bits behind its length; write ::/0"),
            (
                "10.0.0.0/33",
                "parameter `p`: `10.0.0.0/33` is not an IP prefix such as 10.0.0.0/8 or 2001:db8::/32",
            ),
        ] {
            assert_eq!(list.read(&["192.0.2.0/24", text]).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn an_illegal_value_is_refused_with_the_parameters_name() {
        use ParameterType as T;
        for (ty, text) in [
            (T::U64, "-1"),
            (T::F64, "nan"),
            (T::Bool, "yes"),
            (T::Duration, "5"),
            (T::Prefix, "10.0.0.0/33"),
            (T::Prefix, "::ffff:0:0/96"),
            (T::Prefix, "::ffff:10.0.0.1"),
            (T::String, r"\q"),
            (T::String, r"\x4"),
            (T::U64List, "x"),
        ] {
            let error = parameter(ty, None, None).read(&[text]).unwrap_err().to_string();
            assert!(error.starts_with("parameter `p`: `"), "{error}");
        }
        let limited = parameter(T::U64, Some(ParameterValue::U64(64)), Some(ParameterValue::U64(128)));
        assert_eq!(limited.read(&["63"]).unwrap_err().to_string(), "parameter `p`: 63 is outside 64 to 128");
        assert!(limited.read(&["128"]).is_ok());
        assert!(matches!(limited.read(&["64", "65"]), Err(ValueError::Several { .. })));
    }
}
