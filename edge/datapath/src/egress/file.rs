//! A capture file that packets go into.

use super::onward::ForwardedPacket;
use super::tally::OutputCounters;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_netio::{Loss, PacketWriter, WriteError};
use weir_units::Timestamp;
use weir_wire::LinkType;

/// A capture file that is being written.
#[derive(Debug)]
pub struct FileEnd {
    inner: Mutex<Inner>,
    /// What was written, and what was not.
    pub tally: OutputCounters,
}

#[derive(Debug)]
struct Inner {
    /// `None` when it is closed.
    writer: Option<PacketWriter>,
    /// The first fault. After it nothing more is written.
    error: Option<WriteError>,
    has_failed: bool,
}

impl FileEnd {
    /// Writes with this writer.
    pub fn new(writer: PacketWriter) -> Self {
        let inner = Inner { writer: Some(writer), error: None, has_failed: false };
        Self { inner: Mutex::new(inner), tally: OutputCounters::default() }
    }

    /// The fault that ended writing, told once.
    ///
    /// # Errors
    ///
    /// There was one since this was asked last.
    pub fn check(&self) -> Result<(), WriteError> {
        self.lock().error.take().map_or(Ok(()), Err)
    }

    /// Takes nothing more. Returns the writer, unless it was taken before, to be finished.
    pub fn close(&self) -> Option<PacketWriter> {
        self.lock().writer.take()
    }

    pub(super) fn write_all<'a>(&self, packets: impl Iterator<Item = ForwardedPacket<'a>>) {
        let mut inner = self.lock();
        for ForwardedPacket { bytes, descriptor, .. } in packets {
            let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else { continue };
            let (ts, interface) = (Timestamp(descriptor.ts_ns), descriptor.interface);
            let write = |writer: &mut PacketWriter| {
                writer.write(ts, descriptor.wire_len, link_type, interface, bytes)
            };
            inner.write(&self.tally, bytes.len(), write);
        }
    }

    /// Writes an Ethernet frame of this time.
    pub(super) fn write(&self, ts: Timestamp, frame: &[u8]) {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let write = |writer: &mut PacketWriter| writer.write(ts, len, LinkType::Ethernet, 0, frame);
        self.lock().write(&self.tally, frame.len(), write);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(
        &mut self,
        tally: &OutputCounters,
        bytes: usize,
        write: impl FnOnce(&mut PacketWriter) -> Result<(), WriteError>,
    ) {
        let Some(writer) = &mut self.writer else {
            tally.closed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if self.has_failed {
            tally.lost(Loss::Refused);
            return;
        }
        match write(writer) {
            Ok(()) => tally.sent(bytes),
            Err(error) => {
                tally.lost(Loss::Refused);
                (self.error, self.has_failed) = (Some(error), true);
            }
        }
    }
}
