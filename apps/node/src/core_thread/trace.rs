//! A record of what a core or a link was told and what it decided, from which the same decisions can be made again (`weir_sched::cpu::trace::replay`,
//! `weir_sched::link::Replay`).
//!
//! Neither waits for a disk: a thread of the record's own writes it. Where that does not keep up, or there is more than there is to be, the record ends
//! there: what is in it can be replayed all the same.

use crate::server::log::{say, warn};
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
use weir_units::Shown as _;

/// Events that are handed over together, and how often such portions wait to be written, at most.
const PORTION: usize = 4096;
const PORTIONS: usize = 64;
/// Events of a record at most: about half a gigabyte.
const EVENTS_MAX: usize = 16 << 20;

/// A record that has been begun.
#[derive(Debug)]
pub struct Trace<E> {
    path: PathBuf,
    portions: Option<SyncSender<Vec<E>>>,
    events: Vec<E>,
    count: usize,
    thread: Option<JoinHandle<()>>,
}

/// Takes the events of a core.
pub type Recorder = Box<dyn FnMut(TraceEvent)>;

/// A record as long as it goes on, for the core's thread.
pub type Shared = Rc<RefCell<Option<Trace<TraceEvent>>>>;

/// What takes the events of a core; without a record it does nothing with them.
pub fn recorder(trace: &Shared) -> Recorder {
    let trace = Rc::clone(trace);
    Box::new(move |event| {
        if let Some(trace) = &mut *trace.borrow_mut() {
            trace.add(event);
        }
    })
}

impl<E: Display + Send + 'static> Trace<E> {
    /// Begins `folder`/`name`.trace anew, with its first line. Only its owner reads it.
    ///
    /// # Errors
    ///
    /// It cannot be created, or there is no thread for it.
    pub fn create(folder: &Path, name: &str, head: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.trace"));
        let file = PrivateFolder::make(folder)?.create(&format!("{name}.trace"))?;
        file.set_len(0)?;
        let mut file = BufWriter::new(file);
        writeln!(file, "{head}")?;
        let (portions, waiting) = sync_channel(PORTIONS);
        let named = path.clone();
        let write = move || {
            if let Err(error) = write(&waiting, file) {
                warn(&format_args!("{}: the record ends here: {error}", named.shown()));
            }
        };
        let thread = std::thread::Builder::new().name("weir-trace".to_owned()).spawn(write)?;
        let events = Vec::with_capacity(PORTION);
        Ok(Self { path, portions: Some(portions), events, count: 0, thread: Some(thread) })
    }

    /// Adds an event: a line.
    pub fn add(&mut self, event: E) {
        let Some(portions) = &self.portions else { return };
        self.events.push(event);
        if self.events.len() < PORTION {
            return;
        }
        self.count += PORTION;
        let portion = std::mem::replace(&mut self.events, Vec::with_capacity(PORTION));
        if portions.try_send(portion).is_err() || self.count >= EVENTS_MAX {
            say(&format!("{}: the record ends after {} events", self.path.shown(), self.count));
            self.portions = None;
        }
    }
}

impl<E> Drop for Trace<E> {
    fn drop(&mut self) {
        if let Some(portions) = self.portions.take() {
            // Nothing waits for the core any more, so it may wait.
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
    use weir_sched::cpu::trace::{Traced, head, replay};
    use weir_sched::cpu::{CoreConfig, CpuTerms, Debt, Placement, RunOutcome, Weight};
    use weir_units::Nanos;

    #[test]
    fn what_is_recorded_is_all_there_and_replays() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("traces");
        let config = CoreConfig::default();
        let trace = Trace::create(&folder, "core-3", &head(&config)).unwrap();
        let trace = Rc::new(RefCell::new(Some(trace)));
        let mut core = Traced::new(config, recorder(&trace));
        let share = Placement::BestEffort(Weight::USUAL);
        let vp = core.create(CpuTerms { share, overrun: Nanos(0) }, Nanos(0)).unwrap();
        core.wake(vp, Nanos(0)).unwrap();
        for n in 0..3000 {
            core.next(Nanos(n * 10));
            core.charge(Nanos(7), Nanos(n * 10 + 7), RunOutcome::Ready).unwrap();
        }
        core.debit(vp, Nanos(5), Debt::Imposed, Nanos(40_000)).unwrap();
        core.promised(Nanos(50_000));
        let totals = core.core().totals();
        drop(trace.borrow_mut().take());
        core.next(Nanos(60_000));
        let text = std::fs::read_to_string(folder.join("core-3.trace")).unwrap();
        assert_eq!(text.lines().count(), 1 + 2 + 6000 + 2);
        assert_eq!(replay(text.lines()).unwrap().totals(), totals);
    }
}
