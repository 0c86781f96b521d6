//! A description of the means that isolate one process, which a node reports to its operator.

use std::fmt;

/// The isolation of one process in addition to seccomp, Landlock and the lack of capabilities, which each process has.
///
/// The text form names the parts, as in `uid+namespaces+cgroup+sealed`. A group without limits is
/// `cgroup-without-limits`. A process without a user, namespaces and a group of its own is `seccomp`, or
/// `seccomp+sealed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation(u8);

impl Isolation {
    /// Only seccomp, Landlock and the lack of capabilities, which each process has.
    pub const NONE: Self = Self(0);
    /// A user of its own, which no other process has.
    pub const UID: Self = Self(1);
    /// Namespaces of its own (user where the system allows it, mount, pid, network, IPC, UTS, cgroup), and an empty root.
    pub const NAMESPACES: Self = Self(2);
    /// A control group of its own.
    pub const GROUP: Self = Self(4);
    /// Limits of the control group on memory and tasks.
    pub const LIMITS: Self = Self(8);
    /// Code pages that cannot be made writable again (mseal(2)).
    pub const SEALED: Self = Self(16);

    const ALL: u8 = 31;

    /// Returns the isolation with the parts of `self` and of `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all parts of `other` are included.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL)
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.has(Self::LIMITS) { "cgroup" } else { "cgroup-without-limits" };
        let parts = [(Self::UID, "uid"), (Self::NAMESPACES, "namespaces"), (Self::GROUP, group)];
        let mut words: Vec<&str> =
            parts.into_iter().filter(|(part, _)| self.has(*part)).map(|(_, word)| word).collect();
        if words.is_empty() {
            words.push("seccomp");
        }
        if self.has(Self::SEALED) {
            words.push("sealed");
        }
        f.write_str(&words.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_each_part() {
        let group = Isolation::GROUP.with(Isolation::LIMITS);
        let all = Isolation::UID.with(Isolation::NAMESPACES).with(group).with(Isolation::SEALED);
        assert_eq!(all.to_string(), "uid+namespaces+cgroup+sealed");
        assert_eq!(Isolation::NONE.to_string(), "seccomp");
        assert_eq!(Isolation::SEALED.to_string(), "seccomp+sealed");
        assert_eq!(
            Isolation::NAMESPACES.with(Isolation::GROUP).to_string(),
            "namespaces+cgroup-without-limits"
        );
        assert_eq!(Isolation::from_bits(all.bits()), all);
    }
}
