//! The time that fuel takes on a machine.
//!
//! Bounds are in fuel, and are the same on every machine. Operators set limits in time. `weir calibrate` measures the
//! time that fuel takes on a machine, in the code of each back end, and stores it in the format of this module. The slower
//! of the back ends in whose code a module may run counts.

use crate::{VerifiedUse, escaped, is_plain};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Write};
use weir_bounds::{CostTable, Linear};
use weir_units::Nanos;

/// The longest calibration file, in bytes.
pub const CALIBRATION_BYTES_MAX: usize = 4096;
/// The assumed time of 1000 units of fuel, in ns, on a machine that was not measured. It is typical of processors of
/// the 2020s.
const ASSUMED_NANOS: u64 = 250;
/// The longest plausible time of 1000 units of fuel, in ns. At this speed a unit of fuel takes a microsecond. A longer
/// time is an error of measurement.
const NANOS_MAX: u64 = 1_000_000;
/// The longest name of a processor, in characters.
const PROCESSOR_MAX: usize = 80;
/// The version of the file. Version 1 has no key `version`, and the times of Cranelift's code alone.
const FILE_VERSION: u32 = 2;
/// The amount of fuel whose time a calibration states.
const FUEL: u64 = 1000;
const KIB: u64 = 1024;

/// The times of fuel on a machine, in the code of each back end.
///
/// All conversions use the times of one back end: the slower of those in whose code a module may run. See
/// [`for_use`](Self::for_use).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    cranelift: FuelTimes,
    /// The times of verified code of LLVM; `None` if no measurement was made.
    llvm: Option<FuelTimes>,
    /// The code in which modules may run.
    verified: VerifiedUse,
    /// The version of the cost table by which the fuel was counted.
    cost_table_version: u32,
    /// The measured processor; `None` if no measurement was made.
    processor: Option<String>,
}

/// The time of 1000 units of fuel in the code of a back end, in ns: minimum, median and maximum over several kinds of
/// work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct FuelTimes {
    min: u64,
    median: u64,
    max: u64,
}

impl FuelTimes {
    /// Returns the times if they are plausible and in order.
    fn check(self) -> Result<Self, CalibrationError> {
        let Self { min, median, max } = self;
        if min == 0 || min > median || median > max || max > NANOS_MAX {
            return Err(CalibrationError::Spread { min, median, max });
        }
        Ok(self)
    }

    fn spread(self) -> [u64; 3] {
        [self.min, self.median, self.max]
    }
}

/// The reason why a calibration cannot be used. Running `weir calibrate` on the machine replaces the calibration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// A text that is not TOML, or has other keys.
    #[error("the calibration cannot be read: {0}; `weir calibrate` writes it anew")]
    Toml(String),
    /// A file longer than [`CALIBRATION_BYTES_MAX`].
    #[error(
        "the calibration has {0} bytes; {CALIBRATION_BYTES_MAX} is the most; `weir calibrate` writes it anew"
    )]
    TooLong(usize),
    /// Times that are implausible, or in the wrong order.
    #[error(
        "1000 units of fuel cannot take {min} ns at least, {median} ns in the middle and {max} ns at most: the three times must be from 1 to {NANOS_MAX}, and none may be less than the one before; \
         `weir calibrate` measures them"
    )]
    Spread {
        /// The minimum.
        min: u64,
        /// The median.
        median: u64,
        /// The maximum.
        max: u64,
    },
    /// A calibration that was measured with another version of the cost table.
    #[error(
        "the calibration is for version {0} of the cost table; this weir has version {current}: run `weir calibrate`",
        current = CostTable::VERSION
    )]
    CostTableVersion(u32),
    /// A file of a later version of weir.
    #[error(
        "the calibration's file has version {0}; this weir reads versions 1 and {FILE_VERSION}: run `weir calibrate`"
    )]
    FileVersion(u32),
}

/// The keys that say how the rest of a file is read.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawVersions {
    version: Option<u32>,
    cost_table: Option<u32>,
}

/// A file of version 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFirst {
    #[serde(rename = "cost-table")]
    _cost_table: u32,
    processor: String,
    nanoseconds: FuelTimes,
}

