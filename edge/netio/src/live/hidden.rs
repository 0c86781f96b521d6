//! Hiding of an interface's packets from the host's own network.

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::xdp::bpf::{self, ProgramPlace};
use std::os::fd::{AsFd, OwnedFd};

const CAPABILITY: &str = "cap_net_admin,cap_bpf";

/// A program at an interface that drops all packets behind the packet sockets. When it is dropped, also because the
/// process was killed, the host's network receives packets again.
#[derive(Debug)]
pub(super) struct HiddenFromHost {
    _link: OwnedFd,
}

impl HiddenFromHost {
    pub(super) fn new(interface: &KernelInterface) -> Result<Self, LiveError> {
        let name = &interface.name;
        let refused = |doing| LiveError::refused(name, doing, CAPABILITY);
        let program = bpf::load(ProgramPlace::Host, &bpf::DROP_ALL)
            .map_err(refused("loading a program that hides packets from the host"))?;
        let link =
            bpf::attach(ProgramPlace::Host, program.as_fd(), interface.index).map_err(|error| match error
                .raw_os_error()
            {
                Some(libc::EINVAL | libc::EOPNOTSUPP) => LiveError::Unsupported {
                    interface: name.clone(),
                    what: "hiding packets from the host",
                    error,
                    instead: "it needs Linux 6.6: use AF_XDP, or give the interface no address",
                },
                _ => refused("hiding packets from the host")(error),
            })?;
        Ok(Self { _link: link })
    }
}
