//! Profiles: the limits that an operator sets for modules, as TOML.

use crate::{Calibration, FuelLimits, STACK_MAX, Tier, escaped};
use std::str::FromStr;
use toml::de::{DeTable, DeValue};
use weir_abi::host::HOST_FUNCTIONS;
use weir_abi::{PRIVATE_MAX, limit};
use weir_units::{Bytes, Nanos};
use weir_wire::{WriteField, WriteFields};

/// The longest profile, in bytes.
pub const PROFILE_BYTES_MAX: usize = 64 * 1024;
/// The shortest period of ticks, as for manifests.
const TICK_PERIOD_MIN: Nanos = Nanos(1_000);
/// The longest time in a profile. A longer time is a mistake, and its fuel would overflow.
const TIME_MAX: Nanos = Nanos(3_600_000_000_000);
const FACTOR_MAX: u64 = 1_000_000;
const STRIKES_MAX: u64 = 1_000_000;
const WASM_PAGE: u64 = 65_536;

/// An operator's limits for modules. Without a profile, [`Profile::default`] applies. The default is generous: every
/// module whose calls end in reasonable time may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The code in which modules may run.
    pub verified: VerifiedUse,
    /// The tiers in which modules may run. A module runs in the cheapest of these tiers that its bounds allow.
    pub tiers: Vec<Tier>,
    /// The time for one packet, without the part for its length.
    pub packet: Nanos,
    /// The time for each captured byte of a packet.
    pub per_byte: Nanos,
    /// The time for a tick, for a low-memory event, for serving a call, or for handling an answer.
    pub tick: Nanos,
    /// The time for each call before the first packet.
    pub start: Nanos,
    /// The time for `weir_stop`.
    pub stop: Nanos,
    /// The longest time between two checks of a supervised module's use.
    pub check_interval: Nanos,
    /// The shortest period of ticks.
    pub tick_period: Nanos,
    /// The most private memory of an instance.
    pub memory: Bytes,
    /// The most stack of a call.
    pub stack: Bytes,
    /// The most bytes by which the shadow stack, in the module's own memory, may grow during a call.
    pub shadow_stack: Bytes,
    /// The most records for one packet.
    pub records: u32,
    /// The most records for a call of another entry point, such as a tick.
    pub call_records: u32,
    /// The most patches of one packet.
    pub patches: u32,
    /// The most frames for one packet.
    pub frames: u32,
    /// The most frames for a call of another entry point, such as a tick.
    pub call_frames: u32,
    /// The longest frame that a module may send.
    pub frame_bytes: Bytes,
    /// The most packets that an instance of a module keeps at once.
    pub keep: u32,
    /// The most pages of 64 KiB by which memory may grow for one packet, or in another call after the start.
    pub pages: u32,
    /// The host functions that a module may import.
    pub imports: Vec<&'static str>,
    /// The fields of packets that a module may write. With none, a module that can call `patch` is refused.
    pub writes: WriteFields,
    /// The factor by which a bound on time may exceed its limit for a module to be supervised.
    pub cpu_factor: u32,
    /// The factor by which another bound may exceed its limit for a module to be supervised.
    pub other_factor: u32,
    /// The number of aborted calls that end a metered module. A supervised one is unloaded when its calls over their limit,
    /// each counted 64 times, exceed its other calls by more than 64 times this number.
    pub strikes: u32,
}

/// The use of machine code of LLVM, which is verified before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifiedUse {
    /// A module runs in verified code once there is such code, and in code of Cranelift, which is trusted, until then.
    #[default]
    WherePossible,
    /// A module runs in verified code alone. It waits for this code, and is refused if there is none.
    Only,
}

impl VerifiedUse {
    const ALL: [Self; 2] = [Self::WherePossible, Self::Only];