/// A file of version 2.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSecond {
    #[serde(rename = "version")]
    _version: u32,
    #[serde(rename = "cost-table")]
    _cost_table: u32,
    processor: String,
    cranelift: FuelTimes,
    llvm: Option<FuelTimes>,
}

/// Reads the TOML text of a calibration.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, CalibrationError> {
    toml::from_str(text).map_err(|error| CalibrationError::Toml(escaped(error.message())))
}

impl Calibration {
    /// Makes a calibration from a measurement of Cranelift's code on `processor` with the present cost table: the time of
    /// 1000 units of fuel, in ns.
    ///
    /// # Errors
    /// [`CalibrationError::Spread`] if a value is less than the one before, or implausible.
    pub fn measured(min: u64, median: u64, max: u64, processor: &str) -> Result<Self, CalibrationError> {
        let cranelift = FuelTimes { min, median, max }.check()?;
        // Characters that TOML would escape are not part of a processor's name.
        let is_legal = |c: &char| is_plain(*c) && !matches!(c, '"' | '\\');
        let processor = processor.chars().filter(is_legal).take(PROCESSOR_MAX).collect();
        Ok(Self { cranelift, processor: Some(processor), ..Self::default() })
    }

    /// Adds a measurement of verified code of LLVM on the same machine: the time of 1000 units of fuel, in ns.
    ///
    /// # Errors
    /// [`CalibrationError::Spread`] if a value is less than the one before, or implausible.
    pub fn with_llvm(self, min: u64, median: u64, max: u64) -> Result<Self, CalibrationError> {
        Ok(Self { llvm: Some(FuelTimes { min, median, max }.check()?), ..self })
    }

    /// Returns the calibration for modules that may run in this code. The times of verified code of LLVM count for modules
    /// that run in verified code alone. For other modules the back end with the larger maximum counts, as such a module
    /// starts in Cranelift's code and moves to LLVM's. If LLVM's code was not measured, the times of Cranelift's code count.
    #[must_use]
    pub fn for_use(self, verified: VerifiedUse) -> Self {
        Self { verified, ..self }
    }

    /// Reads the text that [`to_toml`](Self::to_toml) writes. A file of version 1 counts as a measurement of Cranelift's
    /// code alone.
    ///
    /// # Errors
    /// A [`CalibrationError`] if the text is too long or of another form, has implausible times, or is for another
    /// version of the cost table.
    pub fn parse(text: &str) -> Result<Self, CalibrationError> {
        if text.len() > CALIBRATION_BYTES_MAX {
            return Err(CalibrationError::TooLong(text.len()));
        }
        let versions: RawVersions = read(text)?;
        if let Some(other) = versions.cost_table.filter(|version| *version != CostTable::VERSION) {
            return Err(CalibrationError::CostTableVersion(other));
        }
        let (processor, FuelTimes { min, median, max }, llvm) = match versions.version {
            None => {
                let raw: RawFirst = read(text)?;
                (raw.processor, raw.nanoseconds, None)
            }
            Some(FILE_VERSION) => {
                let raw: RawSecond = read(text)?;
                (raw.processor, raw.cranelift, raw.llvm)
            }
            Some(other) => return Err(CalibrationError::FileVersion(other)),
        };
        let calibration = Self::measured(min, median, max, &processor)?;
        match llvm {
            Some(FuelTimes { min, median, max }) => calibration.with_llvm(min, median, max),
            None => Ok(calibration),
        }
    }

    /// Returns the measurements as a TOML file. The file does not say in which code modules may run.
    pub fn to_toml(&self) -> String {
        let mut out = String::from(
            "# Written by `weir calibrate`: nanoseconds that 1000 units of fuel take on this node.\n",
        );
        let processor = self.processor.as_deref().unwrap_or_default();
        _ = writeln!(out, "version = {FILE_VERSION}\ncost-table = {}", self.cost_table_version);
        _ = writeln!(out, "processor = \"{processor}\"");
        let mut table = |comment: &str, name: &str, FuelTimes { min, median, max }: FuelTimes| {
            _ = writeln!(out, "\n# {comment}\n[{name}]\nmin = {min}\nmedian = {median}\nmax = {max}");
        };
        table("In Cranelift's code.", "cranelift", self.cranelift);
        if let Some(llvm) = self.llvm {
            table("In verified code of LLVM. Without this table LLVM was not measured.", "llvm", llvm);
        }
        out
    }

