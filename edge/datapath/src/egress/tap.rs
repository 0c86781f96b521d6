//! A TAP device as a source of an output channel, and as an egress. Frames that an ordinary program sends into the
//! device use the session's reservation.

use super::counters::OutputCounters;
use super::tx_queue::TxPacketSink;
use crate::event::{EventSink, ObservedEvent};
use crate::source::{PacketSource, Poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use weir_abi::flag;
use weir_netio::{Block, LiveError, LiveEvent, LiveOptions, LiveSink, LiveSource, SocketKind};
use weir_units::{Bytes, Nanos};

/// The longest wait for a frame, after which the thread checks whether it is to end.
const WAIT: Nanos = Nanos(50 * Nanos::MILLISECOND.0);
/// The size of the receive ring.
const RING: Bytes = Bytes(4 << 20);

/// The reason why a TAP device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device cannot be created or opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The device's thread could not be started.
    #[error("TAP device {device}: its thread cannot be started: {source}")]
    Thread {
        /// The name of the device.
        device: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The egress into a TAP device: the system receives the frames that are written.
#[derive(Debug)]
pub struct TapEgress {
    sink: Mutex<LiveSink>,
    /// Frames written and lost.
    pub counters: OutputCounters,
}

impl TapEgress {
    /// Writes a frame, which the system receives from the device. Never blocks.
    pub fn offer(&self, frame: &[u8]) {
        let mut loss = None;
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let done = sink.send_reporting(&[frame], |_, why| loss = Some(why));
        drop(sink);
        match loss {
            Some(loss) => self.counters.lost(loss),
            None if done.sent == 1 => self.counters.sent(frame.len()),
            None => _ = self.counters.queue_full.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// A TAP device and the thread that reads it. Dropping the value closes the device; a device that the node created then
/// disappears.
#[derive(Debug)]
pub struct Tap {
    /// The egress into the device.
    pub egress: Arc<TapEgress>,
    is_over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Opens the TAP device of this name, or creates it. A created device disappears when it is closed.
///
/// # Errors
///
/// [`TapError`] if the device cannot be opened.
pub fn open_device(device: &str) -> Result<(LiveSource, LiveSink), TapError> {
    let options = LiveOptions { kind: SocketKind::Tap, ring: RING, ..LiveOptions::default() };
    let mut live = LiveSource::open(device, options)?;
    let sink = live.sink()?;
    Ok((live, sink))
}

impl Tap {
    /// Opens the TAP device of this name, or creates it. The frames that programs send into the device go through the
    /// output channel `tx`.
    ///
    /// # Errors
    ///
    /// [`TapError`] if the device cannot be opened or its thread cannot be started.
    pub fn start(device: &str, tx: TxPacketSink, events: EventSink) -> Result<Self, TapError> {
        let (live, sink) = open_device(device)?;
        let source = PacketSource::Live(Box::new(live));
        let egress = Arc::new(TapEgress { sink: Mutex::new(sink), counters: OutputCounters::default() });
        let is_over = Arc::new(AtomicBool::new(false));
        let (thread_is_over, thread_egress) = (Arc::clone(&is_over), Arc::clone(&egress));
        let thread = std::thread::Builder::new()
            .name(format!("weir-{device}"))
            .spawn(move || read_device(source, &thread_egress, &tx, &thread_is_over, &events))
            .map_err(|source| TapError::Thread { device: device.to_owned(), source })?;
        Ok(Self { egress, is_over, thread: Mutex::new(Some(thread)) })
    }
}

impl Tap {
    /// Stops reading from the device and waits for its thread.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            _ = thread.join();
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the device's thread: sends the frames of the device through the output channel.
fn read_device(
    mut source: PacketSource,
    egress: &TapEgress,
    tx: &TxPacketSink,
    is_over: &AtomicBool,
    events: &EventSink,
) {
    let mut frame = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        match source.next(WAIT) {
            Ok(Poll::Block(block)) => offer_all(&block, tx, &mut frame),
            Ok(Poll::Event(event)) => {
                // A device that was created again needs a new sink.
                if matches!(event, LiveEvent::Reopened { .. })
                    && let Ok(Some(sink)) = source.sink()
                {
                    *egress.sink.lock().unwrap_or_else(PoisonError::into_inner) = sink;
                }
                events(ObservedEvent::Interface {
                    interface: source.name().to_owned(),
                    what: event.to_string(),
                });
            }
            Ok(Poll::Quiet(_) | Poll::Full) => {}
            Ok(Poll::End) => return,
            Err(error) => {
                let what = format!("{}: {error}", source.name());
                events(ObservedEvent::Failed { interface: source.name().to_owned(), what });
                return;
            }
        }
    }
}

fn offer_all(block: &Block, tx: &TxPacketSink, frame: &mut Vec<u8>) {
    for (place, descriptor) in block.descriptors().iter().enumerate() {
        if descriptor.flags & flag::CUT != 0 {
            tx.count_truncated(descriptor.wire_len);
            continue;
        }
        block.copy_packet(place, frame);
        // The channel counts a rejected frame.
        _ = tx.offer(frame);
    }
}
