//! Small parts of a grant: interfaces, shares of processors.

use std::fmt;
use std::str::FromStr;

/// A network interface of a node, by name. It is compared and never looked up in a credential's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface(String);

/// A text that is no interface's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no interface: write 1 to 15 plain characters without `/` and white space, such as eth0", .0.escape_debug())]
pub struct InterfaceError(String);

impl Interface {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Interface {
    type Err = InterfaceError;

    /// What Linux allows as the name of an interface (`dev_valid_name`), in printable ASCII.
    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let legal = text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        if legal && (1..=15).contains(&text.len()) && text != "." && text != ".." {
            Ok(Self(text.to_owned()))
        } else {
            Err(InterfaceError(text.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A share of processors, in millionths of one core: 1,000,000 is a whole core, 2,500,000 two and a half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuShare(pub u64);

/// A text that is no share of processors.
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

/// The lower one, where nothing is no limit.
pub(super) fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
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
    fn interfaces_are_what_linux_calls_so() {
        for good in ["eth0", "wlp3s0", "br-1234567890ab", "a.7", "x@y"] {
            assert_eq!(good.parse::<Interface>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a b", "a:b", "abcdefghijklmnop", "é", "a\n"] {
            assert!(bad.parse::<Interface>().is_err(), "{bad:?}");
        }
    }
}