    /// Returns the times that count, and the name of their back end.
    fn counting(&self) -> (FuelTimes, &'static str) {
        match self.llvm {
            Some(llvm) if self.verified == VerifiedUse::Only || llvm.max > self.cranelift.max => {
                (llvm, "LLVM")
            }
            _ => (self.cranelift, "Cranelift"),
        }
    }

    /// Returns true if the machine was measured. Otherwise the times are those of a typical processor.
    pub fn is_measured(&self) -> bool {
        self.processor.is_some()
    }

    /// Returns the measured processor; `None` if no measurement was made.
    pub fn processor(&self) -> Option<&str> {
        self.processor.as_deref()
    }

    /// Returns minimum, median and maximum of the time of 1000 units of fuel, in ns, in the code of the back end that
    /// counts.
    pub fn spread(&self) -> [u64; 3] {
        self.counting().0.spread()
    }

    /// Returns minimum, median and maximum of the time of 1000 units of fuel in Cranelift's code, in ns.
    pub fn cranelift(&self) -> [u64; 3] {
        self.cranelift.spread()
    }

    /// Returns minimum, median and maximum of the time of 1000 units of fuel in verified code of LLVM, in ns; `None` if no
    /// measurement was made.
    pub fn llvm(&self) -> Option<[u64; 3]> {
        self.llvm.map(FuelTimes::spread)
    }

    /// Returns the version of the cost table by which the fuel was counted.
    pub fn cost_table_version(&self) -> u32 {
        self.cost_table_version
    }

    /// Returns the time that an amount of fuel takes for the slowest kind of work, rounded up.
    pub fn time(&self, fuel: u64) -> Nanos {
        Nanos(scaled(fuel, self.counting().0.max, FUEL, true))
    }

    /// Returns the fuel that the slowest kind of work uses in a time, rounded down.
    pub fn fuel(&self, time: Nanos) -> u64 {
        scaled(time.0, FUEL, self.counting().0.max, false)
    }

    /// Converts the limit for a packet from time to fuel: `constant`, and `per_byte` for each captured byte of the
    /// packet.
    pub fn limit_in_fuel(&self, constant: Nanos, per_byte: Nanos) -> Linear {
        Linear { constant: self.fuel(constant), per_kib: self.fuel(Nanos(per_byte.0.saturating_mul(KIB))) }
    }

    /// Returns the time that a bound in fuel takes for the slowest kind of work, for display.
    pub fn time_bound(&self, fuel: Linear) -> TimeBound {
        TimeBound {
            constant: self.time(fuel.constant),
            per_kib: self.time(fuel.per_kib),
            is_bounded: fuel.is_bounded(),
        }
    }
}

/// Returns `amount x numerator / denominator`, rounded up or down, saturating.
fn scaled(amount: u64, numerator: u64, denominator: u64, rounds_up: bool) -> u64 {
    let product = u128::from(amount) * u128::from(numerator);
    let denominator = u128::from(denominator.max(1));
    let result = if rounds_up { product.div_ceil(denominator) } else { product / denominator };
    u64::try_from(result).unwrap_or(u64::MAX)
}

impl Default for Calibration {
    /// The calibration of a machine that was not measured: 0.25 ns for a unit of fuel.
    fn default() -> Self {
        Self {
            cranelift: FuelTimes { min: ASSUMED_NANOS, median: ASSUMED_NANOS, max: ASSUMED_NANOS },
            llvm: None,
            verified: VerifiedUse::default(),
            cost_table_version: CostTable::VERSION,
            processor: None,
        }
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (FuelTimes { min, median, max }, back_end) = self.counting();
        let Some(processor) = &self.processor else {
            return write!(f, "not calibrated: 1000 fuel are assumed to take {max} ns");
        };
        write!(f, "1000 fuel take {median} ns, {min} to {max}, ")?;
        if self.llvm.is_some() {
            write!(f, "in code of {back_end}, ")?;
        }
        write!(f, "on {}", if processor.is_empty() { "this node" } else { processor })
    }
}

