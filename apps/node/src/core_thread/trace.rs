//! Trace files: the inputs and decisions of a core's or a link's scheduler, for replay
//! (`weir_sched::cpu::trace::replay`, `weir_sched::link::Replay`).
//!
//! A separate thread writes the file, so that no scheduler waits for a disk. The trace ends when that thread falls
//! behind, or at its maximum length. The part before the end can be replayed.

use crate::log::{info, warn};
use std::cell::RefCell;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use weir_os::private::PrivateFolder;
use weir_sched::cpu::trace::TraceEvent;
use weir_units::Escape as _;

/// Number of events that are handed to the writing thread together.
const PORTION_EVENTS: usize = 4096;
/// Maximum number of portions that wait to be written.
const PORTIONS_MAX: usize = 64;
/// Maximum number of events in a trace: about half a gigabyte.
const EVENTS_MAX: usize = 16 << 20;

/// A trace that is being written.
#[derive(Debug)]
pub struct Trace<E> {
    path: PathBuf,
    portions: Option<SyncSender<Vec<E>>>,
    events: Vec<E>,
    count: usize,
    thread: Option<JoinHandle<()>>,
}

/// A function that records an event of a core's scheduler.
pub type Recorder = Box<dyn FnMut(TraceEvent)>;

/// The present trace of a core thread, if there is one.
pub type SharedTrace = Rc<RefCell<Option<Trace<TraceEvent>>>>;

/// Returns a function that adds events to the trace, or drops them if there is no trace.
pub fn recorder(trace: &SharedTrace) -> Recorder {
    let trace = Rc::clone(trace);
    Box::new(move |event| {
        if let Some(trace) = &mut *trace.borrow_mut() {
            trace.add(event);
        }
    })
}

impl<E: Display + Send + 'static> Trace<E> {
    /// Creates or truncates `folder`/`name`.trace, and writes its first line. Only the owner can read the file.
    ///
    /// # Errors
    ///
    /// The file cannot be created, or its thread cannot be started.
    pub fn create(folder: &Path, name: &str, head: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.trace"));
        let file = PrivateFolder::make(folder)?.create(&format!("{name}.trace"))?;
        file.set_len(0)?;
        let mut file = BufWriter::new(file);
        writeln!(file, "{head}")?;
        let (portions, waiting) = sync_channel(PORTIONS_MAX);
        let path_of_thread = path.clone();
        let write = move || {
            if let Err(error) = write(&waiting, file) {
                warn(&format_args!("{}: the trace ends here: {error}", path_of_thread.escaped()));
            }
        };
        let thread = std::thread::Builder::new().name("weir-trace".to_owned()).spawn(write)?;
        let events = Vec::with_capacity(PORTION_EVENTS);
        Ok(Self { path, portions: Some(portions), events, count: 0, thread: Some(thread) })
    }

    /// Adds an event, which is one line of the file.
    pub fn add(&mut self, event: E) {
        let Some(portions) = &self.portions else { return };
        self.events.push(event);
        if self.events.len() < PORTION_EVENTS {
            return;
        }
        let portion = std::mem::replace(&mut self.events, Vec::with_capacity(PORTION_EVENTS));
        let is_sent = portions.try_send(portion).is_ok();
        if is_sent {
            self.count += PORTION_EVENTS;
        }
        if !is_sent || self.count >= EVENTS_MAX {
            info(&format!("{}: the trace ends after {} events", self.path.escaped(), self.count));
            self.portions = None;
        }
    }
}

impl<E> Drop for Trace<E> {
    fn drop(&mut self) {
        if let Some(portions) = self.portions.take() {
            // A trace is dropped after its scheduler has ended, or while the node stops. A blocking send then delays no
            // module.
            _ = portions.send(std::mem::take(&mut self.events));
        }
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn write(waiting: &Receiver<Vec<impl Display>>, mut file: BufWriter<File>) -> io::Result<()> {
    for portion in waiting {
        for event in portion {
            writeln!(file, "{event}")?;
        }
        file.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sched::cpu::trace::{TracedCore, first_line, replay};
    use weir_sched::cpu::{CoreConfig, CpuAllocation, CpuTerms, DebitKind, RunOutcome, Weight};
    use weir_units::Nanos;

    #[test]
    fn a_trace_is_complete_and_can_be_replayed() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("traces");
        let config = CoreConfig::default();
        let trace = Trace::create(&folder, "core-3", &first_line(&config)).unwrap();
        let trace = Rc::new(RefCell::new(Some(trace)));
        let mut core = TracedCore::new(config, recorder(&trace));
        let share = CpuAllocation::BestEffort(Weight::USUAL);
        let vcpu_id = core.create(CpuTerms { share, overrun: Nanos(0) }, Nanos(0)).unwrap();
        core.wake(vcpu_id, Nanos(0)).unwrap();
        for n in 0..3000 {
            core.next(Nanos(n * 10));
            core.charge(Nanos(7), Nanos(n * 10 + 7), RunOutcome::Ready).unwrap();
        }
        core.debit(vcpu_id, Nanos(5), DebitKind::Unrequested, Nanos(40_000)).unwrap();
        core.reserved_share(Nanos(50_000));
        let totals = core.core().totals();
        drop(trace.borrow_mut().take());
        core.next(Nanos(60_000));
        let text = std::fs::read_to_string(folder.join("core-3.trace")).unwrap();
        assert_eq!(text.lines().count(), 1 + 2 + 6000 + 2);
        assert_eq!(replay(text.lines()).unwrap().totals(), totals);
    }
}
