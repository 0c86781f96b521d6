//! The interfaces and links of a node, opened for a moment as a start opens them. No packet is taken from the system, and none is sent.

use super::{Remark, Remarks, Subject};
use crate::control::config::{NodeConfiguration, ReceiveMethod as InterfaceKind};
use crate::link::LinkCheck;
use std::collections::BTreeMap;
use weir_netio::{LiveError, LiveSink, SocketKind, link_type_of, try_interface};
use weir_wire::LinkType;

/// The interfaces and links of a configuration, with their link types.
#[derive(Default)]
pub(super) struct Devices {
    pub(super) interfaces: BTreeMap<String, LinkType>,
    pub(super) links: BTreeMap<String, LinkType>,
    pub(super) trial: LinkCheck,
}

impl Devices {
    /// Finds them. One that is not there counts as Ethernet, as in a start.
    pub(super) fn of(config: &NodeConfiguration) -> Self {
        let typed = |name: &String| (name.clone(), link_type_of(name).unwrap_or(LinkType::Ethernet));
        let interfaces = config.interfaces.iter().map(|it| typed(&it.name)).collect();
        let links: BTreeMap<_, _> = config.links.iter().map(|link| typed(&link.interface)).collect();
        let mut trial = LinkCheck::default();
        for link in &config.links {
            // An error in it is a remark on the link.
            let kind = links.get(&link.interface).copied().unwrap_or(LinkType::Ethernet);
            _ = trial.add(link, kind);
        }
        Self { interfaces, links, trial }
    }
}

/// Returns what a check leaves to a start, because it would interrupt traffic.
pub(crate) fn not_tried(subject: &Subject<'_>) -> impl Iterator<Item = Remark> {
    let interfaces =
        subject.config.interfaces.iter().filter(|interface| interface.kind == InterfaceKind::Xdp);
    interfaces.map(|interface| {
        let name = interface.name.escape_debug();
        let what = format!(
            "interface `{name}`: only a start tries whether the driver takes AF_XDP's program, and `zero_copy`, since that can interrupt the interface's traffic"
        );
        Remark { line: subject.places.interfaces.get(&interface.name).copied(), what }
    })
}

impl Remarks {
    /// Tries interfaces. An interface that is not there may come later: a node waits for it.
    pub(super) fn interfaces(&mut self, subject: &Subject<'_>) {
        for interface in &subject.config.interfaces {
            let line = subject.places.interfaces.get(&interface.name).copied();
            match try_interface(&interface.name, interface.options()) {
                Ok(()) => {}
                Err(LiveError::NoSuchInterface { .. }) => {
                    let name = interface.name.escape_debug();
                    let what =
                        format!("there is no interface `{name}` on this machine now: the node waits for it");
                    self.warning(line, what);
                }
                Err(error) => self.of_live(subject.standing, line, &error),
            }
        }
    }

    /// Tries links.
    pub(super) fn links(&mut self, subject: &Subject<'_>) {
        for link in &subject.config.links {
            let line = subject.places.links.get(&link.interface).copied();
            if let Err(error) = LiveSink::open(&link.interface, SocketKind::Packet) {
                self.of_live(subject.standing, line, &error);
            }
            if let Err(error) = LinkCheck::default().add(link, LinkType::Ethernet) {
                self.problem(line, error.to_string());
            }
        }
    }
}