    /// Returns the value of the profile's key.
    pub fn name(self) -> &'static str {
        match self {
            Self::WherePossible => "where-possible",
            Self::Only => "only",
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            verified: VerifiedUse::default(),
            tiers: Tier::ALL.to_vec(),
            packet: Nanos::MILLISECOND,
            per_byte: Nanos(100),
            tick: Nanos(200 * Nanos::MILLISECOND.0),
            start: Nanos(2 * Nanos::SECOND.0),
            stop: Nanos(2 * Nanos::SECOND.0),
            check_interval: Nanos(100_000),
            tick_period: TICK_PERIOD_MIN,
            memory: Bytes(PRIVATE_MAX as u64),
            stack: STACK_MAX,
            shadow_stack: Bytes(1 << 20),
            records: limit::RECORDS_PER_PACKET,
            call_records: limit::RECORDS_PER_CALL,
            patches: limit::PATCHES_PER_PACKET,
            frames: limit::FRAMES_PER_PACKET,
            call_frames: limit::FRAMES_PER_CALL,
            frame_bytes: Bytes(limit::FRAME_BYTES as u64),
            keep: limit::KEPT_PACKETS,
            pages: PRIVATE_MAX >> 16,
            imports: HOST_FUNCTIONS.iter().map(|known| known.name).collect(),
            writes: WriteFields::ALL,
            cpu_factor: 40,
            other_factor: 10,
            strikes: 3,
        }
    }
}

/// The reason why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A text that is not TOML.
    #[error("the profile cannot be read: {}{message}", line_prefix(*.line))]
    Toml {
        /// The line, from 1; `None` if it is not known.
        line: Option<usize>,
        /// The message of the TOML reader.
        message: String,
    },
    /// A profile longer than [`PROFILE_BYTES_MAX`].
    #[error("the profile has {0} bytes; {PROFILE_BYTES_MAX} is the most")]
    TooLong(usize),
    /// An unknown key.
    #[error("line {line}: a profile has no key `{given}`; {}", suggestion(.similar))]
    Unknown {
        /// The line, from 1.
        line: usize,
        /// The given key.
        given: String,
        /// A similar key that may have been meant.
        similar: Option<&'static str>,
    },
    /// A key with another spelling in an earlier version.
    #[error("line {line}: `{old}` is now `{new}`")]
    Renamed {
        /// The line, from 1.
        line: usize,
        /// The earlier spelling.
        old: &'static str,
        /// The present spelling.
        new: &'static str,
    },
    /// A value of the wrong type, or out of range.
    #[error("line {line}: `{key}` must be {wanted}")]
    Value {
        /// The line, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// A description of legal values, with an example.
        wanted: String,
    },
}

