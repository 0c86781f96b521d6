//! The table of the resources of a session and of a grant. From the definition of a resource follow its ceiling, fact in
//! credentials, command-line options, configuration key, refusals and explanations.

use super::parts::DecimalBytes;
use super::{BytesPerSecond, CpuShare};
use std::fmt::Display;
use weir_units::{BitsPerSecond, Bytes, display_among};

/// The word for no limit, as users type it.
pub const UNLIMITED: &str = "unlimited";

/// The type of a resource's amounts, convertible to and from a number of whole units.
trait Quantity: Copy {
    fn to_units(self) -> u64;
    fn from_units(units: u64) -> Self;
}

impl Quantity for u64 {
    fn to_units(self) -> u64 {
        self
    }

    fn from_units(units: u64) -> Self {
        units
    }
}

/// Implements [`Quantity`] for types that wrap a number.
macro_rules! quantities {
    ($($type:ident),+) => {$(
        impl Quantity for $type {
            fn to_units(self) -> u64 {
                self.0
            }

            fn from_units(units: u64) -> Self {
                Self(units)
            }
        }
    )+};
}

quantities!(CpuShare, Bytes, BitsPerSecond, BytesPerSecond, DecimalBytes);

/// The unit of a resource's amounts, which determines how they are written and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Millionths of a core, written as percent of a core.
    Share,
    /// Bytes of memory, shown in binary units.
    Bytes,
    /// Bytes on a disk, shown in decimal units.
    DiskBytes,
    /// Bits per second.
    BitRate,
    /// Bytes per second.
    ByteRate,
    /// A whole number.
    Count,
}

impl Unit {
    /// Returns the placeholder of a value in a command's help.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Share => "SHARE",
            Self::Bytes | Self::DiskBytes => "BYTES",
            Self::BitRate | Self::ByteRate => "RATE",
            Self::Count => "COUNT",
        }
    }

    /// Reads an amount, in whole units.
    ///
    /// # Errors
    /// Fails for an illegal text, with a description of legal ones.
    pub fn read(self, text: &str) -> Result<u64, String> {
        fn parse<T: Quantity + std::str::FromStr<Err: Display>>(text: &str) -> Result<u64, String> {
            text.parse().map(T::to_units).map_err(|error| error.to_string())
        }
        match self {
            Self::Share => parse::<CpuShare>(text),
            Self::Bytes | Self::DiskBytes => parse::<Bytes>(text),
            Self::BitRate => parse::<BitsPerSecond>(text),
            Self::ByteRate => parse::<BytesPerSecond>(text),
            Self::Count => parse::<u64>(text),
        }
    }

    /// Returns an amount as text for people, with enough digits to differ from the `others`.
    pub fn show(self, amount: u64, others: &[u64]) -> String {
        fn all<T: Quantity>(others: &[u64]) -> Vec<T> {
            others.iter().copied().map(T::from_units).collect()
        }
        match self {
            Self::Count if amount == u64::MAX => "any number".to_owned(),
            Self::DiskBytes | Self::ByteRate if amount == u64::MAX => "any amount".to_owned(),
            // Shares are shown exactly.
            Self::Share => CpuShare(amount).to_string(),
            Self::Bytes => display_among(Bytes(amount), &all(others)),
            Self::DiskBytes => display_among(DecimalBytes(amount), &all(others)),
            Self::BitRate => display_among(BitsPerSecond(amount), &all(others)),
            Self::ByteRate => display_among(BytesPerSecond(amount), &all(others)),
            Self::Count => amount.to_string(),
        }
    }

    /// Returns an amount as the shortest text from which [`Self::read`] gets the same amount; `None` for numbers that need no
    /// unit.
    pub fn exact(self, amount: u64) -> Option<String> {
        match self {
            Self::Share => Some(CpuShare(amount).to_string()),
            Self::Bytes | Self::DiskBytes => Some(Bytes(amount).shortest()),
            Self::BitRate => Some(BitsPerSecond(amount).shortest()),
            Self::ByteRate => Some(format!("{}/s", Bytes(amount).shortest())),
            Self::Count => None,
        }
    }

    /// Returns an amount as a user types it, in the shortest text that is exact.
    pub fn typed(self, amount: u64) -> String {
        self.exact(amount).unwrap_or_else(|| amount.to_string())
    }
}

