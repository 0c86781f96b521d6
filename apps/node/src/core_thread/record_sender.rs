//! The way from modules to the thread that writes their records. Nobody waits on it: what does not fit stays with the module, or is lost, for itself alone.

use crate::guest::BatchOutput;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use weir_units::Bytes;

/// What one module has on its way, at most; though something always, however long.
const UNDER_WAY: Bytes = Bytes(1 << 20);
/// What an output takes beside its bytes, about.
const EACH: u64 = 256;

/// A module's end of it.
#[derive(Debug)]
pub(crate) struct RecordSender {
    outputs: Sender<BatchOutput>,
    under_way: Arc<AtomicU64>,
}

/// Counts so many bytes as under way for as long as it is there.
#[derive(Debug)]
pub struct BytesInFlight {
    of: Arc<AtomicU64>,
    bytes: u64,
}

impl BytesInFlight {
    /// Adds them.
    pub(crate) fn on(of: &Arc<AtomicU64>, bytes: u64) -> Self {
        of.fetch_add(bytes, Ordering::Relaxed);
        Self { of: Arc::clone(of), bytes }
    }
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl RecordSender {
    /// For a module that has nothing under way.
    pub(crate) fn new(outputs: Sender<BatchOutput>) -> Self {
        Self { outputs, under_way: Arc::default() }
    }

    /// Gives an output on its way, or back where the module has too much there, or nobody writes any more.
    pub(crate) fn offer(&self, mut output: BatchOutput) -> Result<(), BatchOutput> {
        let text = output.log.iter().map(|line| line.text.len()).chain(output.faults.iter().map(String::len));
        let bytes = output.records.bytes() as u64 + text.map(|len| len as u64 + EACH).sum::<u64>() + EACH;
        // Only this module adds to it.
        let before = self.under_way.load(Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > UNDER_WAY.0 {
            return Err(output);
        }
        output.load = Some(BytesInFlight::on(&self.under_way, bytes));
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
        BatchOutput { module: 0, records, log: Vec::new(), faults: Vec::new(), end: None, load: None }
    }

    #[test]
    fn a_module_fills_its_own_way_and_nobody_elses() {
        let (sender, waiting) = channel();
        let (flood, modest) = (RecordSender::new(sender.clone()), RecordSender::new(sender));
        let taken = (0..100_000).take_while(|_| flood.offer(output(100)).is_ok()).count();
        assert!((1000..10_000).contains(&taken), "{taken}");
        assert!(modest.offer(output(100)).is_ok());
        // What is written makes room, and what is long goes when there is nothing else.
        assert!(flood.offer(output(8 << 20)).is_err());
        drop(waiting.try_iter().collect::<Vec<_>>());
        assert!(flood.offer(output(8 << 20)).is_ok());
        assert!(flood.offer(output(1)).is_err());
        drop(waiting);
        assert_eq!(modest.offer(output(1)).unwrap_err().records.len(), 1);
        assert_eq!(modest.under_way.load(Ordering::Relaxed), 0);
    }
}