/// A bound in time, for display: a constant, and a time for each captured byte of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBound {
    constant: Nanos,
    per_kib: Nanos,
    is_bounded: bool,
}

impl fmt::Display for TimeBound {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_bounded {
            return f.write_str("unbounded");
        }
        let per_byte = self.per_kib.0 as f64 / KIB as f64;
        let slope = format!("{per_byte:.2}");
        let slope = slope.trim_end_matches('0').trim_end_matches('.');
        match (self.constant, self.per_kib) {
            (constant, Nanos(0)) => write!(f, "{constant}"),
            (Nanos(0), _) => write!(f, "{slope} ns/byte"),
            (constant, _) => write!(f, "{constant} + {slope} ns/byte"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_written_calibration_is_read_again() {
        let measured = Calibration::measured(180, 231, 264, "A \"\\quick\"\u{1b} processor").unwrap();
        assert_eq!(measured.processor(), Some("A quick processor"));
        assert_eq!(Calibration::parse(&measured.to_toml()), Ok(measured.clone()));
        assert_eq!(measured.spread(), [180, 231, 264]);
        assert_eq!(measured.to_string(), "1000 fuel take 231 ns, 180 to 264, on A quick processor");
        assert_eq!(
            Calibration::default().to_string(),
            "not calibrated: 1000 fuel are assumed to take 250 ns"
        );
    }

    #[test]
    fn a_written_calibration_of_both_back_ends_is_read_again() {
        let cranelift = Calibration::measured(180, 231, 264, "x").unwrap();
        let both = cranelift.clone().with_llvm(2, 90, 300).unwrap();
        for calibration in [cranelift, both] {
            assert_eq!(Calibration::parse(&calibration.to_toml()), Ok(calibration.clone()));
            // The file has the measurements. The profile decides which of them count.
            let only = calibration.clone().for_use(VerifiedUse::Only);
            assert_eq!(Calibration::parse(&only.to_toml()), Ok(calibration));
        }
    }

    #[test]
    fn a_file_of_version_1_is_a_measurement_of_cranelifts_code_alone() {
        let text = format!(
            "cost-table = {}\nprocessor = \"x\"\n\n[nanoseconds]\nmin = 12\nmedian = 63\nmax = 260\n",
            CostTable::VERSION
        );
        let calibration = Calibration::parse(&text).unwrap();
        assert_eq!(calibration, Calibration::measured(12, 63, 260, "x").unwrap());
        for verified in [VerifiedUse::WherePossible, VerifiedUse::Only] {
            let calibration = calibration.clone().for_use(verified);
            assert_eq!((calibration.spread(), calibration.llvm()), ([12, 63, 260], None));
        }
        assert!(Calibration::parse(&text.replace("nanoseconds", "cranelift")).is_err());
    }

    #[test]
    fn the_times_of_the_back_end_that_counts_are_named() {
        let faster = Calibration::measured(1, 2, 300, "x").unwrap().with_llvm(3, 4, 200).unwrap();
        assert_eq!(faster.to_string(), "1000 fuel take 2 ns, 1 to 300, in code of Cranelift, on x");
        let only = faster.for_use(VerifiedUse::Only);
        assert_eq!(only.to_string(), "1000 fuel take 4 ns, 3 to 200, in code of LLVM, on x");
        let slower = Calibration::measured(1, 2, 300, "x").unwrap().with_llvm(3, 4, 400).unwrap();
        assert_eq!(slower.to_string(), "1000 fuel take 4 ns, 3 to 400, in code of LLVM, on x");
    }

    fn times() -> impl Strategy<Value = [u64; 3]> {
        [1..=NANOS_MAX, 1..=NANOS_MAX, 1..=NANOS_MAX].prop_map(|mut times| {
            times.sort_unstable();
            times
        })
    }

    proptest! {
        #[test]
        fn the_slower_of_the_back_ends_that_may_run_a_module_counts(cranelift in times(), llvm in times(), fuel: u64) {
            let [min, median, max] = cranelift;
            let one = Calibration::measured(min, median, max, "x").unwrap();
            let [min, median, max] = llvm;
            let both = one.clone().with_llvm(min, median, max).unwrap();
            let only = both.clone().for_use(VerifiedUse::Only);
            let slower = if llvm[2] > cranelift[2] { llvm } else { cranelift };
            prop_assert_eq!((both.spread(), only.spread()), (slower, llvm));
            prop_assert_eq!(one.for_use(VerifiedUse::Only).spread(), cranelift);
            prop_assert!(only.time(fuel) <= both.time(fuel));
            prop_assert!(only.fuel(Nanos(fuel)) >= both.fuel(Nanos(fuel)));
            prop_assert_eq!((both.cranelift(), both.llvm()), (cranelift, Some(llvm)));
            prop_assert_eq!(Calibration::parse(&both.to_toml()), Ok(both));
        }
    }

    #[test]
    fn the_error_of_a_calibration_says_why_and_what_to_do() {
        let good = Calibration::measured(1, 2, 3, "x").unwrap().to_toml();
        let llvm = Calibration::measured(5, 6, 7, "x").unwrap().with_llvm(1, 2, 3).unwrap().to_toml();
        let current = format!("cost-table = {}", CostTable::VERSION);
        for (text, message) in [
            ("x".to_owned(), "the calibration cannot be read"),
            (good.replace("median", "mean"), "unknown field `mean`"),
            (
                good.replace(&current, "cost-table = 0"),
                "for version 0 of the cost table; this weir has version",
            ),
            (
                good.replace("min = 1", "min = 0"),
                "cannot take 0 ns at least, 2 ns in the middle and 3 ns at most",
            ),
            (
                good.replace("max = 3", "max = 1"),
                "cannot take 1 ns at least, 2 ns in the middle and 1 ns at most",
            ),
            (
                llvm.replace("max = 3", "max = 1"),
                "cannot take 1 ns at least, 2 ns in the middle and 1 ns at most",
            ),
            (
                good.replace("version = 2", "version = 3\nkey = 1"),
                "has version 3; this weir reads versions 1 and 2",
            ),
            (good.replace("cost-table", "table"), "unknown field `table`"),
            (good.replace(&current, ""), "missing field `cost-table`"),
            (good.replace("max = 3", "max = 1000001"), "the three times must be from 1 to 1000000"),
            (format!("#{}\n{good}", "x".repeat(CALIBRATION_BYTES_MAX)), "4096 is the most"),
        ] {
            let error = Calibration::parse(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}\n  should say: {message}");
            assert!(error.contains("weir calibrate"), "{error}");
        }
    }

    #[test]
    fn time_and_fuel_are_converted_for_the_slowest_work_and_never_in_the_modules_favour() {
        let calibration = Calibration::measured(100, 200, 300, "x").unwrap();
        assert_eq!(calibration.fuel(Nanos(1)), 3, "3.33 rounded down");
        assert_eq!(calibration.time(3), Nanos(1), "0.9 rounded up");
        assert!(calibration.time(calibration.fuel(Nanos(12_345))) <= Nanos(12_345));
        let limit = calibration.limit_in_fuel(Nanos(3_000), Nanos(3));
        assert_eq!(limit, Linear { constant: 10_000, per_kib: 10_240 });
        assert_eq!(calibration.time_bound(limit).to_string(), "3 us + 3 ns/byte");
        assert_eq!(calibration.time_bound(Linear::constant(10)).to_string(), "3 ns");
        assert_eq!(calibration.time_bound(Linear { constant: 0, per_kib: 512 }).to_string(), "0.15 ns/byte");
        assert_eq!(calibration.time_bound(Linear::UNBOUNDED).to_string(), "unbounded");
        assert_eq!(
            (calibration.time(u64::MAX), calibration.fuel(Nanos(u64::MAX))),
            (Nanos(5_534_023_222_112_865_485), u64::MAX)
        );
    }
}
