//! The forms in which values of summaries are written: as text, and as binary records.

use super::ip_options;
use super::md5::{DIGEST_BYTES, digest};
use super::options::{self, TcpOptions};
use crate::values::seconds;
use core::net::Ipv4Addr;
use std::fmt::Write as _;
use weir_graph::arguments::EthernetAddress;
use weir_graph::arguments::protocols::{icmp_code_name, icmp_type_name};
use weir_graph::arguments::text::quote;
use weir_units::Timestamp;

/// A value of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryValue<'p> {
    Number(u64),
    Bytes(&'p [u8]),
}

macro_rules! from_number {
    ($($type:ty),*) => {
        $(impl From<$type> for SummaryValue<'_> {
            fn from(number: $type) -> Self {
                Self::Number(u64::from(number))
            }
        })*
    };
}

from_number!(u8, u16, u32, u64);

impl From<usize> for SummaryValue<'_> {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl<'p> From<&'p [u8]> for SummaryValue<'p> {
    fn from(bytes: &'p [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

/// The letters of TCP flags, from the lowest bit on.
pub const FLAGS: &str = "FSRPAUECN";

/// The names of the ECN field's values.
pub const ECN_NAMES: [&str; 4] = ["no", "ect1", "ect2", "ce"];

/// The form of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// A number. Its binary form has so many bytes.
    Number(u8),
    Address,
    /// A time in nanoseconds. The binary form has seconds and microseconds.
    Microseconds,
    /// A time in nanoseconds. The binary form has seconds and nanoseconds.
    Nanoseconds,
    Ecn,
    /// A letter.
    Fragment,
    FragmentOffset,
    Protocol,
    Flags,
    Direction,
    Hexadecimal,
    Ethernet,
    IcmpType,
    /// The type and the code. The binary form has the code alone.
    IcmpCode,
    IpOptions,
    TcpOptionList(TcpOptions),
    Payload,
    /// A digest, six bits in each character.
    Digest,
    HexadecimalDigest,
}

/// The length of a binary form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryLength {
    Fixed(usize),
    /// A byte states the number of those behind it.
    Stated,
    /// The field has no binary form.
    None,
}

const SECOND: u64 = 1_000_000_000;

/// The characters of a digest.
const DIGEST_CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";

impl FieldForm {
    /// Returns the length of the binary form.
    pub fn binary_length(self) -> BinaryLength {
        match self {
            Self::Number(bytes) => BinaryLength::Fixed(usize::from(bytes)),
            Self::Address => BinaryLength::Fixed(4),
            Self::Microseconds | Self::Nanoseconds => BinaryLength::Fixed(8),
            Self::Ecn | Self::Fragment | Self::Protocol | Self::Flags | Self::Direction => {
                BinaryLength::Fixed(1)
            }
            Self::IcmpType | Self::IcmpCode => BinaryLength::Fixed(1),
            Self::FragmentOffset | Self::Hexadecimal => BinaryLength::Fixed(2),
            Self::Ethernet => BinaryLength::Fixed(6),
            Self::Digest | Self::HexadecimalDigest => BinaryLength::Fixed(DIGEST_BYTES),
            Self::IpOptions | Self::TcpOptionList(_) => BinaryLength::Stated,
            Self::Payload => BinaryLength::None,
        }
    }

    /// Writes a value as text.
    pub fn write_text(self, value: SummaryValue<'_>, out: &mut String) {
        match value {
            SummaryValue::Number(number) => self.write_number(number, out),
            SummaryValue::Bytes(bytes) => self.write_bytes(bytes, out),
        }
    }

