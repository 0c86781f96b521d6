//! Names that elements define for the arguments of others, and for the schedule.

use super::effects::InterfaceAddresses;
use super::schedule::{TICKETS_DEFAULT, TICKETS_MAX};
use crate::arguments::{EthernetAddress, Ipv4Prefix, Ipv6Prefix};
use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

/// Names with the addresses, ports and scheduling parameters that they stand for. Names are full names, such as
/// `compound/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinedNames {
    /// IPv4 addresses.
    pub ipv4: BTreeMap<String, Ipv4Addr>,
    /// IPv4 prefixes.
    pub ipv4_prefixes: BTreeMap<String, Ipv4Prefix>,
    /// IPv6 addresses.
    pub ipv6: BTreeMap<String, Ipv6Addr>,
    /// IPv6 prefixes.
    pub ipv6_prefixes: BTreeMap<String, Ipv6Prefix>,
    /// Ethernet addresses.
    pub ethernet: BTreeMap<String, EthernetAddress>,
    /// Ports, by the number of their protocol and their name.
    pub ports: BTreeMap<(u8, String), u16>,
    /// The elements that define patterns for rewriters, by the names of the patterns.
    pub patterns: BTreeMap<String, usize>,
    /// Tickets, by the compound element in which they are stated, with a slash at its end, and the name in it.
    pub tickets: BTreeMap<(String, String), u32>,
    /// Threads, by names as those of tickets.
    pub threads: BTreeMap<(String, String), u32>,
    /// The interfaces of the system, whose names stand for addresses unless they are defined otherwise.
    pub(super) interfaces: Vec<InterfaceAddresses>,
}

impl DefinedNames {
    /// Adds names. A name that is defined again has its later meaning.
    ///
    /// Each element adds its names, so the names that are there are not walked over: `BTreeMap::append` would do that.
    pub(super) fn add(&mut self, other: Self) {
        self.ipv4.extend(other.ipv4);
        self.ipv4_prefixes.extend(other.ipv4_prefixes);
        self.ipv6.extend(other.ipv6);
        self.ipv6_prefixes.extend(other.ipv6_prefixes);
        self.ethernet.extend(other.ethernet);
        self.ports.extend(other.ports);
        self.patterns.extend(other.patterns);
        self.tickets.extend(other.tickets);
        self.threads.extend(other.threads);
    }

    /// Returns the IPv4 address of a name, or of a name with one of the suffixes `:ip`, `:bcast` and `:gw`.
    pub(super) fn find_ipv4(&self, name: &str) -> Option<Ipv4Addr> {
        let prefix = |suffix| self.ipv4_prefixes.get(name.strip_suffix(suffix)?);
        if let Some(prefix) = prefix(":bcast") {
            return Some((prefix.address.to_bits() | !prefix.mask.to_bits()).into());
        }
        if let Some(prefix) = prefix(":gw") {
            return Some(((prefix.address.to_bits() & prefix.mask.to_bits()) | 1).into());
        }
        let defined = self.ipv4.get(name.strip_suffix(":ip").unwrap_or(name)).copied();
        defined.or_else(|| self.ipv4_of_interface(name))
    }

    fn ipv4_of_interface(&self, name: &str) -> Option<Ipv4Addr> {
        let (interface, kind) = name.split_once(':').unwrap_or((name, "ip"));
        let interface = self.interface(interface)?;
        match kind {
            "ip" => Some(interface.ipv4?.address),
            "bcast" => {
                let Ipv4Prefix { address, mask } = interface.ipv4?;
                Some((address.to_bits() | !mask.to_bits()).into())
            }
            "gw" => interface.gateway,
            _ => None,
        }
    }