/// A number that is shown beside a limit of a session: a counter, or the present use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownUsage {
    /// The key in a node's status.
    pub key: &'static str,
    /// The word after the number in a list.
    pub suffix: &'static str,
    /// The name of the metric family, without the unit at its end.
    pub metric: &'static str,
    /// The unit of the metric family.
    pub metric_unit: &'static str,
    /// The meaning, in one line.
    pub help: &'static str,
}

impl ShownUsage {
    /// Returns a number as text for people.
    pub fn show(&self, number: u64) -> String {
        match self.metric_unit {
            "bytes" => DecimalBytes(number).to_string(),
            _ => number.to_string(),
        }
    }
}

/// The limit that a session states for a resource as one amount: its key, texts and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimit {
    /// The key in a session's configuration and in requests.
    pub key: &'static str,
    /// The amount of a session that states none; `None` for no limit.
    pub default: Option<u64>,
    /// The meaning of the option, in one line.
    pub help: &'static str,
    /// The words after the amount in a list of a session's limits.
    pub suffix: &'static str,
    /// The present use; `None` for a rate, which has no present use.
    pub present_use: Option<ShownUsage>,
    /// The counter of use that exceeded the limit.
    pub excess: ShownUsage,
    /// The refusal of a session that states no amount although its grant has a ceiling.
    pub refusal_if_unstated: &'static str,
}