    fn write_number(self, number: u64, out: &mut String) {
        // A value never has more bits than its field.
        let byte = number.to_le_bytes()[0];
        _ = match self {
            Self::Address => write!(out, "{}", Ipv4Addr::from(u32::try_from(number).unwrap_or(0))),
            Self::Microseconds => {
                out.push_str(&seconds(Timestamp(number)));
                Ok(())
            }
            Self::Nanoseconds => write!(out, "{}.{:09}", number / SECOND, number % SECOND),
            Self::Ecn => write!(out, "{}", ECN_NAMES[usize::from(byte & 3)]),
            Self::Fragment => write!(out, "{}", char::from(byte)),
            Self::FragmentOffset => {
                let more = if number & 0x2000 != 0 { "+" } else { "" };
                let whole = if number & 0x4000 != 0 { "!" } else { "" };
                write!(out, "{}{more}{whole}", (number & 0x1fff) << 3)
            }
            Self::Protocol => match byte {
                super::headers::TCP => write!(out, "T"),
                super::headers::UDP => write!(out, "U"),
                super::headers::ICMP => write!(out, "I"),
                other => write!(out, "{other}"),
            },
            Self::Flags => {
                let before = out.len();
                out.extend(
                    FLAGS.chars().enumerate().filter(|(bit, _)| number >> bit & 1 == 1).map(|it| it.1),
                );
                if out.len() == before {
                    out.push('.');
                }
                Ok(())
            }
            Self::Direction => match number {
                0 => write!(out, ">"),
                1 => write!(out, "<"),
                other => write!(out, "{other}"),
            },
            Self::Hexadecimal => write!(out, "{number:04x}"),
            Self::IcmpType => match icmp_type_name(byte) {
                Some(name) => write!(out, "{name}"),
                None => write!(out, "{number}"),
            },
            Self::IcmpCode => match icmp_code_name(number.to_le_bytes()[1], byte) {
                Some(name) => write!(out, "{name}"),
                None => write!(out, "{byte}"),
            },
            _ => write!(out, "{number}"),
        };
    }

    fn write_bytes(self, bytes: &[u8], out: &mut String) {
        match self {
            Self::Ethernet => {
                if let Ok(address) = bytes.try_into().map(EthernetAddress) {
                    _ = write!(out, "{address}");
                }
            }
            Self::IpOptions => ip_options::write(bytes, out),
            Self::TcpOptionList(choice) => options::write(bytes, choice, out),
            Self::Digest => {
                let bits = u128::from_le_bytes(digest(bytes));
                for shift in (0..128).step_by(6) {
                    let index = usize::try_from(bits >> shift & 0x3f).unwrap_or(0);
                    out.push(char::from(DIGEST_CHARACTERS[index]));
                }
            }
            Self::HexadecimalDigest => {
                digest(bytes).iter().for_each(|byte| _ = write!(out, "{byte:02x}"));
            }
            _ => out.push_str(&quote(bytes)),
        }
    }

    /// Writes the binary form of a value. That of no value is zeros.
    pub fn write_binary(self, value: Option<SummaryValue<'_>>, out: &mut Vec<u8>) {
        match (self.binary_length(), value) {
            (BinaryLength::Fixed(length), Some(SummaryValue::Number(number))) => {
                let number = match self {
                    Self::Microseconds => ((number / SECOND) << 32) | (number % SECOND / 1000),
                    Self::Nanoseconds => ((number / SECOND) << 32) | (number % SECOND),
                    _ => number,
                };
                out.extend_from_slice(&number.to_be_bytes()[8 - length..]);
            }
            (BinaryLength::Fixed(length), Some(SummaryValue::Bytes(bytes))) => match self {
                Self::Digest | Self::HexadecimalDigest => out.extend_from_slice(&digest(bytes)),
                _ => out.extend_from_slice(bytes.get(..length).unwrap_or(&[0; 8][..length])),
            },
            (BinaryLength::Fixed(length), None) => out.resize(out.len() + length, 0),
            (BinaryLength::Stated, value) => {
                let kept = match (self, value) {
                    (Self::TcpOptionList(choice), Some(SummaryValue::Bytes(bytes))) => {
                        options::keep(bytes, choice)
                    }
                    (_, Some(SummaryValue::Bytes(bytes))) => bytes.to_vec(),
                    _ => Vec::new(),
                };
                // Options have at most 40 bytes.
                out.push(u8::try_from(kept.len()).unwrap_or(0));
                out.extend_from_slice(&kept);
            }
            (BinaryLength::None, _) => {}
        }
    }

    /// Removes the binary form of a value from the start of a record; `None` if the record is too short.
    pub fn read_binary<'r>(self, record: &mut &'r [u8]) -> Option<SummaryValue<'r>> {
        let length = match self.binary_length() {
            BinaryLength::Fixed(length) => length,
            BinaryLength::Stated => {
                let (length, rest) = record.split_first()?;
                *record = rest;
                usize::from(*length)
            }
            BinaryLength::None => return None,
        };
        let (bytes, rest) = record.split_at_checked(length)?;
        *record = rest;
        if length > 8 || matches!(self, Self::Ethernet | Self::IpOptions | Self::TcpOptionList(_)) {
            return Some(SummaryValue::Bytes(bytes));
        }
        let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let time = |unit: u64| (number >> 32) * SECOND + (number & 0xffff_ffff).saturating_mul(unit);
        Some(SummaryValue::Number(match self {
            Self::Microseconds => time(1000),
            Self::Nanoseconds => time(1),
            _ => number,
        }))
    }
}