    fn interface(&self, name: &str) -> Option<&InterfaceAddresses> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Returns the prefix of a name, also with the suffix `:ipnet`.
    pub(super) fn find_ipv4_prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        let name = name.strip_suffix(":ipnet").unwrap_or(name);
        self.ipv4_prefixes.get(name).copied().or_else(|| self.interface(name)?.ipv4)
    }

    /// Returns the Ethernet address of a name, also with the suffix `:eth`.
    pub(super) fn find_ethernet(&self, name: &str) -> Option<EthernetAddress> {
        let name = name.strip_suffix(":eth").unwrap_or(name);
        self.ethernet.get(name).copied().or_else(|| self.interface(name)?.ethernet)
    }

    /// Returns the tickets of an element's task, by its full name.
    ///
    /// A number for a compound element is a factor for all elements in it. A statement of an outer compound element about
    /// an element takes the place of those of inner ones.
    pub(super) fn tickets_of(&self, name: &str) -> u32 {
        // The name with each number of its parts, from the first one on.
        let mut ends: Vec<usize> = name.match_indices('/').map(|(at, _)| at).collect();
        ends.push(name.len());
        let mut factors = vec![TICKETS_DEFAULT; ends.len()];
        let inner = ends.iter().rev().skip(1).map(|end| &name[..=*end]);
        for scope in inner.chain([""]) {
            let mut is_stated = false;
            for (factor, end) in
                factors.iter_mut().zip(&ends).rev().take_while(|(_, end)| **end > scope.len())
            {
                let stated = self.tickets.get(&(scope.to_owned(), name[scope.len()..*end].to_owned()));
                match stated.filter(|_| !is_stated) {
                    Some(stated) => (is_stated, *factor) = (true, *stated),
                    None if is_stated => *factor = TICKETS_DEFAULT,
                    None => {}
                }
            }
        }
        let product = factors.iter().fold(u64::from(TICKETS_DEFAULT), |product, factor| {
            product * u64::from(*factor) / u64::from(TICKETS_DEFAULT)
        });
        u32::try_from(product).unwrap_or(TICKETS_MAX).clamp(1, TICKETS_MAX)
    }

    /// Returns the thread that is stated for an element, by its full name.
    ///
    /// A statement about a compound element is one about all elements in it, unless the same scope states more about some
    /// of them. A statement of an outer compound element takes the place of those of inner ones.
    pub(super) fn thread_of(&self, name: &str) -> Option<u32> {
        let slashes = name.match_indices('/').map(|(at, _)| at);
        let ends: Vec<usize> = slashes.chain([name.len()]).collect();
        let scopes = [0].into_iter().chain(ends.iter().rev().skip(1).rev().map(|end| end + 1));
        let mut stated = scopes.map(|scope| {
            let names = ends.iter().rev().take_while(|end| **end > scope).map(|end| &name[scope..*end]);
            names
                .filter_map(|inner| self.threads.get(&(name[..scope].to_owned(), inner.to_owned())).copied())
                .next()
        });
        stated.find_map(|it| it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_state_the_kind_of_an_address() {
        let mut names = DefinedNames::default();
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        names.ipv4.insert("a".to_owned(), address("10.1.2.3"));
        let prefix = Ipv4Prefix { address: address("10.1.2.3"), mask: address("255.255.255.0") };
        names.ipv4_prefixes.insert("a".to_owned(), prefix);
        let found = ["a", "a:ip", "a:bcast", "a:gw", "b", "b:gw"].map(|name| names.find_ipv4(name));
        let texts = found.map(|it| it.map_or(String::new(), |it| it.to_string()));
        assert_eq!(texts, ["10.1.2.3", "10.1.2.3", "10.1.2.255", "10.1.2.1", "", ""]);
    }

    #[test]
    fn names_of_interfaces_stand_for_addresses_unless_they_are_defined() {
        let mut names = DefinedNames::default();
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        let prefix = Ipv4Prefix { address: address("10.1.2.3"), mask: address("255.255.255.0") };
        let ethernet = EthernetAddress([2, 0, 0, 0, 0, 1]);
        names.interfaces.push(InterfaceAddresses {
            name: "eth0".to_owned(),
            ipv4: Some(prefix),
            gateway: Some(address("10.1.2.254")),
            ethernet: Some(ethernet),
        });
        let found = ["eth0", "eth0:ip", "eth0:bcast", "eth0:gw", "eth0:other", "eth1", "eth1:gw"]
            .map(|name| names.find_ipv4(name).map_or(String::new(), |it| it.to_string()));
        assert_eq!(found, ["10.1.2.3", "10.1.2.3", "10.1.2.255", "10.1.2.254", "", "", ""]);
        assert_eq!(
            (names.find_ipv4_prefix("eth0:ipnet"), names.find_ipv4_prefix("eth1")),
            (Some(prefix), None)
        );
        assert_eq!(names.find_ethernet("eth0:eth"), Some(ethernet));
        names.ipv4.insert("eth0".to_owned(), address("10.9.9.9"));
        assert_eq!(names.find_ipv4("eth0"), Some(address("10.9.9.9")));
    }

    #[test]
    fn tickets_of_compounds_are_factors() {
        let mut names = DefinedNames::default();
        let mut state = |scope: &str, name: &str, tickets: u32| {
            names.tickets.insert((scope.to_owned(), name.to_owned()), tickets);
        };
        state("c/", "i", 512);
        state("", "c", 4096);
        state("", "d", 4096);
        state("", "d/i", 10_752);
        state("d/", "i", 512);
        assert_eq!(names.tickets_of("c/i"), 2048);
        assert_eq!(names.tickets_of("c/other"), 4096);
        assert_eq!(names.tickets_of("d/i"), 10_752);
        assert_eq!(names.tickets_of("e"), TICKETS_DEFAULT);
    }

    #[test]
    fn a_thread_of_a_compound_is_that_of_all_in_it() {
        let mut names = DefinedNames::default();
        let mut state = |scope: &str, name: &str, thread: u32| {
            names.threads.insert((scope.to_owned(), name.to_owned()), thread);
        };
        state("", "c", 1);
        state("", "c/i", 2);
        state("c/", "j", 3);
        state("d/", "j", 4);
        let all = ["c/i", "c/j", "c/k/l", "d/j", "d/j/k", "d/k", "j"];
        let expected = [Some(2), Some(1), Some(1), Some(4), Some(4), None, None];
        assert_eq!(all.map(|name| names.thread_of(name)), expected);
    }
}