fn line_prefix(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

fn suggestion(similar: &Option<&'static str>) -> String {
    match similar {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => {
            let keys: Vec<String> = KEYS.iter().map(|(key, _)| format!("`{key}`")).collect();
            format!("there is {}", keys.join(", "))
        }
    }
}

/// A key of a profile: the type and range of its value, and the field that it sets.
enum Key {
    Verified,
    Tiers,
    Imports,
    Writes,
    Time { min: u64, field: fn(&mut Profile) -> &mut Nanos },
    Amount { min: u64, max: u64, field: fn(&mut Profile) -> &mut Bytes },
    Count { min: u64, max: u64, field: fn(&mut Profile) -> &mut u32 },
}

const fn time(min: u64, field: fn(&mut Profile) -> &mut Nanos) -> Key {
    Key::Time { min, field }
}

const fn amount(min: u64, max: u64, field: fn(&mut Profile) -> &mut Bytes) -> Key {
    Key::Amount { min, max, field }
}

const fn count(min: u64, max: u64, field: fn(&mut Profile) -> &mut u32) -> Key {
    Key::Count { min, max, field }
}

/// All keys, in the order in which they are documented.
const KEYS: &[(&str, Key)] = &[
    ("tiers", Key::Tiers),
    ("verified", Key::Verified),
    ("packet", time(1, |it| &mut it.packet)),
    ("per-byte", time(0, |it| &mut it.per_byte)),
    ("tick", time(1, |it| &mut it.tick)),
    ("start", time(1, |it| &mut it.start)),
    ("stop", time(1, |it| &mut it.stop)),
    // Each check takes time itself. With a shorter interval, checks would take most of the time.
    ("check-interval", time(1_000, |it| &mut it.check_interval)),
    ("tick-period", time(TICK_PERIOD_MIN.0, |it| &mut it.tick_period)),
    ("memory", amount(WASM_PAGE, PRIVATE_MAX as u64, |it| &mut it.memory)),
    ("stack", amount(1, STACK_MAX.0, |it| &mut it.stack)),
    ("shadow-stack", amount(0, PRIVATE_MAX as u64, |it| &mut it.shadow_stack)),
    ("records", count(0, limit::RECORDS_PER_PACKET as u64, |it| &mut it.records)),
    ("call-records", count(0, limit::RECORDS_PER_CALL as u64, |it| &mut it.call_records)),
    ("patches", count(0, limit::PATCHES_PER_PACKET as u64, |it| &mut it.patches)),
    ("frames", count(0, limit::FRAMES_PER_PACKET as u64, |it| &mut it.frames)),
    ("call-frames", count(0, limit::FRAMES_PER_CALL as u64, |it| &mut it.call_frames)),
    (
        "frame-bytes",
        amount(limit::FRAME_BYTES_MIN as u64, limit::FRAME_BYTES as u64, |it| &mut it.frame_bytes),
    ),
    ("keep", count(0, limit::KEPT_PACKETS as u64, |it| &mut it.keep)),
    ("pages", count(0, PRIVATE_MAX as u64 / WASM_PAGE, |it| &mut it.pages)),
    ("imports", Key::Imports),
    ("writes", Key::Writes),
    ("cpu-factor", count(1, FACTOR_MAX, |it| &mut it.cpu_factor)),
    ("other-factor", count(1, FACTOR_MAX, |it| &mut it.other_factor)),
    ("strikes", count(1, STRIKES_MAX, |it| &mut it.strikes)),
];

/// Keys with another spelling in an earlier version: the earlier and the present spelling.
const RENAMED: &[(&str, &str)] = &[("piece", "check-interval")];

/// The legal values of the key `writes`.
const WRITES_WANTED: &str = "a list of fields, such as [\"dscp\", \"ttl\"]; or \"all\"";
/// The legal values of the key `verified`.
const VERIFIED_WANTED: &str = "\"where-possible\" or \"only\"";

impl Key {
    /// Reads a value into the profile.
    ///
    /// # Errors
    /// Fails for an illegal value, with a description of legal values.
    fn read(&self, profile: &mut Profile, value: &DeValue<'_>) -> Result<(), String> {
        match *self {
            Self::Tiers => {
                let wanted = "a list of at least one of \"proved\", \"supervised\" and \"metered\"";
                let tier = |name: &str| Tier::ALL.iter().find(|tier| tier.name() == name).copied();
                profile.tiers = list(value, tier).filter(|tiers| !tiers.is_empty()).ok_or(wanted)?;
                profile.tiers.sort_unstable();
                profile.tiers.dedup();
            }
            Self::Verified => {
                let DeValue::String(given) = value else { return Err(VERIFIED_WANTED.to_owned()) };
                let known = VerifiedUse::ALL.into_iter().find(|known| known.name() == given);
                profile.verified = known.ok_or(VERIFIED_WANTED)?;
            }
            Self::Imports => {
                let names = || HOST_FUNCTIONS.iter().map(|known| known.name);
                let given = match value {
                    DeValue::String(all) if all == "all" => Some(names().collect()),
                    _ => list(value, |name| names().find(|known| *known == name)),
                };
                profile.imports = given.ok_or_else(|| {
                    let quoted: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
                    format!("a list of some of {}; or \"all\"", quoted.join(", "))
                })?;
            }
            Self::Writes => {
                profile.writes = match value {
                    DeValue::String(all) if all == "all" => WriteFields::ALL,
                    DeValue::Array(_) => {
                        let unknown = |error| format!("{WRITES_WANTED}: {error}");
                        let names = list(value, |name| Some(name.to_owned())).ok_or(WRITES_WANTED)?;
                        let fields = names.iter().map(|name| WriteFields::find_field(name));
                        fields.collect::<Result<_, _>>().map_err(unknown)?
                    }
                    _ => return Err(WRITES_WANTED.to_owned()),
                };
            }
            Self::Time { min, field } => {
                let (min, max) = (Nanos(min), TIME_MAX);
                *field(profile) = quantity(value, min, max)
                    .ok_or_else(|| format!("a duration from {min} to {max}, such as \"20us\""))?;
            }
            Self::Amount { min, max, field } => {
                let (min, max) = (Bytes(min), Bytes(max));
                *field(profile) = quantity(value, min, max)
                    .ok_or_else(|| format!("an amount from {min} to {max}, such as \"64 KiB\""))?;
            }
            Self::Count { min, max, field } => {
                *field(profile) =
                    number(value, min, max).ok_or_else(|| format!("a whole number from {min} to {max}"))?;
            }
        }
        Ok(())
    }

    /// Writes the value of the key as TOML. Times and amounts are exact, not rounded as for people.
    fn write(&self, profile: &mut Profile) -> String {
        let quoted = |names: &mut dyn Iterator<Item = &str>| {
            let all: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
            format!("[{}]", all.join(", "))
        };
        match self {
            Self::Tiers => quoted(&mut profile.tiers.iter().map(|tier| tier.name())),
            Self::Verified => format!("\"{}\"", profile.verified.name()),
            Self::Imports => quoted(&mut profile.imports.iter().copied()),
            // All fields are named, because a later version of weir can have more.
            Self::Writes => quoted(&mut profile.writes.iter().map(WriteField::name)),
            Self::Time { field, .. } => format!("\"{}ns\"", field(profile).0),
            Self::Amount { field, .. } => format!("\"{}\"", field(profile).0),
            Self::Count { field, .. } => field(profile).to_string(),
        }
    }
}

impl Profile {
    /// Returns the profile of a node on which a module may keep a core for at most `blocking_max`. The check interval is at most
    /// a quarter of that, so that a module learns in time that it has to yield.
    pub fn for_blocking(self, blocking_max: Nanos) -> Self {
        let check_interval = self.check_interval.min(Nanos(blocking_max.0 / 4));
        Self { check_interval, ..self }
    }

    /// Reads a profile. A key that is not given has its value in [`Profile::default`].
    ///
    /// # Errors
    /// A [`ProfileError`] for the first error, with its line.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        if text.len() > PROFILE_BYTES_MAX {
            return Err(ProfileError::TooLong(text.len()));
        }
        let line = |at: usize| text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| ProfileError::Toml {
            line: error.span().map(|span| line(span.start)),
            message: escaped(error.message()),
        })?;
        let mut profile = Self::default();
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let line = line(key.span().start);
            let given: &str = key.get_ref();
            if let Some((old, new)) = RENAMED.iter().find(|(old, _)| *old == given) {
                return Err(ProfileError::Renamed { line, old, new });
            }
            let Some((name, key)) = KEYS.iter().find(|(name, _)| *name == given) else {
                return Err(ProfileError::Unknown {
                    line,
                    given: escaped(given),
                    similar: similar_key(given),
                });
            };
            let read = key.read(&mut profile, value.get_ref());
            read.map_err(|wanted| ProfileError::Value { line, key: name, wanted })?;
        }
        Ok(profile)
    }

    /// Returns the profile as TOML, from which [`parse`](Self::parse) in another process reads the same profile.
    pub fn to_toml(&self) -> String {
        let mut profile = self.clone();
        KEYS.iter().map(|(name, key)| format!("{name} = {}\n", key.write(&mut profile))).collect()
    }

    /// Returns the limits for each call, converted to fuel by a calibration for its slowest kind of work.
    /// [`CalibratedProfile`](crate::CalibratedProfile) has the calibration for the code in which modules may run.
    pub(crate) fn limits(&self, calibration: &Calibration) -> FuelLimits {
        FuelLimits {
            packet: calibration.limit_in_fuel(self.packet, self.per_byte),
            tick: calibration.fuel(self.tick),
            start: calibration.fuel(self.start),
            stop: calibration.fuel(self.stop),
            check_interval: calibration.fuel(self.check_interval),
            strikes: self.strikes,
        }
    }

    /// Returns true if the profile allows modules to run in this tier.
    pub fn allows(&self, tier: Tier) -> bool {
        self.tiers.contains(&tier)
    }
}

