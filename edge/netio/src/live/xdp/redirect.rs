//! The XDP program on an interface, which all sockets of this process on it share.

use super::bpf::{self, ProgramPlace};
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The most queues of an interface.
const QUEUES: u32 = 256;
const CAPABILITY: &str = "cap_net_admin,cap_bpf";

/// The network namespace and number of an interface.
type InterfaceKey = (u64, u32);

/// The redirection of an interface's packets to sockets, by queue. When it is dropped, all packets go to the host again.
#[derive(Debug)]
pub(super) struct XdpRedirect {
    map: OwnedFd,
    _link: OwnedFd,
}

/// The existing redirections. An interface has only one XDP program, so sockets of several queues share it.
static REDIRECTS: Mutex<Vec<(InterfaceKey, Weak<XdpRedirect>)>> = Mutex::new(Vec::new());

impl XdpRedirect {
    /// The redirection of this interface, which is created if it does not exist.
    pub(super) fn shared(link: &KernelInterface) -> Result<Arc<XdpRedirect>, LiveError> {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |metadata| metadata.ino());
        let key = (namespace, link.index);
        let mut redirects = REDIRECTS.lock().unwrap_or_else(PoisonError::into_inner);
        redirects.retain(|(_, redirect)| redirect.strong_count() > 0);
        if let Some(redirect) =
            redirects.iter().find(|(at, _)| *at == key).and_then(|(_, redirect)| redirect.upgrade())
        {
            return Ok(redirect);
        }
        let redirect = Arc::new(Self::new(link)?);
        redirects.push((key, Arc::downgrade(&redirect)));
        Ok(redirect)
    }

    fn new(link: &KernelInterface) -> Result<XdpRedirect, LiveError> {
        let name = &link.name;
        let (map, program) = load_program(name)?;
        let attach = || bpf::attach(ProgramPlace::Driver, program.as_fd(), link.index);
        let link = sys::retry_while_busy(attach).map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) => LiveError::Unsupported {
                interface: name.clone(),
                what: "an XDP program",
                error,
                instead: "use AF_PACKET, or a smaller MTU where the driver asks for that",
            },
            _ => LiveError::refused(name, "attaching an XDP program", CAPABILITY)(error),
        })?;
        Ok(Self { map, _link: link })
    }

    /// Loads the program without attaching it to an interface.
    pub(super) fn try_program(link: &KernelInterface) -> Result<(), LiveError> {
        load_program(&link.name).map(drop)
    }

    /// Redirects the packets of a queue to this socket.
    pub(super) fn add_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        bpf::insert_socket(self.map.as_fd(), queue, socket)
    }
}

/// Loads the program for an interface, with its map of sockets. Returns the map and the program.
fn load_program(name: &str) -> Result<(OwnedFd, OwnedFd), LiveError> {
    let refused = |doing| LiveError::refused(name, doing, CAPABILITY);
    let map = bpf::socket_map(QUEUES).map_err(refused("making a map of sockets"))?;
    let program = bpf::load(ProgramPlace::Driver, &bpf::program(map.as_fd()))
        .map_err(refused("loading an XDP program"))?;
    Ok((map, program))
}
