//! The small parts of a grant as types: names of interfaces, shares of processors, rates and amounts of bytes.

use std::fmt;
use std::str::FromStr;
use weir_units::{Amount, Bytes, ParseError};

/// The name of a network interface of a node. The names in a credential are only compared with those of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName(String);

/// The error for a text that is not an interface's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no name of an interface: write 1 to 15 plain characters without `/` and white space, such as eth0", .0.escape_debug())]
pub struct InterfaceError(String);

impl InterfaceName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = InterfaceError;

    /// Reads a name of printable ASCII that Linux allows for an interface (`dev_valid_name`).
    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let legal = text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        if legal && (1..=15).contains(&text.len()) && text != "." && text != ".." {
            Ok(Self(text.to_owned()))
        } else {
            Err(InterfaceError(text.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An amount of processor time, in millionths of one core: 1,000,000 is one core, 2,500,000 two and a half cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuShare(pub u64);

/// The error for a text that is not a share of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no share of processors: write percents of a core, such as 5%, 0.25% or 150%", .0.escape_debug())]
pub struct CpuShareError(String);

impl FromStr for CpuShare {
    type Err = CpuShareError;

    /// Reads percents of a core, with up to four decimals.
    fn from_str(text: &str) -> Result<Self, CpuShareError> {
        let error = || CpuShareError(text.chars().take(80).collect());
        let number = text.strip_suffix('%').ok_or_else(error)?.trim_end();
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
            return Err(error());
        }
        let decimals: u64 = format!("{decimals:0<4}").parse().map_err(|_| error())?;
        let whole: u64 = whole.parse().map_err(|_| error())?;
        whole.checked_mul(10_000).and_then(|ppm| ppm.checked_add(decimals)).map(Self).ok_or_else(error)
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.0 % 10_000);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}%", self.0 / 10_000),
            decimals => write!(f, "{}.{decimals}%", self.0 / 10_000),
        }
    }
}

/// A rate in bytes per second, read and shown in decimal units: `1 MB/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesPerSecond(pub u64);

impl FromStr for BytesPerSecond {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wanted = "a number of bytes in a second such as 64 kB/s or 1 MB/s";
        let wrong = || ParseError { given: text.to_owned(), wanted };
        let bytes = text.strip_suffix("/s").ok_or_else(wrong)?;
        bytes.parse().map(|Bytes(bytes)| Self(bytes)).map_err(|_| wrong())
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DecimalBytes(self.0).fmt(f)?;
        f.write_str("/s")
    }
}

impl Amount for BytesPerSecond {
    fn exact(self) -> String {
        format!("{} B/s", self.0)
    }
}

/// Bytes on a disk, shown in decimal units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DecimalBytes(pub(super) u64);

impl fmt::Display for DecimalBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => return write!(f, "{} B", self.0),
            1_000..1_000_000 => (1_000, "kB"),
            1_000_000..1_000_000_000 => (1_000_000, "MB"),
            _ => (1_000_000_000_u64, "GB"),
        };
        // The amount in units of the last decimal place, rounded down. It is exact if there are as many decimals as
        // `scale` has zeros.
        let decimals = f.precision().unwrap_or(1).min(9);
        let last_places =
            (u128::from(self.0) * 10_u128.pow(u32::try_from(decimals).unwrap_or(9))) / u128::from(scale);
        let digits = format!("{last_places:0>width$}", width = decimals + 1);
        let (whole, rest) = digits.split_at(digits.len() - decimals);
        match rest.trim_end_matches('0') {
            "" => write!(f, "{whole} {unit}"),
            rest => write!(f, "{whole}.{rest} {unit}"),
        }
    }
}

impl Amount for DecimalBytes {
    fn exact(self) -> String {
        format!("{} B", self.0)
    }
}

/// Returns the lower of two limits, where `None` is no limit.
pub(super) fn lower_limit<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_exactly() {
        for (text, ppm) in [("5%", 50_000), ("0.25%", 2_500), ("150%", 1_500_000), ("0%", 0), ("0.0001%", 1)]
        {
            assert_eq!(text.parse(), Ok(CpuShare(ppm)), "{text}");
            assert_eq!(CpuShare(ppm).to_string(), text);
        }
        assert_eq!("2.50 %".parse(), Ok(CpuShare(25_000)));
        for text in ["", "5", "%", "-5%", "5.%", ".5%", "0.00001%", "1e3%", "+1%", "99999999999999999999%"] {
            assert!(text.parse::<CpuShare>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_in_a_second_are_read_and_shown_in_decimal_units() {
        for (text, bytes) in
            [("1 MB/s", 1_000_000), ("64kB/s", 64_000), ("1.5 GB/s", 1_500_000_000), ("7 B/s", 7)]
        {
            assert_eq!(text.parse(), Ok(BytesPerSecond(bytes)), "{text}");
        }
        for text in ["", "1 MB", "/s", "1 Mbit/s", "-1 B/s"] {
            assert!(text.parse::<BytesPerSecond>().is_err(), "{text}");
        }
        let shown = [999, 1_000, 1_250_000, 1_000_000_000].map(|bytes| BytesPerSecond(bytes).to_string());
        assert_eq!(shown, ["999 B/s", "1 kB/s", "1.2 MB/s", "1 GB/s"]);
        let (one, other) = (DecimalBytes(1_000_001), DecimalBytes(1_000_000));
        assert_eq!(weir_units::display_among(one, &[other]), "1.000001 MB");
    }

    #[test]
    fn only_names_that_linux_allows_are_interfaces() {
        for good in ["eth0", "wlp3s0", "br-1234567890ab", "a.7", "x@y"] {
            assert_eq!(good.parse::<InterfaceName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a b", "a:b", "abcdefghijklmnop", "é", "a\n"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }
}
