//! The resources of a session and of a grant: one record each. Ceilings, the facts of credentials, options, configuration keys, refusals and what people read follow from it.

use super::parts::DecimalBytes;
use super::{BytesPerSecond, CpuShare};
use std::fmt::Display;
use weir_units::{BitsPerSecond, Bytes, beside};

/// No limit, as it is typed.
pub const UNLIMITED: &str = "unlimited";

/// A quantity of a resource that is counted in whole units.
trait Quantity: Copy {
    fn whole(self) -> u64;
    fn of(whole: u64) -> Self;
}

impl Quantity for u64 {
    fn whole(self) -> u64 {
        self
    }

    fn of(whole: u64) -> Self {
        whole
    }
}

/// Quantities that are a number in a type of their own.
macro_rules! quantities {
    ($($type:ident),+) => {$(
        impl Quantity for $type {
            fn whole(self) -> u64 {
                self.0
            }

            fn of(whole: u64) -> Self {
                Self(whole)
            }
        }
    )+};
}

quantities!(CpuShare, Bytes, BitsPerSecond, BytesPerSecond, DecimalBytes);

/// The unit of a resource: how an amount is written and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Millionths of a core, written as percent of a core.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes on a disk.
    Stored,
    /// Bits in a second.
    Rate,
    /// Bytes in a second.
    ByteRate,
    /// A whole number.
    Count,
}

impl Unit {
    /// The placeholder of a value in a command's help.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Share => "SHARE",
            Self::Bytes | Self::Stored => "BYTES",
            Self::Rate | Self::ByteRate => "RATE",
            Self::Count => "COUNT",
        }
    }

    /// Reads an amount.
    ///
    /// # Errors
    /// A text that is none, with what would be one.
    pub fn read(self, text: &str) -> Result<u64, String> {
        fn of<T: Quantity + std::str::FromStr<Err: Display>>(text: &str) -> Result<u64, String> {
            text.parse().map(T::whole).map_err(|error| error.to_string())
        }
        match self {
            Self::Share => of::<CpuShare>(text),
            Self::Bytes | Self::Stored => of::<Bytes>(text),
            Self::Rate => of::<BitsPerSecond>(text),
            Self::ByteRate => of::<BytesPerSecond>(text),
            Self::Count => of::<u64>(text),
        }
    }

    /// An amount for people, in words that differ from those for the other amounts.
    pub fn show(self, amount: u64, others: &[u64]) -> String {
        fn all<T: Quantity>(others: &[u64]) -> Vec<T> {
            others.iter().copied().map(T::of).collect()
        }
        match self {
            Self::Count if amount == u64::MAX => "any number".to_owned(),
            Self::Stored | Self::ByteRate if amount == u64::MAX => "any amount".to_owned(),
            // To the last digit.
            Self::Share => CpuShare(amount).to_string(),
            Self::Bytes => beside(Bytes(amount), &all(others)),
            Self::Stored => beside(DecimalBytes(amount), &all(others)),
            Self::Rate => beside(BitsPerSecond(amount), &all(others)),
            Self::ByteRate => beside(BytesPerSecond(amount), &all(others)),
            Self::Count => amount.to_string(),
        }
    }

    /// An amount as text that [reads](Self::read) back to the same; none for numbers that need no unit.
    pub fn exact(self, amount: u64) -> Option<String> {
        match self {
            Self::Share => Some(CpuShare(amount).to_string()),
            Self::Bytes | Self::Stored => Some(amount.to_string()),
            Self::Rate => Some(format!("{amount}bit/s")),
            Self::ByteRate => Some(format!("{amount}B/s")),
            Self::Count => None,
        }
    }
}

/// A counter or a level that is shown with a limit of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownUsage {
    /// Its key in a node's status.
    pub key: &'static str,
    /// The word behind its number.
    pub word: &'static str,
    /// Its family of metrics, without its unit.
    pub metric: &'static str,
    /// The unit of that family.
    pub metric_unit: &'static str,
    /// Its meaning, in one line.
    pub help: &'static str,
}