/// Reads a quantity from a text with a unit; `None` for a value of another type or out of range.
fn quantity<T: FromStr + PartialOrd>(value: &DeValue<'_>, min: T, max: T) -> Option<T> {
    let DeValue::String(text) = value else { return None };
    text.parse().ok().filter(|value| (&min..=&max).contains(&value))
}

/// Reads a whole number; `None` for a value of another type or out of range.
fn number(value: &DeValue<'_>, min: u64, max: u64) -> Option<u32> {
    let DeValue::Integer(value) = value else { return None };
    let value = u64::from_str_radix(value.as_str(), value.radix()).ok()?;
    u32::try_from(value).ok().filter(|_| (min..=max).contains(&value))
}

/// Reads a list of texts; `None` for a value of another type, and for an unknown item.
fn list<T>(value: &DeValue<'_>, known: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let DeValue::Array(items) = value else { return None };
    let item = |value: &DeValue<'_>| match value {
        DeValue::String(text) => known(text),
        _ => None,
    };
    items.iter().map(|value| item(value.get_ref())).collect()
}

/// Returns the key that was probably meant: a key that differs by at most two letters, or the only key with which the
/// given text begins or ends.
fn similar_key(given: &str) -> Option<&'static str> {
    let given = given.chars().take(40).collect::<String>().to_lowercase().replace('_', "-");
    let keys = || KEYS.iter().map(|(key, _)| *key);
    let close = keys()
        .map(|key| (strsim::levenshtein(key, &given), key))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    close.map(|(_, key)| key).or_else(|| {
        let mut parts = keys().filter(|key| given.starts_with(key) || given.ends_with(key));
        parts.next().filter(|_| parts.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_bounds::Linear;

    #[test]
    fn a_missing_key_has_its_default() {
        assert_eq!(Profile::parse("# nothing\n"), Ok(Profile::default()));
        let profile = Profile::parse(
            "tiers = ['metered', 'proved', 'metered']\npacket = '20us'\nper-byte = '4ns'\nmemory = '1 MiB'\nrecords = 0x2\nimports = []\n",
        );
        let expected = Profile {
            tiers: vec![Tier::Proved, Tier::Metered],
            packet: Nanos(20_000),
            per_byte: Nanos(4),
            memory: Bytes(1 << 20),
            records: 2,
            imports: Vec::new(),
            ..Profile::default()
        };
        assert_eq!(profile, Ok(expected.clone()));
        assert!(!expected.allows(Tier::Supervised));
        let limits = expected.limits(&Calibration::default());
        assert_eq!(limits.packet, Linear { constant: 80_000, per_kib: 16 * 1024 });
        assert_eq!(
            (limits.tick, limits.start, limits.check_interval, limits.strikes),
            (800_000_000, 8_000_000_000, 400_000, 3)
        );
    }

    #[test]
    fn a_written_profile_is_read_again() {
        let odd = Profile {
            verified: VerifiedUse::Only,
            tiers: vec![Tier::Metered],
            packet: Nanos(1_234_567),
            per_byte: Nanos(3),
            tick: Nanos(5),
            start: Nanos(6),
            stop: Nanos(7),
            check_interval: Nanos(2_501),
            tick_period: Nanos(1_001),
            memory: Bytes(65_537),
            stack: Bytes(1),
            shadow_stack: Bytes(2),
            records: 3,
            call_records: 4,
            patches: 5,
            frames: 6,
            call_frames: 7,
            frame_bytes: Bytes(100),
            keep: 8,
            pages: 9,
            imports: vec!["emit"],
            writes: WriteField::Ttl.into(),
            cpu_factor: 10,
            other_factor: 11,
            strikes: 12,
        };
        let no_field = Profile { writes: WriteFields::NONE, ..Profile::default() };
        for profile in [odd, no_field, Profile::default()] {
            let text = profile.to_toml();
            assert_eq!(Profile::parse(&text), Ok(profile));
            assert_eq!(text.lines().count(), KEYS.len());
        }
    }

    #[test]
    fn the_fields_to_write_are_a_list_of_names_or_all_of_them() {
        let writes = |text: &str| Profile::parse(text).unwrap().writes;
        assert_eq!(writes(""), WriteFields::ALL);
        assert_eq!(writes("writes = 'all'"), WriteFields::ALL);
        assert_eq!(writes("writes = []"), WriteFields::NONE);
        let two = Profile::parse("writes = ['ttl', 'dscp', 'ttl']").unwrap();
        assert_eq!(two.writes, WriteFields::from(WriteField::Dscp) | WriteField::Ttl.into());
        // Equal profiles have equal texts, by which records name them.
        assert!(two.to_toml().contains("\nwrites = [\"dscp\", \"ttl\"]\n"), "{}", two.to_toml());
    }

    #[test]
    fn an_earlier_spelling_of_a_key_is_refused_with_the_present_spelling() {
        for (old, new) in RENAMED {
            let error = Profile::parse(&format!("\n{old} = '5us'")).unwrap_err();
            assert_eq!(error.to_string(), format!("line 2: `{old}` is now `{new}`"));
            assert_eq!(KEYS.iter().filter(|(key, _)| key == new).count(), 1);
        }
    }

    #[test]
    fn an_error_names_its_line_and_the_legal_values() {
        for (text, message) in [
            ("packet = 5 5", "the profile cannot be read: line 1: "),
            ("\npacket = '1us'\npacket = '2us'", "the profile cannot be read: line 3: duplicate key"),
            ("\npakcet = '1us'", "line 2: a profile has no key `pakcet`; did you mean `packet`?"),
            ("per_byte = '1ns'", "line 1: a profile has no key `per_byte`; did you mean `per-byte`?"),
            ("memory-max = '1 MiB'", "line 1: a profile has no key `memory-max`; did you mean `memory`?"),
            (
                "[cpu]\npacket = '1us'",
                "line 1: a profile has no key `cpu`; there is `tiers`, `verified`, `packet`, `per-byte`",
            ),
            ("\"a\\u001b[2J\" = 1", "a profile has no key `a\\u{1b}[2J`"),
            ("packet = 20", "line 1: `packet` must be a duration from 1 ns to 3600 s, such as \"20us\""),
            ("packet = '20'", "line 1: `packet` must be a duration"),
            ("packet = '2h'", "line 1: `packet` must be a duration"),
            ("check-interval = '10ns'", "line 1: `check-interval` must be a duration from 1 us to"),
            ("tick-period = '0s'", "line 1: `tick-period` must be a duration from 1 us"),
            ("memory = '2 GiB'", "line 1: `memory` must be an amount from 64 KiB to 1023 MiB"),
            ("stack = '1 MiB'", "line 1: `stack` must be an amount from 1 B to 512 KiB, such as \"64 KiB\""),
            ("records = 65", "line 1: `records` must be a whole number from 0 to 64"),
            ("records = 1.5", "line 1: `records` must be a whole number from 0 to 64"),
            ("records = -1", "line 1: `records` must be a whole number from 0 to 64"),
            ("call-records = 65537", "line 1: `call-records` must be a whole number from 0 to 65536"),
            ("patches = 33", "line 1: `patches` must be a whole number from 0 to 32"),
            ("frames = 65", "line 1: `frames` must be a whole number from 0 to 64"),
            ("call-frames = 4097", "line 1: `call-frames` must be a whole number from 0 to 4096"),
            ("frame-bytes = '13 B'", "line 1: `frame-bytes` must be an amount from 14 B to 9 KiB"),
            ("pages = 99999", "line 1: `pages` must be a whole number from 0 to 16368"),
            ("strikes = 0", "line 1: `strikes` must be a whole number from 1 to"),
            ("cpu-factor = 0", "line 1: `cpu-factor` must be a whole number from 1 to"),
            (
                "tiers = []",
                "line 1: `tiers` must be a list of at least one of \"proved\", \"supervised\" and \"metered\"",
            ),
            ("verified = 'always'", "line 1: `verified` must be \"where-possible\" or \"only\""),
            ("verified = true", "line 1: `verified` must be \"where-possible\" or \"only\""),
            ("tiers = 'proved'", "line 1: `tiers` must be a list"),
            ("tiers = ['trusted']", "line 1: `tiers` must be a list"),
            (
                "\nwrites = ['dscp', 'dcsp']",
                "line 2: `writes` must be a list of fields, such as [\"dscp\", \"ttl\"]; or \"all\": `dcsp` is no field that can \
                 be written; there are macs, vlan",
            ),
            ("writes = [\"\\u001b[2J\"]", "`\\u{1b}[2J` is no field"),
            (
                "writes = 'dscp'",
                "line 1: `writes` must be a list of fields, such as [\"dscp\", \"ttl\"]; or \"all\"",
            ),
            ("writes = ['all']", "`all` is no field that can be written"),
            ("writes = [1]", "line 1: `writes` must be a list of fields"),
            ("write = []", "line 1: a profile has no key `write`; did you mean `writes`?"),
            ("imports = ['emit', 'open']", "line 1: `imports` must be a list of some of \"emit\", \"patch\""),
        ] {
            let error = Profile::parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}\n  should say: {message}");
        }
        let long = " ".repeat(PROFILE_BYTES_MAX + 1);
        assert_eq!(
            Profile::parse(&long).unwrap_err().to_string(),
            "the profile has 65537 bytes; 65536 is the most"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(tiers|packet|memory|records|= |\\[|\\]|'|\"|\n|[a-z0-9.{}_-]){0,60}") {
            let _ = Profile::parse(&text);
        }
    }
}
