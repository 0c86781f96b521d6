//! The elements of graphs, in folders by their purpose. Each file has one element, or a few that differ in one choice.
//!
//! An element is a type that implements [`RoutingElement`](weir_graph::engine::RoutingElement) or
//! [`EmittingElement`](weir_graph::engine::EmittingElement), and a record of its class. [`CLASSES`] is the table of all
//! records. Names, arguments, handlers and behaviour follow Click, so that existing configurations run unchanged.
//!
//! - E. Kohler, R. Morris, B. Chen, J. Jannotti, M. F. Kaashoek: "The Click Modular Router", ACM Transactions on Computer
//!   Systems 18(3), 2000.

#![forbid(unsafe_code)]

mod annotations;
mod bytes;
pub mod classification;
mod control;
mod devices;
mod ethernet;
mod flow_hash;
mod fragments;
mod headers;
mod icmp;
mod ip;
mod ip6;
mod ipv4;
mod ipv6;
mod measuring;
mod nat;
mod printed_lines;
mod queues;
mod routes;
mod shaping;
mod sockets;
mod sources;
mod switching;
pub mod testing;
mod text_file;
mod values;

use weir_graph::engine::{ElementClass, ElementClasses};
use weir_graph::language::{ClassStatus, LanguageEnvironment, LibraryText};

/// All element classes: purposes, each with its classes.
pub const CLASSES: &[(&str, &[&ElementClass])] = &[
    ("Sources and sinks", sources::CLASSES),
    ("Devices", devices::CLASSES),
    ("Sockets", sockets::CLASSES),
    ("Queues and scheduling", queues::CLASSES),
    ("Shaping", shaping::CLASSES),
    ("Switching and copying", switching::CLASSES),
    ("Time stamps and annotations", annotations::CLASSES),
    ("Bytes", bytes::CLASSES),
    ("Classification", classification::CLASSES),
    ("IPv4, ICMP, TCP and UDP", ip::CLASSES),
    ("IPv6", ip6::CLASSES),
    ("ICMP messages", icmp::CLASSES),
    ("Fragments", fragments::CLASSES),
    ("Ethernet, ARP and neighbour discovery", ethernet::CLASSES),
    ("Routes", routes::CLASSES),
    ("Network address translation", nat::CLASSES),
    ("Measuring", measuring::CLASSES),
    ("Control", control::CLASSES),
];

/// Returns all element classes.
fn classes() -> impl Iterator<Item = &'static ElementClass> {
    CLASSES.iter().flat_map(|(_, classes)| classes.iter().copied())
}

/// The element classes of weir.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllElements;

impl ElementClasses for AllElements {
    fn find(&self, name: &str) -> Option<&'static ElementClass> {
        classes().find(|class| class.name == name)
    }

    fn names(&self) -> Vec<&'static str> {
        classes().map(|class| class.name).collect()
    }
}

impl LanguageEnvironment for AllElements {
    fn class(&self, name: &str) -> ClassStatus {
        if self.find(name).is_some() { ClassStatus::Known } else { ClassStatus::Unknown }
    }

    fn class_names(&self) -> Vec<&str> {
        self.names()
    }

    fn library(&self, name: &str, _: &str) -> Result<LibraryText, String> {
        Err(format!("{name}: there are no libraries here"))
    }
}