impl ShownUsage {
    /// A number for people.
    pub fn show(&self, number: u64) -> String {
        match self.metric_unit {
            "bytes" => DecimalBytes(number).to_string(),
            _ => number.to_string(),
        }
    }
}

/// A resource that a session limits by one amount of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its key in a session's configuration and in requests.
    pub key: &'static str,
    /// The amount where none is stated; none for no limit.
    pub default: Option<u64>,
    /// The meaning of its option, in one line.
    pub help: &'static str,
    /// The words behind the amount where it is shown.
    pub words: &'static str,
    /// The amount that is taken now, where it is a level.
    pub taken: Option<ShownUsage>,
    /// The amount beyond the limit.
    pub beyond: ShownUsage,
    /// The refusal of a session that states no amount, under a grant that does.
    pub unstated: &'static str,
}

/// A resource's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name as it is typed: the option, the key of a policy, the fact of a credential.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its name in refusals and lists.
    pub title: &'static str,
    /// The value of the fact of a credential, in words.
    pub fact: &'static str,
    /// The words behind an amount in a list of what is granted.
    pub of: &'static str,
    /// The sentences of a credential: for one, for `{}`, and for any amount.
    pub sentences: [&'static str; 3],
    /// The meaning of the option by which it is granted, and its value where none is given.
    pub granted: [&'static str; 2],
    /// Advice in the refusal of a request for too much.
    pub less: &'static str,
    /// The limit of a session, where it is one amount.
    pub limit: Option<Limit>,
}

/// The resources, once: the variant, the field of [`Ceilings`] with its type, and the record.
macro_rules! resources {
    ($($(#[doc = $doc:literal])+ $resource:ident, $field:ident: $type:ty = $row:expr;)+) => {
        /// A resource that sessions use and that grants share out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Resource {
            $($(#[doc = $doc])+ $resource,)+
        }

        impl Resource {
            /// All resources, in the order in which people ask.
            pub const ALL: &'static [Self] = &[$(Self::$resource,)+];

            /// Its record.
            pub const fn row(self) -> &'static Row {
                match self {
                    $(Self::$resource => const { &$row },)+
                }
            }
        }

        /// What all sessions of a credential, and of those delegated from it, use together at most. What is not stated is not restricted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Ceilings {
            $($(#[doc = $doc])+ pub $field: Option<$type>,)+
        }

        impl Ceilings {
            /// No ceiling for any resource.
            pub const NONE: Self = Self { $($field: None,)+ };

            /// The ceiling of a resource, in its whole units.
            pub fn get(&self, of: Resource) -> Option<u64> {
                match of {
                    $(Resource::$resource => self.$field.map(Quantity::whole),)+
                }
            }

            /// Sets the ceiling of a resource.
            pub fn set(&mut self, of: Resource, amount: Option<u64>) {
                match of {
                    $(Resource::$resource => self.$field = amount.map(Quantity::of),)+
                }
            }
        }
    };
}

resources! {
    /// Processor time.
    Cpu, cpu: CpuShare = Row {
        name: "cpu",
        unit: Unit::Share,
        title: "processor time",
        fact: "a whole number of millionths of a core, 0 or more",
        of: " of a core",
        sentences: ["", "All sessions of the holder and of those below together use at most {} of a core",
            "All sessions of the holder and of those below together use any amount of processor time"],
        granted: ["Processor time, in percent of a core", "10%"],
        less: "ask for less with `--cpu`",
        limit: None,
    };
    /// Memory.
    Memory, memory: Bytes = Row {
        name: "memory",
        unit: Unit::Bytes,
        title: "memory",
        fact: "a whole number of bytes, 0 or more",
        of: "",
        sentences: ["", "They use at most {} of memory", "They use any amount of memory"],
        granted: ["Memory", "64MiB"],
        less: "ask for less with `--memory` and `--memory-max`",
        limit: None,
    };
    /// Bits in a second that sessions send.
    Bandwidth, bandwidth: BitsPerSecond = Row {
        name: "bandwidth",
        unit: Unit::Rate,
        title: "bandwidth",
        fact: "a whole number of bit/s, 0 or more",
        of: "",
        sentences: ["", "They send at most {}", "They send at any rate"],
        granted: ["The rate at which sessions may send", "0bit/s"],
        less: "ask for less with `cap=` in `--output`",
        limit: None,
    };
    /// Records in a second.
    Records, records_per_second: u64 = Row {
        name: "records",
        unit: Unit::Count,
        title: "records per second",
        fact: "a whole number of records in a second, 0 or more",
        of: "",
        sentences: ["", "They write at most {} records a second", "They write any number of records"],
        granted: ["Records in a second", "1000"],
        less: "ask for less with `--records`",
        limit: Some(Limit {
            key: "records_per_second",
            default: None,
            help: "Records that its modules together may have taken in a second",
            words: "records a second",
            taken: None,
            beyond: ShownUsage {
                key: "records_over_rate",
                word: "lost",
                metric: "over_rate",
                metric_unit: "records",
                help: "Records that were not taken because of the session's rate",
            },
            unstated: "it would have more records taken than is granted: give it `records_per_second`",
        }),
    };
    /// Bytes of records in a second.
    RecordBytes, record_bytes: BytesPerSecond = Row {
        name: "record-bytes",
        unit: Unit::ByteRate,
        title: "bytes of records",
        fact: "a whole number of bytes in a second, 0 or more",
        of: "",
        sentences: ["", "Their records have at most {}", "Their records have any number of bytes"],
        granted: ["Bytes of records in a second", "4MB/s"],
        less: "ask for less with `--record-bytes`",
        limit: Some(Limit {
            key: "record_bytes",
            default: Some(1_000_000),
            help: "Bytes of records that its modules together may have taken in a second [default: 1MB/s]",
            words: "of records",
            taken: None,
            beyond: ShownUsage {
                key: "record_bytes_beyond",
                word: "lost",
                metric: "over_byte_rate",
                metric_unit: "bytes",
                help: "Bytes of records that were not taken because of the session's rate of bytes",
            },
            unstated: "it would have more bytes of records taken than is granted: give it `record_bytes`",
        }),
    };
    /// Bytes of records that are kept on the disk.
    RecordStorage, record_storage: Bytes = Row {
        name: "record-storage",
        unit: Unit::Stored,
        title: "kept records",
        fact: "a whole number of bytes, 0 or more",
        of: "",
        sentences: ["", "At most {} of the records of their open sessions are kept", "Any amount of their records is kept"],
        granted: ["Bytes of records that are kept; the oldest files are deleted first", "4GB"],
        less: "ask for less with `--record-storage`",
        limit: Some(Limit {
            key: "record_storage",
            default: Some(1_000_000_000),
            help: "Bytes of its records that are kept; the oldest files are deleted first [default: 1GB]",
            words: "of kept records",
            taken: Some(ShownUsage {
                key: "record_storage_now",
                word: "now",
                metric: "kept_records",
                metric_unit: "bytes",
                help: "Bytes of its record files, also of those from before",
            }),
            beyond: ShownUsage {
                key: "record_storage_deleted",
                word: "deleted",
                metric: "deleted_oldest_records",
                metric_unit: "bytes",
                help: "Bytes of record files that were deleted for newer ones",
            },
            unstated: "it would keep more of its records than is granted: give it `record_storage`",
        }),
    };
    /// Packets that are kept at once.
    Kept, kept_packets: u64 = Row {
        name: "kept",
        unit: Unit::Count,
        title: "kept packets",
        fact: "a whole number of packets, 0 or more",
        of: "",
        sentences: ["", "They keep at most {} packets at a time", "They keep any number of packets"],
        granted: ["Packets that are kept at a time", "64"],
        less: "ask for less with `--kept`",
        limit: Some(Limit {
            key: "kept_packets",
            default: None,
            help: "Packets that its modules together may keep at a time",
            words: "kept packets",
            taken: Some(ShownUsage {
                key: "kept_now",
                word: "now",
                metric: "kept",
                metric_unit: "packets",
                help: "Packets that its modules keep",
            }),
            beyond: ShownUsage {
                key: "keeping_refused",
                word: "refused",
                metric: "not_kept",
                metric_unit: "packets",
                help: "Packets that could not be kept because its modules kept as many as they may",
            },
            unstated: "it would keep more packets than is granted: give it `kept_packets`",
        }),
    };
    /// Sessions at once.
    Sessions, sessions: u64 = Row {
        name: "sessions",
        unit: Unit::Count,
        title: "sessions",
        fact: "a whole number of sessions, 0 or more",
        of: "",
        sentences: ["At most 1 session is there at a time", "At most {} sessions are there at a time",
            "Any number of sessions are there at a time"],
        granted: ["Sessions at a time", "1"],
        less: "do with those that there are",
        limit: None,
    };
}

impl Resource {
    /// The resource of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|resource| resource.row().name == name)
    }

    /// The resource whose limit has this key in a session's configuration.
    pub fn with_key(key: &str) -> Option<Self> {
        Self::limits().find(|(_, limit)| limit.key == key).map(|(resource, _)| resource)
    }

    /// The resources that a session limits by one amount each.
    pub fn limits() -> impl Iterator<Item = (Self, &'static Limit)> {
        Self::ALL.iter().filter_map(|resource| Some((*resource, resource.row().limit.as_ref()?)))
    }

    /// Reads the limit of a session: an amount, or `unlimited`.
    ///
    /// # Errors
    /// A text that is neither, with what would be one.
    pub fn read_limit(self, text: &str) -> Result<u64, String> {
        if text == UNLIMITED { Ok(u64::MAX) } else { self.row().unit.read(text) }
    }

    /// The sentence of a credential.
    pub fn sentence(self, amount: Option<u64>) -> String {
        let Row { unit, sentences: [one, most, any], .. } = self.row();
        match amount {
            None => (*any).to_owned(),
            Some(1) if !one.is_empty() => (*one).to_owned(),
            Some(amount) => most.replace("{}", &unit.show(amount, &[])),
        }
    }
}

impl Ceilings {
    /// The lower one of each.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let mut least = *self;
        for (resource, amount) in other.stated() {
            least.set(resource, Some(least.get(resource).map_or(amount, |own| own.min(amount))));
        }
        least
    }

    /// Those that are stated, in whole units.
    pub fn stated(&self) -> impl Iterator<Item = (Resource, u64)> {
        Resource::ALL.iter().filter_map(|resource| Some((*resource, self.get(*resource)?)))
    }
}

/// Amounts of resources, where they are stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([Option<u64>; Resource::ALL.len()]);

impl Amounts {
    /// The amount of a resource.
    pub fn get(&self, of: Resource) -> Option<u64> {
        self.0.get(of as usize).copied().flatten()
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, of: Resource, amount: Option<u64>) {
        if let Some(place) = self.0.get_mut(of as usize) {
            *place = amount;
        }
    }

    /// Those that are stated.
    pub fn stated(&self) -> impl Iterator<Item = (Resource, u64)> {
        Resource::ALL.iter().filter_map(|resource| Some((*resource, self.get(*resource)?)))
    }

    /// These, and where one is not stated the other's.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let mut both = other;
        self.stated().for_each(|(resource, amount)| both.set(resource, Some(amount)));
        both
    }

    /// As ceilings.
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
        let names: BTreeSet<_> = Resource::ALL.iter().map(|resource| resource.row().name).collect();
        let keys: BTreeSet<_> = Resource::limits().map(|(_, limit)| limit.key).collect();
        assert_eq!((names.len(), keys.len()), (Resource::ALL.len(), Resource::limits().count()));
        for (at, resource) in Resource::ALL.iter().enumerate() {
            assert!(Name::new(resource.row().name).is_ok());
            assert_eq!(Resource::named(resource.row().name), Some(*resource));
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
        let text = include_str!("../../../../docs/OPERATING.md");
        for resource in Resource::ALL {
            let Row { name, title, granted: [_, usual], limit, .. } = resource.row();
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
            let Row { unit, granted: [_, usual], .. } = resource.row();
            assert!(unit.read(usual).is_ok(), "{usual}");
            assert!(unit.read("much").is_err());
            for amount in [0, 1, 1000, 1_000_001] {
                let text = unit.exact(amount).unwrap_or_else(|| amount.to_string());
                assert_eq!(unit.read(&text), Ok(amount), "{text}");
            }
        }
    }
}
