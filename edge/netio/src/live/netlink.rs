//! rtnetlink: the interfaces of a network namespace, and their changes.

use super::sys::{self, Plain};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The length of a message's header (`nlmsghdr`).
const HEADER_BYTES: usize = 16;
/// The length of the fixed part of a message about an interface (`ifinfomsg`).
const LINK_BYTES: usize = 16;
/// The size of a read buffer. It suffices for any message about an interface: the kernel limits a dump to 32 KiB.
const BUFFER_BYTES: usize = 64 * 1024;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS64: u16 = 23;
/// The offset of the drop counter in `rtnl_link_stats64`.
const TX_DROPPED: usize = 7 * 8;
/// The most messages of a dump; no machine has so many interfaces.
const MESSAGES_MAX: usize = 1 << 20;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelInterface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    /// The hardware type (ARPHRD_…).
    pub(crate) hardware: u16,
    /// True if the interface is set up and has a carrier.
    pub(crate) running: bool,
    /// The number of packets that the interface dropped instead of sending them.
    pub(crate) tx_dropped: u64,
}

/// A message about an interface.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkMessage {
    /// The interface exists, in this state.
    Present(KernelInterface),
    /// The interface with this number was removed.
    Removed(u32),
}

/// The result of reading from the socket.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Messages,
    Nothing,
    /// The kernel dropped messages, so the state has to be read again.
    Overrun,
}

/// A netlink socket.
#[derive(Debug)]
pub(crate) struct Netlink {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    fn new(groups: u32, flags: libc::c_int) -> io::Result<Self> {
        let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW | flags, libc::NETLINK_ROUTE)?;
        let family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or_default();
        let mut address = libc::sockaddr_nl::zeroed();
        (address.nl_family, address.nl_groups) = (family, groups);
        sys::bind(fd.as_fd(), &address)?;
        Ok(Self { fd, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Opens a socket that receives all changes of interfaces and never blocks.
    pub(crate) fn watching() -> io::Result<Self> {
        Self::new(u32::try_from(libc::RTMGRP_LINK).unwrap_or(1), libc::SOCK_NONBLOCK)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads all changes since the last call. Returns false if some were lost.
    pub(crate) fn changes(&mut self, mut each: impl FnMut(LinkMessage)) -> io::Result<bool> {
        let mut is_complete = true;
        loop {
            match self.read(&mut each)? {
                Read::Messages => {}
                Read::Overrun => is_complete = false,
                Read::Nothing => return Ok(is_complete),
            }
        }
    }

    /// Reads one datagram.
    fn read(&mut self, each: &mut impl FnMut(LinkMessage)) -> io::Result<Read> {
        let mut from = libc::sockaddr_nl::zeroed();
        let mut from_len = sys::len_of::<libc::sockaddr_nl>();
        // SAFETY: the kernel writes at most the buffer's length, and at most the address' length into the address.
        let len = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                self.buffer.as_mut_ptr().cast(),
                self.buffer.len(),
                0,
                (&raw mut from).cast(),
                &raw mut from_len,
            )
        };
        let Ok(len) = usize::try_from(len) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(Read::Nothing),
                Some(libc::ENOBUFS) => Ok(Read::Overrun),
                Some(libc::EINTR) => Ok(Read::Messages),
                _ => Err(error),
            };
        };
        // Messages from other senders than the kernel are ignored.
        if from.nl_pid == 0 {
            parse(self.buffer.get(..len).unwrap_or_default(), &mut |message| {
                if let Answer::Link(message) = message {
                    each(message);
                }
            });
        }
        Ok(Read::Messages)
    }
}

