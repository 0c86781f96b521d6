//! Sending with AF_XDP.

use super::socket::{SEND_FRAMES, Sending, Socket, SocketConfig};
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::sink::{Loss, SendRefused, SharedBytes};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use weir_units::Bytes;

/// Packets that go with one wake-up of the kernel.
const WAKE_PACKETS: u32 = 32;

/// The sending half of a socket.
#[derive(Debug)]
pub(crate) struct XdpSink {
    socket: Arc<Socket>,
    rings: Sending,
    free: Vec<u64>,
    /// The last wake-up failed for this cause: nothing is added before one succeeds.
    trouble: Option<SendRefused>,
    /// Where it was opened for sending alone, by which queue.
    pub(crate) alone: Option<u32>,
}

impl XdpSink {
    pub(super) fn new(socket: Arc<Socket>, rings: Sending, alone: Option<u32>) -> Self {
        let base = socket.send_base();
        let free = (0..SEND_FRAMES).map(|i| base + u64::from(i) * u64::from(socket.frame)).collect();
        Self { socket, rings, free, trouble: None, alone }
    }

    /// A socket that only sends, by one of the card's queues.
    pub(crate) fn open(link: &KernelInterface, queue: u32) -> Result<Self, LiveError> {
        let wanted = SocketConfig { queue, zero_copy: false, memory: Bytes(0) };
        let (socket, _, rings) = Socket::open(link, wanted)?;
        Ok(Self::new(Arc::new(socket), rings, Some(queue)))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    pub(crate) fn room(&mut self) -> usize {
        self.reclaim();
        self.free.len().min(self.rings.send.room() as usize)
    }

    /// Takes back frames that have been sent.
    fn reclaim(&mut self) {
        let count = self.rings.done.available();
        for _ in 0..count {
            let frame = self.rings.done.take();
            self.free.push(frame - frame % u64::from(self.socket.frame));
        }
        if count > 0 {
            self.rings.done.done();
        }
    }

    /// Sends the first of these, as many as go; or says why not even one does.
    pub(crate) fn send(&mut self, pieces: &[SharedBytes]) -> Result<usize, SendRefused> {
        if self.trouble.is_some() {
            self.wake();
        }
        if let Some(why) = self.trouble {
            return Err(why);
        }
        let room = self.room();
        let mut sent = 0;
        for piece in pieces.iter().take(room) {
            let why = match piece.len {
                0..14 => Some(SendRefused::Lost(Loss::Malformed)),
                len if len > self.socket.frame as usize => Some(SendRefused::Lost(Loss::TooLong)),
                _ => None,
            };
            let Some(frame) = (if why.is_none() { self.free.pop() } else { None }) else {
                if sent == 0 {
                    return Err(why.unwrap_or(SendRefused::Full));
                }
                break;
            };
            // SAFETY: readable while this call lasts, by the contract of a piece.
            let copied = unsafe { self.socket.copy(piece.base, piece.len, frame) };
            if !copied {
                // The kernel gave back what is no frame of ours: it is not used again.
                break;
            }
            let len = u32::try_from(piece.len).unwrap_or(0);
            self.rings.send.add(libc::xdp_desc { addr: frame, len, options: 0 });
            sent += 1;
        }
        if sent > 0 {
            self.rings.send.publish();
        }
        if self.rings.send.needs_wakeup() {
            self.wake();
        }
        if sent == 0 { Err(SendRefused::Full) } else { Ok(sent) }
    }

    /// Lets the kernel send what waits: it does so in portions.
    fn wake(&mut self) {
        self.trouble = None;
        for _ in 0..=SEND_FRAMES / WAKE_PACKETS {
            let before = self.rings.send.waiting();
            match self.socket.wake_sender().map_err(SendRefused::from) {
                Ok(()) => {}
                // It has more to send, or the driver has no room.
                Err(SendRefused::Full) => {}
                Err(why) => {
                    self.trouble = Some(why);
                    return;
                }
            }
            let after = self.rings.send.waiting();
            if after == 0 || after == before {
                return;
            }
        }
    }
}
