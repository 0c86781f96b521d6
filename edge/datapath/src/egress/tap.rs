//! A TAP device of an output channel: a program that knows nothing of weir sends into it, and has what its session reserved.

use super::lane::TxPacketSink;
use super::tally::OutputCounters;
use crate::notice::{ObservedEvent, Tell};
use crate::source::{PacketSource, Poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use weir_abi::flag;
use weir_netio::{Block, LiveError, LiveEvent, LiveOptions, LiveSink, LiveSource, SocketKind};
use weir_units::{Bytes, Nanos};

/// How long to wait for a frame before looking after everything else.
const WAIT: Nanos = Nanos(50 * Nanos::MILLISECOND.0);
/// Memory for its frames.
const RING: Bytes = Bytes(4 << 20);

/// Why there is no such device.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// It cannot be made or opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// There is no thread for it.
    #[error("there is no thread for TAP device {device}: {source}")]
    Thread {
        /// Which.
        device: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The way into a device: what the node writes there, the system receives.
#[derive(Debug)]
pub struct TapEnd {
    sink: Mutex<LiveSink>,
    /// What it took, and what it did not.
    pub tally: OutputCounters,
}

impl TapEnd {
    /// Has the system receive a frame from the device. Never waits.
    pub fn offer(&self, frame: &[u8]) {
        let mut loss = None;
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let done = sink.send_telling(&[frame], |_, why| loss = Some(why));
        drop(sink);
        match loss {
            Some(loss) => self.tally.lost(loss),
            None if done.sent == 1 => self.tally.sent(frame.len()),
            None => _ = self.tally.queue_full.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// A device and the thread that reads it. When this is dropped the device is closed, and is gone if the node has made it.
#[derive(Debug)]
pub struct Tap {
    /// The way into it.
    pub end: Arc<TapEnd>,
    is_over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Opens the device of that name, or makes it. One that was made is gone when it is closed.
///
/// # Errors
///
/// See [`TapError`].
pub fn open_device(device: &str) -> Result<(LiveSource, LiveSink), TapError> {
    let options = LiveOptions { kind: SocketKind::Tap, ring: RING, ..LiveOptions::default() };
    let mut live = LiveSource::open(device, options)?;
    let sink = live.sink()?;
    Ok((live, sink))
}

impl Tap {
    /// Opens the device of that name, or makes it, and has what is sent into it go out.
    ///
    /// # Errors
    ///
    /// See [`TapError`].
    pub fn start(device: &str, outlet: TxPacketSink, tell: Tell) -> Result<Self, TapError> {
        let (live, sink) = open_device(device)?;
        let source = PacketSource::Live(Box::new(live));
        let end = Arc::new(TapEnd { sink: Mutex::new(sink), tally: OutputCounters::default() });
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, theirs) = (Arc::clone(&is_over), Arc::clone(&end));
        let thread = std::thread::Builder::new()
            .name(format!("weir-{device}"))
            .spawn(move || read(source, &theirs, &outlet, &over, &tell))
            .map_err(|source| TapError::Thread { device: device.to_owned(), source })?;
        Ok(Self { end, is_over, thread: Mutex::new(Some(thread)) })
    }
}

impl Tap {
    /// Nothing is read from it any more.
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

fn read(mut source: PacketSource, end: &TapEnd, outlet: &TxPacketSink, is_over: &AtomicBool, tell: &Tell) {
    let mut frame = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        match source.next(WAIT) {
            Ok(Poll::Block(block)) => offer_all(&block, outlet, &mut frame),
            Ok(Poll::Event(event)) => {
                // A device that was made anew is written to anew.
                if matches!(event, LiveEvent::Reopened { .. })
                    && let Ok(Some(sink)) = source.sink()
                {
                    *end.sink.lock().unwrap_or_else(PoisonError::into_inner) = sink;
                }
                tell(ObservedEvent::Interface {
                    interface: source.name().to_owned(),
                    what: event.to_string(),
                });
            }
            Ok(Poll::Quiet(_) | Poll::Full) => {}
            Ok(Poll::End) => return,
            Err(error) => {
                let what = format!("{}: {error}", source.name());
                tell(ObservedEvent::Failed { interface: source.name().to_owned(), what });
                return;
            }
        }
    }
}

fn offer_all(block: &Block, outlet: &TxPacketSink, frame: &mut Vec<u8>) {
    for (place, descriptor) in block.descriptors().iter().enumerate() {
        if descriptor.flags & flag::CUT != 0 {
            outlet.cut();
            continue;
        }
        block.copy_packet(place, frame);
        // What does not go is counted.
        _ = outlet.offer(frame);
    }
}