/// The definition of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceDefinition {
    /// The name that users type: the option of commands, and the key in a policy.
    pub name: &'static str,
    /// The name of the fact in credentials. It is signed, so it never changes.
    pub fact_name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The name in refusals and lists.
    pub title: &'static str,
    /// The legal values of the fact in credentials, in words.
    pub fact_values: &'static str,
    /// The words after an amount in a list of granted resources.
    pub amount_suffix: &'static str,
    /// The sentences in the explanation of a credential: for an amount of 1 (may be empty), for other amounts in place
    /// of `{}`, and for no ceiling.
    pub sentences: [&'static str; 3],
    /// The option that grants the resource: its meaning in one line, and its default value.
    pub grant_option: [&'static str; 2],
    /// The advice in the refusal of a request that exceeds the grant.
    pub advice: &'static str,
    /// The limit of a session; `None` for a resource that a session does not limit by one amount.
    pub limit: Option<SessionLimit>,
}

/// Defines the resources: for each the variant, the field of [`Ceilings`] with its type, and the definition.
macro_rules! resources {
    ($($(#[doc = $doc:literal])+ $resource:ident, $field:ident: $type:ty = $definition:expr;)+) => {
        /// A resource that sessions use and that grants share out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Resource {
            $($(#[doc = $doc])+ $resource,)+
        }

        impl Resource {
            /// All resources, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$resource,)+];

            /// Returns the definition of the resource.
            pub const fn definition(self) -> &'static ResourceDefinition {
                match self {
                    $(Self::$resource => const { &$definition },)+
                }
            }
        }

        /// The ceilings of a grant. All sessions of its holder, and of holders to whom it was delegated, count
        /// together. A resource without a ceiling is not restricted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Ceilings {
            $($(#[doc = $doc])+ pub $field: Option<$type>,)+
        }

        impl Ceilings {
            /// No ceiling for any resource.
            pub const NONE: Self = Self { $($field: None,)+ };

            /// Returns the ceiling of a resource, in whole units.
            pub fn get(&self, resource: Resource) -> Option<u64> {
                match resource {
                    $(Resource::$resource => self.$field.map(Quantity::to_units),)+
                }
            }

            /// Sets the ceiling of a resource.
            pub fn set(&mut self, resource: Resource, amount: Option<u64>) {
                match resource {
                    $(Resource::$resource => self.$field = amount.map(Quantity::from_units),)+
                }
            }
        }
    };
}

resources! {
    /// Processor time.
    Cpu, cpu: CpuShare = ResourceDefinition {
        name: "cpu",
        fact_name: "cpu",
        unit: Unit::Share,
        title: "processor time",
        fact_values: "a whole number of millionths of a core, 0 or more",
        amount_suffix: " of a core",
        sentences: ["", "All sessions of the holder and of those below together use at most {} of a core",
            "All sessions of the holder and of those below together use any amount of processor time"],
        grant_option: ["Processor time, in percent of a core", "10%"],
        advice: "ask for less with `--cpu`",
        limit: None,
    };
    /// Memory.
    Memory, memory: Bytes = ResourceDefinition {
        name: "memory",
        fact_name: "memory",
        unit: Unit::Bytes,
        title: "memory",
        fact_values: "a whole number of bytes, 0 or more",
        amount_suffix: "",
        sentences: ["", "They use at most {} of memory", "They use any amount of memory"],
        grant_option: ["Memory", "64MiB"],
        advice: "ask for less with `--memory` and `--memory-max`",
        limit: None,
    };
    /// The rate at which sessions send, in bits per second.
    Bandwidth, bandwidth: BitsPerSecond = ResourceDefinition {
        name: "bandwidth",
        fact_name: "bandwidth",
        unit: Unit::BitRate,
        title: "bandwidth",
        fact_values: "a whole number of bit/s, 0 or more",
        amount_suffix: "",
        sentences: ["", "They send at most {}", "They send at any rate"],
        grant_option: ["The rate at which sessions may send", "0bit/s"],
        advice: "ask for less with `cap=` in `--output`",
        limit: None,
    };
    /// Records per second.
    Records, records_per_second: u64 = ResourceDefinition {
        name: "records-per-second",
        fact_name: "records",
        unit: Unit::Count,
        title: "records per second",
        fact_values: "a whole number of records in a second, 0 or more",
        amount_suffix: "",
        sentences: ["", "They write at most {} records a second", "They write any number of records"],
        grant_option: ["Records in a second", "1000"],
        advice: "ask for less with `--records-per-second`",
        limit: Some(SessionLimit {
            key: "records_per_second",
            default: None,
            help: "The most records per second of all its modules together",
            suffix: "records a second",
            present_use: None,
            excess: ShownUsage {
                key: "records_over_rate",
                suffix: "lost",
                metric: "over_rate",
                metric_unit: "records",
                help: "Records that were not taken because of the session's rate",
            },
            refusal_if_unstated: "the session would write more records than is granted: give it `records_per_second`",
        }),
    };
    /// Bytes of records per second.
    RecordBytes, record_bytes: BytesPerSecond = ResourceDefinition {
        name: "record-bytes",
        fact_name: "record-bytes",
        unit: Unit::ByteRate,
        title: "bytes of records",
        fact_values: "a whole number of bytes in a second, 0 or more",
        amount_suffix: "",
        sentences: ["", "Their records have at most {}", "Their records have any number of bytes"],
        grant_option: ["Bytes of records in a second", "4MB/s"],
        advice: "ask for less with `--record-bytes`",
        limit: Some(SessionLimit {
            key: "record_bytes",
            default: Some(1_000_000),
            help: "The most bytes of records per second of all its modules together [default: 1MB/s]",
            suffix: "of records",
            present_use: None,
            excess: ShownUsage {
                key: "record_bytes_over_rate",
                suffix: "lost",
                metric: "over_byte_rate",
                metric_unit: "bytes",
                help: "Bytes of records that were not taken because of the session's rate of bytes",
            },
            refusal_if_unstated: "the session would write more bytes of records than is granted: give it `record_bytes`",
        }),
    };
    /// Bytes of records that are kept on the disk.
    RecordStorage, record_storage: Bytes = ResourceDefinition {
        name: "record-storage",
        fact_name: "record-storage",
        unit: Unit::DiskBytes,
        title: "kept records",
        fact_values: "a whole number of bytes, 0 or more",
        amount_suffix: "",
        sentences: ["", "At most {} of the records of their open sessions are kept", "Any amount of their records is kept"],
        grant_option: ["Bytes of records that are kept; the oldest files are deleted first", "4GB"],
        advice: "ask for less with `--record-storage`",
        limit: Some(SessionLimit {
            key: "record_storage",
            default: Some(1_000_000_000),
            help: "Bytes of its records that are kept; the oldest files are deleted first [default: 1GB]",
            suffix: "of kept records",
            present_use: Some(ShownUsage {
                key: "record_storage_used",
                suffix: "now",
                metric: "kept_records",
                metric_unit: "bytes",
                help: "Bytes of its record files, also of those from before",
            }),
            excess: ShownUsage {
                key: "record_storage_deleted",
                suffix: "deleted",
                metric: "deleted_oldest_records",
                metric_unit: "bytes",
                help: "Bytes of record files that were deleted for newer ones",
            },
            refusal_if_unstated: "the session would keep more of its records than is granted: give it `record_storage`",
        }),
    };
    /// Packets that are kept at once.
    Kept, kept_packets: u64 = ResourceDefinition {
        name: "kept-packets",
        fact_name: "kept",
        unit: Unit::Count,
        title: "kept packets",
        fact_values: "a whole number of packets, 0 or more",
        amount_suffix: "",
        sentences: ["", "They keep at most {} packets at a time", "They keep any number of packets"],
        grant_option: ["Packets that are kept at a time", "64"],
        advice: "ask for less with `--kept-packets`",
        limit: Some(SessionLimit {
            key: "kept_packets",
            default: None,
            help: "Packets that its modules together may keep at a time",
            suffix: "kept packets",
            present_use: Some(ShownUsage {
                key: "kept_packets_used",
                suffix: "now",
                metric: "kept",
                metric_unit: "packets",
                help: "Packets that its modules keep",
            }),
            excess: ShownUsage {
                key: "kept_packets_refused",
                suffix: "refused",
                metric: "not_kept",
                metric_unit: "packets",
                help: "Packets that could not be kept because its modules kept as many as they may",
            },
            refusal_if_unstated: "the session would keep more packets than is granted: give it `kept_packets`",
        }),
    };
    /// Sessions that exist at once.
    Sessions, sessions: u64 = ResourceDefinition {
        name: "sessions",
        fact_name: "sessions",
        unit: Unit::Count,
        title: "sessions",
        fact_values: "a whole number of sessions, 0 or more",
        amount_suffix: "",
        sentences: ["At most 1 session exists at a time", "At most {} sessions exist at a time",
            "Any number of sessions exist at a time"],
        grant_option: ["Sessions at a time", "1"],
        advice: "use the existing sessions",
        limit: None,
    };
}

impl Resource {
    /// Returns the resource with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|resource| resource.definition().name == name)
    }

    /// Returns the resource whose fact in a credential has this name.
    pub fn by_fact_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|resource| resource.definition().fact_name == name)
    }

    /// Returns the resource whose limit has this key in a session's configuration.
    pub fn by_limit_key(key: &str) -> Option<Self> {
        Self::limits().find(|(_, limit)| limit.key == key).map(|(resource, _)| resource)
    }

    /// Returns the resources that a session limits by one amount, with their limits.
    pub fn limits() -> impl Iterator<Item = (Self, &'static SessionLimit)> {
        Self::ALL.iter().filter_map(|resource| Some((*resource, resource.definition().limit.as_ref()?)))
    }

    /// Reads the limit of a session: an amount, or `unlimited`.
    ///
    /// # Errors
    /// Fails for an illegal text, with a description of legal ones.
    pub fn read_limit(self, text: &str) -> Result<u64, String> {
        if text == UNLIMITED { Ok(u64::MAX) } else { self.definition().unit.read(text) }
    }

    /// Returns the sentence about this resource in the explanation of a credential. `amount` is the ceiling; `None` for
    /// no ceiling.
    pub fn explanation(self, amount: Option<u64>) -> String {
        let ResourceDefinition { unit, sentences: [for_one, for_amount, for_any], .. } = self.definition();
        match amount {
            None => (*for_any).to_owned(),
            Some(1) if !for_one.is_empty() => (*for_one).to_owned(),
            Some(amount) => for_amount.replace("{}", &unit.show(amount, &[])),
        }
    }
}

impl Ceilings {
    /// Returns the lower ceiling of each resource.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let mut lower = *self;
        for (resource, amount) in other.stated() {
            lower.set(resource, Some(lower.get(resource).map_or(amount, |ceiling| ceiling.min(amount))));
        }
        lower
    }

    /// Returns the stated ceilings, in whole units.
    pub fn stated(&self) -> impl Iterator<Item = (Resource, u64)> {
        Resource::ALL.iter().filter_map(|resource| Some((*resource, self.get(*resource)?)))
    }
}