/// All interfaces of this thread's network namespace.
pub(crate) fn interfaces() -> io::Result<Vec<KernelInterface>> {
    let mut netlink = Netlink::new(0, 0)?;
    let dump = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or_default();
    let mut request = Vec::with_capacity(HEADER_BYTES + LINK_BYTES);
    request.extend_from_slice(&32u32.to_ne_bytes());
    request.extend_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request.extend_from_slice(&dump.to_ne_bytes());
    request.extend_from_slice(&[0; 8 + LINK_BYTES]);
    // SAFETY: the kernel reads the request's bytes.
    let sent = unsafe { libc::send(netlink.fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut links, mut end) = (Vec::new(), None);
    for _ in 0..MESSAGES_MAX {
        let fd = netlink.fd.as_raw_fd();
        // SAFETY: the kernel writes at most the buffer's length.
        let len = unsafe { libc::recv(fd, netlink.buffer.as_mut_ptr().cast(), netlink.buffer.len(), 0) };
        let Ok(len) = usize::try_from(len) else {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        };
        parse(netlink.buffer.get(..len).unwrap_or_default(), &mut |answer| match answer {
            Answer::Link(LinkMessage::Present(link)) => links.push(link),
            Answer::Link(LinkMessage::Removed(_)) => {}
            Answer::End(code) => end = Some(code),
        });
        match end {
            Some(0) => break,
            Some(code) => return Err(io::Error::from_raw_os_error(code)),
            None => {}
        }
    }
    Ok(links)
}

/// A parsed message from the kernel.
enum Answer {
    Link(LinkMessage),
    /// The end of a dump, or an error with this code.
    End(i32),
}

/// The `N` bytes at an offset.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Parses the messages of a datagram.
fn parse(mut bytes: &[u8], each: &mut impl FnMut(Answer)) {
    const DONE: u16 = 3;
    const ERROR: u16 = 2;
    while let (Some(len), Some(kind)) =
        (at(bytes, 0).map(u32::from_ne_bytes), at(bytes, 4).map(u16::from_ne_bytes))
    {
        let Some(body) = usize::try_from(len).ok().and_then(|len| bytes.get(HEADER_BYTES..len)) else {
            return;
        };
        match kind {
            DONE => each(Answer::End(0)),
            ERROR => {
                each(Answer::End(
                    at(body, 0).map_or(libc::EBADMSG, |code| i32::from_ne_bytes(code).saturating_neg()),
                ));
            }
            libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                if let Some(message) = parse_link(kind == libc::RTM_DELLINK, body) {
                    each(Answer::Link(message));
                }
            }
            _ => {}
        }
        bytes = bytes.get((HEADER_BYTES + body.len()).next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Parses a message about an interface. Returns `None` for messages of other address families, which describe bridge ports.
fn parse_link(is_removed: bool, body: &[u8]) -> Option<LinkMessage> {
    if *body.first()? != 0 {
        return None;
    }
    let hardware = u16::from_ne_bytes(at(body, 2)?);
    let index = u32::from_ne_bytes(at(body, 4)?);
    let flags = u32::from_ne_bytes(at(body, 8)?);
    if is_removed {
        return Some(LinkMessage::Removed(index));
    }
    let has = |bit: libc::c_int| flags & bit.unsigned_abs() != 0;
    let mut link = KernelInterface {
        index,
        name: String::new(),
        mtu: 0,
        hardware,
        running: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
        tx_dropped: 0,
    };
    let mut rest = body.get(LINK_BYTES..)?;
    while let (Some(len), Some(kind)) =
        (at(rest, 0).map(u16::from_ne_bytes), at(rest, 2).map(u16::from_ne_bytes))
    {
        let Some(value) = rest.get(4..usize::from(len)) else { break };
        match kind {
            IFLA_IFNAME => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_STATS64 => link.tx_dropped = at(value, TX_DROPPED).map_or(0, u64::from_ne_bytes),
            IFLA_MTU => link.mtu = at(value, 0).map_or(0, u32::from_ne_bytes),
            _ => {}
        }
        rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    Some(LinkMessage::Present(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![family, 0, 1, 0, 7, 0, 0, 0, 0x41, 0, 0, 0, 0, 0, 0, 0];
        for (kind, value) in attributes {
            body.extend_from_slice(&u16::try_from(value.len() + 4).unwrap().to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let mut bytes = u32::try_from(body.len() + HEADER_BYTES).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&[0; 10]);
        bytes.extend_from_slice(&body);
        bytes
    }

    fn parsed(bytes: &[u8]) -> Vec<LinkMessage> {
        let mut all = Vec::new();
        parse(bytes, &mut |answer| {
            if let Answer::Link(message) = answer {
                all.push(message);
            }
        });
        all
    }

    #[test]
    fn messages_are_parsed_and_those_about_bridges_are_ignored() {
        let mtu = 9000u32.to_ne_bytes();
        let there = message(libc::RTM_NEWLINK, 0, &[(IFLA_IFNAME, b"eth0\0"), (IFLA_MTU, &mtu)]);
        let bridge = message(libc::RTM_DELLINK, 7, &[]);
        let gone = message(libc::RTM_DELLINK, 0, &[]);
        let link = KernelInterface {
            index: 7,
            name: "eth0".into(),
            mtu: 9000,
            hardware: 1,
            running: true,
            tx_dropped: 0,
        };
        assert_eq!(
            parsed(&[there, bridge, gone].concat()),
            [LinkMessage::Present(link), LinkMessage::Removed(7)]
        );
    }

    #[test]
    fn truncated_messages_and_false_lengths_cause_no_panic() {
        let whole = message(libc::RTM_NEWLINK, 0, &[(IFLA_IFNAME, b"eth0\0")]);
        for len in 0..whole.len() {
            assert_eq!(parsed(&whole[..len]), []);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 15, 17, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                parsed(&bytes);
            }
        }
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let all = interfaces().unwrap();
        assert!(
            all.iter().any(|link| link.name == "lo" && link.hardware == libc::ARPHRD_LOOPBACK),
            "{all:?}"
        );
    }
}
