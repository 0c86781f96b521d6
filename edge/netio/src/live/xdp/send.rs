//! Sending of packets with AF_XDP.

use super::socket::{FrameDivision, SEND_FRAMES, Sending, Socket, SocketConfig};
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::sink::{Loss, SendRefused, SharedBytes};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use weir_units::Bytes;

/// The number of packets sent with one wake-up of the kernel.
const WAKE_PACKETS: u32 = 32;

/// The sending half of a socket.
#[derive(Debug)]
pub(crate) struct XdpSink {
    socket: Arc<Socket>,
    rings: Sending,
    /// The addresses of free frames.
    free: Vec<u64>,
    /// The error of the last wake-up. No packets are added until a wake-up succeeds.
    wake_error: Option<SendRefused>,
    /// The queue, if the socket was opened only for sending.
    pub(crate) own_queue: Option<u32>,
}

impl XdpSink {
    pub(super) fn new(socket: Arc<Socket>, rings: Sending, own_queue: Option<u32>) -> Self {
        let base = socket.send_base();
        let free = (0..SEND_FRAMES).map(|i| base + u64::from(i) * u64::from(socket.frame_bytes)).collect();
        Self { socket, rings, free, wake_error: None, own_queue }
    }

    /// Opens a socket that only sends, through one of the card's queues.
    pub(crate) fn open(link: &KernelInterface, queue: u32) -> Result<Self, LiveError> {
        let layout = FrameDivision::new(link, Bytes(0), 1);
        let opened = Socket::open(link, SocketConfig { queue, zero_copy: false, layout, entries: 0 })?;
        Ok(Self::new(Arc::new(opened.socket), opened.sending, Some(queue)))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    pub(crate) fn room(&mut self) -> usize {
        self.reclaim();
        self.free.len().min(self.rings.to_send.room() as usize)
    }

    /// Takes back the frames that the kernel has sent.
    fn reclaim(&mut self) {
        let count = self.rings.completed.available();
        for _ in 0..count {
            let frame = self.rings.completed.take();
            self.free.push(frame - frame % u64::from(self.socket.frame_bytes));
        }
        if count > 0 {
            self.rings.completed.release_taken();
        }
    }

    /// Sends as many of the first packets as possible and returns their number; or the reason why no packet was
    /// sent.
    pub(crate) fn send(&mut self, pieces: &[SharedBytes]) -> Result<usize, SendRefused> {
        if self.wake_error.is_some() {
            self.wake();
        }
        if let Some(why) = self.wake_error {
            return Err(why);
        }
        let room = self.room();
        let mut sent = 0;
        for piece in pieces.iter().take(room) {
            let why = match piece.len {
                0..14 => Some(SendRefused::Lost(Loss::Malformed)),
                len if len > self.socket.frame_bytes as usize => Some(SendRefused::Lost(Loss::TooLong)),
                _ => None,
            };
            let Some(frame) = (if why.is_none() { self.free.pop() } else { None }) else {
                if sent == 0 {
                    return Err(why.unwrap_or(SendRefused::Full));
                }
                break;
            };
            // SAFETY: readable during this call, by the contract of `SharedBytes`.
            let copied = unsafe { self.socket.copy(piece.base, piece.len, frame) };
            if !copied {
                // The kernel returned an address outside the frames; it is not used again.
                break;
            }
            let len = u32::try_from(piece.len).unwrap_or(0);
            self.rings.to_send.add(libc::xdp_desc { addr: frame, len, options: 0 });
            sent += 1;
        }
        if sent > 0 {
            self.rings.to_send.publish();
        }
        if self.rings.to_send.needs_wakeup() {
            self.wake();
        }
        if sent == 0 { Err(SendRefused::Full) } else { Ok(sent) }
    }

    /// Lets the kernel send waiting packets, which it does in portions.
    fn wake(&mut self) {
        self.wake_error = None;
        for _ in 0..=SEND_FRAMES / WAKE_PACKETS {
            let before = self.rings.to_send.waiting();
            match self.socket.wake_sender().map_err(SendRefused::from) {
                Ok(()) => {}
                // The kernel has more to send, or the driver has no space.
                Err(SendRefused::Full) => {}
                Err(why) => {
                    self.wake_error = Some(why);
                    return;
                }
            }
            let after = self.rings.to_send.waiting();
            if after == 0 || after == before {
                return;
            }
        }
    }
}
