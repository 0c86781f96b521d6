//! Checks interfaces and links by opening them for a moment. No packet is received or sent.

use super::{Remark, Remarks, Subject};
use crate::control::config::{NodeConfiguration, ReceiveMethod as InterfaceKind};
use crate::sessions::link::LinkCheck;
use std::collections::BTreeMap;
use weir_netio::{LiveError, LiveSink, SocketKind, link_type_of, try_interface};
use weir_wire::LinkType;

/// The interfaces and links of a configuration, with their link types.
#[derive(Default)]
pub(super) struct Devices {
    pub(super) interfaces: BTreeMap<String, LinkType>,
    pub(super) links: BTreeMap<String, LinkType>,
    pub(super) link_check: LinkCheck,
}

impl Devices {
    /// Finds the link types of a configuration's devices. A missing device counts as Ethernet, as in a start.
    pub(super) fn find(config: &NodeConfiguration) -> Self {
        let with_link_type = |name: &String| (name.clone(), link_type_of(name).unwrap_or(LinkType::Ethernet));
        let interfaces = config.interfaces.iter().map(|it| with_link_type(&it.name)).collect();
        let links: BTreeMap<_, _> = config.links.iter().map(|link| with_link_type(&link.interface)).collect();
        let mut link_check = LinkCheck::default();
        for link in &config.links {
            // An error is reported by [`Remarks::check_links`].
            let kind = links.get(&link.interface).copied().unwrap_or(LinkType::Ethernet);
            _ = link_check.add(link, kind);
        }
        Self { interfaces, links, link_check }
    }
}

/// Returns remarks on properties that only a start checks, because checking them would interrupt traffic.
pub(crate) fn unchecked_properties(subject: &Subject<'_>) -> impl Iterator<Item = Remark> {
    let interfaces =
        subject.config.interfaces.iter().filter(|interface| interface.kind == InterfaceKind::Xdp);
    interfaces.map(|interface| {
        let name = interface.name.escape_debug();
        let what = format!(
            "interface `{name}`: AF_XDP and `zero_copy` are not checked, as that can interrupt the interface's traffic: a start fails if the driver does not support them"
        );
        Remark { line: subject.lines.interfaces.get(&interface.name).copied(), what }
    })
}

impl Remarks {
    /// Checks interfaces. A missing interface causes only a warning, as a node waits for it.
    pub(super) fn check_interfaces(&mut self, subject: &Subject<'_>) {
        for interface in &subject.config.interfaces {
            let line = subject.lines.interfaces.get(&interface.name).copied();
            match try_interface(&interface.name, interface.options()) {
                Ok(()) => {}
                Err(LiveError::NoSuchInterface { .. }) => {
                    let name = interface.name.escape_debug();
                    let what = format!(
                        "there is no interface `{name}` on this machine now: the node will wait for it"
                    );
                    self.add_warning(line, what);
                }
                Err(error) => self.add_interface_error(subject.context, line, &error),
            }
        }
    }

    /// Checks links.
    pub(super) fn check_links(&mut self, subject: &Subject<'_>) {
        for link in &subject.config.links {
            let line = subject.lines.links.get(&link.interface).copied();
            if let Err(error) = LiveSink::open(&link.interface, SocketKind::Packet) {
                self.add_interface_error(subject.context, line, &error);
            }
            if let Err(error) = LinkCheck::default().add(link, LinkType::Ethernet) {
                self.add_problem(line, error.to_string());
            }
        }
    }
}
