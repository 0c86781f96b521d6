//! The sender of a module's output to the records thread. A module never waits for that thread: output beyond the module's
//! share stays with the module, and further output is then lost for that module alone.

use crate::core_thread::task::BatchOutput;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use weir_units::Bytes;

/// The maximum number of bytes of one module that the records thread has not written. A single output may be longer.
const IN_FLIGHT_MAX: Bytes = Bytes(1 << 20);
/// The approximate overhead of an output or of a line of text, in bytes.
const OVERHEAD: u64 = 256;

/// The sender of one module's output to the records thread.
#[derive(Debug)]
pub(crate) struct RecordSender {
    outputs: Sender<BatchOutput>,
    in_flight: Arc<AtomicU64>,
}

/// Counts bytes as in flight until it is dropped.
#[derive(Debug)]
pub struct BytesInFlight {
    counter: Arc<AtomicU64>,
    bytes: u64,
}

impl BytesInFlight {
    /// Counts these bytes.
    pub(crate) fn new(counter: &Arc<AtomicU64>, bytes: u64) -> Self {
        counter.fetch_add(bytes, Ordering::Relaxed);
        Self { counter: Arc::clone(counter), bytes }
    }
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl RecordSender {
    /// Creates the sender of a module with nothing in flight.
    pub(crate) fn new(outputs: Sender<BatchOutput>) -> Self {
        Self { outputs, in_flight: Arc::default() }
    }

    /// Sends an output. Returns the output if the module has too many bytes in flight, or the records thread has ended.
    pub(crate) fn offer(&self, mut output: BatchOutput) -> Result<(), BatchOutput> {
        let text = output.log.iter().map(|line| line.text.len()).chain(output.faults.iter().map(String::len));
        let bytes =
            output.records.bytes() as u64 + text.map(|len| len as u64 + OVERHEAD).sum::<u64>() + OVERHEAD;
        // Only the module's own task adds to the count, so the check and the addition need no lock.
        let before = self.in_flight.load(Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > IN_FLIGHT_MAX.0 {
            return Err(output);
        }
        output.in_flight = Some(BytesInFlight::new(&self.in_flight, bytes));
        self.outputs.send(output).map_err(|back| back.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use weir_session::{RecordOrder, Records};

    fn output(bytes: usize) -> BatchOutput {
        let mut records = Records::default();
        records.begin(RecordOrder::packet(0), 0, &vec![0; bytes]);
        BatchOutput { module: 0, records, log: Vec::new(), faults: Vec::new(), end: None, in_flight: None }
    }

    #[test]
    fn a_module_fills_its_own_share_and_no_other() {
        let (sender, waiting) = channel();
        let (flood, modest) = (RecordSender::new(sender.clone()), RecordSender::new(sender));
        let taken = (0..100_000).take_while(|_| flood.offer(output(100)).is_ok()).count();
        assert!((1000..10_000).contains(&taken), "{taken}");
        assert!(modest.offer(output(100)).is_ok());
        // Written output frees the share. A long output is sent if nothing else is in flight.
        assert!(flood.offer(output(8 << 20)).is_err());
        drop(waiting.try_iter().collect::<Vec<_>>());
        assert!(flood.offer(output(8 << 20)).is_ok());
        assert!(flood.offer(output(1)).is_err());
        drop(waiting);
        assert_eq!(modest.offer(output(1)).unwrap_err().records.len(), 1);
        assert_eq!(modest.in_flight.load(Ordering::Relaxed), 0);
    }
}
