//! Rotation of the files of a run on an interface: its limits, and the names of rotated captures.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_units::{Bytes, Nanos, Timestamp, time_text};

/// The age or size at which files are completed and new ones begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationLimit {
    /// The age of the files.
    Time(Nanos),
    /// The size of a capture, or the bytes of the rows and frames in the files of a module before compression.
    Size(Bytes),
}

impl RotationLimit {
    /// Returns true for a file of this age and size that is to be completed.
    pub fn is_reached(self, age: Duration, size: Bytes) -> bool {
        match self {
            Self::Time(time) => age >= Duration::from_nanos(time.0),
            Self::Size(most) => size >= most,
        }
    }
}

impl std::str::FromStr for RotationLimit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text.parse::<Nanos>(), text.parse::<Bytes>()) {
            (Ok(time), _) if time.0 >= Nanos::SECOND.0 => Ok(Self::Time(time)),
            (Err(_), Ok(size)) if size.0 >= 1 << 20 => Ok(Self::Size(size)),
            _ => Err("write a time of at least 1s, such as 1h, or a size of at least 1MiB, such as 1GiB"),
        }
    }
}

/// The names of rotated captures, in the scheme of dumpcap(1): `x.pcap` becomes `x_00001_20261126021244.pcap` and so on, with the
/// number of the file and the UTC time at which it was begun. So both the names and the times are in the order of the packets.
#[derive(Debug)]
pub struct RotatedNames {
    base: PathBuf,
    /// The number of the last file.
    number: u64,
}

impl RotatedNames {
    /// Begins after the last file in the folder that has such a name, so that a later run goes on counting.
    pub fn new(base: &Path) -> Self {
        let folder = base.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let stem = base.file_stem().unwrap_or_default();
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let number = entries.filter_map(|entry| number_of(&entry.file_name(), stem)).max().unwrap_or(0);
        Self { base: base.to_owned(), number }
    }

    /// Returns the name of a file that is begun at this time.
    pub fn next(&mut self, begin: Timestamp) -> PathBuf {
        self.number = self.number.saturating_add(1);
        let mut name = self.base.file_stem().unwrap_or_default().to_owned();
        // The date and the time of day, to the second.
        let time: String = time_text(begin)
            .iter()
            .take(19)
            .filter(|byte| byte.is_ascii_digit())
            .map(|byte| char::from(*byte))
            .collect();
        name.push(format!("_{:05}_{time}", self.number));
        if let Some(extension) = self.base.extension() {
            name.push(OsString::from("."));
            name.push(extension);
        }
        self.base.with_file_name(name)
    }
}

/// Returns the number in a name that begins with `STEM_NUMBER_`.
fn number_of(name: &OsStr, stem: &OsStr) -> Option<u64> {
    let rest = name.as_encoded_bytes().strip_prefix(stem.as_encoded_bytes())?.strip_prefix(b"_")?;
    let end = rest.iter().position(|byte| *byte == b'_')?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_time_or_a_size() {
        let limit = |text: &str| text.parse::<RotationLimit>();
        assert_eq!(limit("1h"), Ok(RotationLimit::Time(Nanos(3_600 * Nanos::SECOND.0))));
        assert_eq!(limit("10s"), Ok(RotationLimit::Time(Nanos(10 * Nanos::SECOND.0))));
        assert_eq!(limit("1GiB"), Ok(RotationLimit::Size(Bytes(1 << 30))));
        for text in ["", "1ms", "10", "1KiB", "daily", "0s"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rotated_captures_have_a_number_and_a_time_and_later_runs_go_on_counting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let begin = Timestamp(1_700_000_000_987_654_321);
        let mut names = RotatedNames::new(&at("x.pcap"));
        assert_eq!(names.next(begin), at("x_00001_20231114221320.pcap"));
        assert_eq!(names.next(begin), at("x_00002_20231114221320.pcap"));
        // Unfinished files count, and other names do not.
        for name in
            ["x_00041_20231114221320.pcap.part", "x_99_.pcapng", "xy_00500_0.pcap", "x_900.pcap", "x_-_.pcap"]
        {
            std::fs::write(at(name), "").unwrap();
        }
        assert_eq!(RotatedNames::new(&at("x.pcap")).next(begin), at("x_00100_20231114221320.pcap"));
        assert_eq!(RotatedNames::new(&at("plain")).next(begin), at("plain_00001_20231114221320"));
        assert_eq!(
            RotatedNames::new(Path::new("no/x.pcapng")).next(begin),
            Path::new("no/x_00001_20231114221320.pcapng")
        );
    }
}