/// An amount for each resource, or none; such as the limits of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([Option<u64>; Resource::ALL.len()]);

impl Amounts {
    /// Returns the amount of a resource.
    pub fn get(&self, resource: Resource) -> Option<u64> {
        self.0.get(resource as usize).copied().flatten()
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, resource: Resource, amount: Option<u64>) {
        if let Some(slot) = self.0.get_mut(resource as usize) {
            *slot = amount;
        }
    }

    /// Returns the stated amounts.
    pub fn stated(&self) -> impl Iterator<Item = (Resource, u64)> {
        Resource::ALL.iter().filter_map(|resource| Some((*resource, self.get(*resource)?)))
    }

    /// Returns these amounts, with the amount of `defaults` for each resource that states none.
    #[must_use]
    pub fn with_defaults(self, defaults: Self) -> Self {
        let mut result = defaults;
        self.stated().for_each(|(resource, amount)| result.set(resource, Some(amount)));
        result
    }

    /// Returns the amounts as ceilings.
    pub fn ceilings(&self) -> Ceilings {
        let mut ceilings = Ceilings::default();
        self.stated().for_each(|(resource, amount)| ceilings.set(resource, Some(amount)));
        ceilings
    }
}

impl FromIterator<(Resource, u64)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (Resource, u64)>>(stated: T) -> Self {
        let mut all = Self::default();
        stated.into_iter().for_each(|(resource, amount)| all.set(resource, Some(amount)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weir_units::Name;

    #[test]
    fn each_resource_has_names_of_its_own_and_a_ceiling() {
        let names: BTreeSet<_> = Resource::ALL.iter().map(|resource| resource.definition().name).collect();
        let keys: BTreeSet<_> = Resource::limits().map(|(_, limit)| limit.key).collect();
        assert_eq!((names.len(), keys.len()), (Resource::ALL.len(), Resource::limits().count()));
        for (at, resource) in Resource::ALL.iter().enumerate() {
            assert!(Name::new(resource.definition().name).is_ok());
            assert_eq!(Resource::by_name(resource.definition().name), Some(*resource));
            assert_eq!(Resource::by_fact_name(resource.definition().fact_name), Some(*resource));
            let mut ceilings = Ceilings::default();
            ceilings.set(*resource, Some(7));
            assert_eq!((*resource as usize, ceilings.get(*resource)), (at, Some(7)));
            assert_eq!(ceilings.stated().collect::<Vec<_>>(), [(*resource, 7)]);
            let amounts: Amounts = ceilings.stated().collect();
            assert_eq!(amounts.ceilings(), ceilings);
        }
    }

    #[test]
    fn the_operators_table_has_each_resource_as_it_is_typed() {
        let text = include_str!("../../../../docs/reference/NODE.md");
        for resource in Resource::ALL {
            let ResourceDefinition { name, title, grant_option: [_, usual], limit, .. } =
                resource.definition();
            let line = text.lines().find(|line| line.starts_with(&format!("| {title} |")));
            let line = line.unwrap_or_else(|| panic!("{title} is missing"));
            let key = limit.map_or_else(String::new, |limit| format!("| `{}` |", limit.key));
            for part in [&key, &format!("| `--{name}` | {usual}")] {
                assert!(line.contains(part.as_str()), "{part}: {line}");
            }
        }
    }

    #[test]
    fn amounts_read_back_as_they_are_written() {
        for resource in Resource::ALL {
            let ResourceDefinition { unit, grant_option: [_, usual], .. } = resource.definition();
            assert!(unit.read(usual).is_ok(), "{usual}");
            assert!(unit.read("much").is_err());
            for amount in [0, 1, 1000, 1_000_001, 60 << 20, u64::MAX] {
                let text = unit.typed(amount);
                assert_eq!(unit.read(&text), Ok(amount), "{text}");
            }
        }
    }
}
