//! A disk in memory with failing calls, and loss of unsynced data on a crash.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;
use weir_ledger_files::SegmentStorage;

/// A disk that the ledger and the test share.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Rc<RefCell<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    segments: BTreeMap<u64, File>,
    aside: Vec<u8>,
    calls: u64,
    /// Writing calls fail from this one on, up to but not including the one below.
    fails_from: Option<u64>,
    /// The first call that succeeds again.
    fails_to: u64,
    error: Option<ErrorKind>,
}

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// The contents that survive any crash.
    synced: Vec<u8>,
}

impl MemoryDisk {
    /// A disk with segments of these bytes, numbered from 1.
    pub fn with(segments: &[Vec<u8>]) -> MemoryDisk {
        let file = |bytes: &Vec<u8>| File { bytes: bytes.clone(), synced: bytes.clone() };
        let segments = (1..).zip(segments.iter().map(file)).collect();
        MemoryDisk(Rc::new(RefCell::new(State { segments, ..State::default() })))
    }

    /// Makes `count` writing calls fail from the `from`th one on. A failing write has written a part of its bytes.
    pub fn fail(&self, from: u64, count: u64, error: ErrorKind) {
        let mut state = self.0.borrow_mut();
        (state.calls, state.fails_from, state.fails_to) = (0, Some(from), from.saturating_add(count));
        state.error = Some(error);
    }

    pub fn calls(&self) -> u64 {
        self.0.borrow().calls
    }

    pub fn aside(&self) -> Vec<u8> {
        self.0.borrow().aside.clone()
    }

    /// The disk after a power loss: this many tenths of the unsynced bytes are left; the others are missing, or
    /// zeros.
    pub fn after_crash(&self, tenths: usize, zeros: bool) -> MemoryDisk {
        let mut state = self.0.borrow().clone();
        for file in state.segments.values_mut() {
            let common = file.synced.iter().zip(&file.bytes).take_while(|(a, b)| a == b).count();
            if common < file.synced.len() {
                // Truncated and not synced: the truncation may not have reached the disk.
                file.bytes = file.synced.clone();
                continue;
            }
            let unsynced = file.bytes.len() - common;
            let left = common + unsynced * tenths / 10;
            if zeros {
                file.bytes[left..].fill(0);
            } else {
                file.bytes.truncate(left);
            }
            file.synced = file.bytes.clone();
        }
        (state.calls, state.fails_from) = (0, None);
        MemoryDisk(Rc::new(RefCell::new(state)))
    }

    /// The bytes of all segments.
    pub fn segments_bytes(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.borrow().segments.iter().map(|(number, file)| (*number, file.bytes.clone())).collect()
    }
}

impl State {
    fn call(&mut self) -> io::Result<()> {
        let call = self.calls;
        self.calls += 1;
        match (self.fails_from, self.error) {
            (Some(from), Some(error)) if (from..self.fails_to).contains(&call) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn current(&mut self) -> io::Result<&mut File> {
        self.segments.values_mut().last().ok_or(ErrorKind::NotFound.into())
    }
}

impl SegmentStorage for MemoryDisk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(self.0.borrow().segments.keys().copied().collect())
    }

    fn read(&self, segment: u64) -> io::Result<Box<dyn Read + '_>> {
        let state = self.0.borrow();
        let file = state.segments.get(&segment).ok_or(ErrorKind::NotFound)?;
        Ok(Box::new(io::Cursor::new(file.bytes.clone())))
    }

    fn create(&mut self, segment: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let failed = state.call();
        // A failing call may have created the file anyway.
        let file = state.segments.entry(segment).or_default();
        assert!(file.bytes.is_empty(), "segment {segment} is begun twice");
        failed
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let failed = state.call();
        let file = state.current()?;
        assert_eq!(file.bytes.len() as u64, offset, "a gap, or bytes that were written before");
        let written = if failed.is_err() { bytes.len() * 2 / 3 } else { bytes.len() };
        file.bytes.extend_from_slice(&bytes[..written]);
        failed
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.call()?;
        let len = usize::try_from(len).unwrap();
        let file = state.current()?;
        assert!(len <= file.bytes.len());
        file.bytes.truncate(len);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.call()?;
        let file = state.current()?;
        file.synced = file.bytes.clone();
        Ok(())
    }

    fn put_aside(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.call()?;
        state.aside.extend_from_slice(bytes);
        Ok(())
    }
}
