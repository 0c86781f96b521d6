//! Forwarding into a capture file.

use super::counters::OutputCounters;
use super::forward::ForwardedPacket;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_netio::{Loss, PacketWriter, WriteError};
use weir_units::{Bytes, Timestamp};
use weir_wire::LinkType;

/// A capture file that packets are forwarded into.
#[derive(Debug)]
pub struct FileEgress {
    inner: Mutex<Inner>,
    /// Packets written and lost.
    pub counters: OutputCounters,
}

#[derive(Debug)]
struct Inner {
    /// `None` once the egress is closed.
    writer: Option<PacketWriter>,
    /// The first write error; `None` again once [`FileEgress::check`] has returned it.
    error: Option<WriteError>,
    /// True after a write error; nothing more is written then.
    has_failed: bool,
}

impl FileEgress {
    /// Creates an egress that writes with `writer`.
    pub fn new(writer: PacketWriter) -> Self {
        let inner = Inner { writer: Some(writer), error: None, has_failed: false };
        Self { inner: Mutex::new(inner), counters: OutputCounters::default() }
    }

    /// Returns the error that ended writing. The error is returned only once.
    ///
    /// # Errors
    ///
    /// The first [`WriteError`], if it has not been returned yet.
    pub fn check(&self) -> Result<(), WriteError> {
        self.lock().error.take().map_or(Ok(()), Err)
    }

    /// Returns the number of packets written so far, and the bytes of the file with them; zero once the egress is closed.
    pub fn so_far(&self) -> (u64, Bytes) {
        self.lock().writer.as_ref().map_or((0, Bytes(0)), PacketWriter::so_far)
    }

    /// Writes gathered packets to the file. [`check`](Self::check) returns an error of it.
    pub fn sync(&self) {
        self.lock().sync();
    }

    /// Continues with another writer. Returns the one until now, so that the caller can finish its file. `None` if the
    /// egress was closed before; then `next` is dropped.
    pub fn replace(&self, next: PacketWriter) -> Option<PacketWriter> {
        self.lock().writer.as_mut().map(|writer| std::mem::replace(writer, next))
    }

    /// Stops writing and returns the writer, so that the caller can finish the file. `None` if the
    /// egress was closed before.
    pub fn close(&self) -> Option<PacketWriter> {
        self.lock().writer.take()
    }

    /// Writes forwarded packets.
    pub(super) fn write_all<'a>(&self, packets: impl Iterator<Item = ForwardedPacket<'a>>) {
        let mut inner = self.lock();
        for ForwardedPacket { bytes, descriptor, .. } in packets {
            let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else { continue };
            let (ts, interface) = (Timestamp(descriptor.ts_ns), descriptor.interface);
            let write = |writer: &mut PacketWriter| {
                writer.write(ts, descriptor.wire_len, link_type, interface, bytes)
            };
            inner.write(&self.counters, bytes.len(), write);
        }
    }

    /// Writes an Ethernet frame with time stamp `ts`.
    pub(super) fn write(&self, ts: Timestamp, frame: &[u8]) {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let write = |writer: &mut PacketWriter| writer.write(ts, len, LinkType::Ethernet, 0, frame);
        self.lock().write(&self.counters, frame.len(), write);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn sync(&mut self) {
        if self.has_failed {
            return;
        }
        if let Some(Err(error)) = self.writer.as_mut().map(PacketWriter::sync) {
            (self.error, self.has_failed) = (Some(error), true);
        }
    }

    fn write(
        &mut self,
        counters: &OutputCounters,
        bytes: usize,
        write: impl FnOnce(&mut PacketWriter) -> Result<(), WriteError>,
    ) {
        let Some(writer) = &mut self.writer else {
            counters.closed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if self.has_failed {
            counters.lost(Loss::Refused);
            return;
        }
        match write(writer) {
            Ok(()) => counters.sent(bytes),
            Err(error) => {
                counters.lost(Loss::Refused);
                (self.error, self.has_failed) = (Some(error), true);
            }
        }
    }
}
