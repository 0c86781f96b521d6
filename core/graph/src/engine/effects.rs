//! The parts of a system that a graph needs, as traits: so elements are pure, and tests need no system.

use super::packet::SourceBytes;
use std::ops::Range;
use std::rc::Rc;
use weir_units::Timestamp;

/// A packet of a capture.
pub struct CapturedPacket {
    /// The bytes of which the packet's are a part.
    pub source: Rc<dyn SourceBytes>,
    /// The captured bytes.
    pub range: Range<usize>,
    /// The length on the wire.
    pub wire_length: u32,
    /// The time stamp.
    pub time: Timestamp,
}

/// A capture that is read.
pub trait CaptureReader {
    /// Returns the link type, as in a pcap file: 1 for Ethernet.
    fn link_type(&self) -> u32;

    /// Returns the next packet; `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails with a reason for a capture that cannot be read further.
    fn next(&mut self) -> Result<Option<CapturedPacket>, String>;
}

/// A capture that is written.
pub trait CaptureWriter {
    /// Adds a packet.
    ///
    /// # Errors
    ///
    /// Fails with a reason if it cannot be written.
    fn write(&mut self, time: Timestamp, bytes: &[u8], wire_length: u32) -> Result<(), String>;

    /// Completes the file.
    ///
    /// # Errors
    ///
    /// Fails with a reason if it cannot be written.
    fn finish(&mut self) -> Result<(), String>;
}

/// A terminal or a file for texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOutput {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// The system of a graph.
pub trait System {
    /// Opens a capture for reading.
    ///
    /// # Errors
    ///
    /// Fails with a reason.
    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String>;

    /// Creates a capture, with a link type and the most bytes of a packet.
    ///
    /// # Errors
    ///
    /// Fails with a reason.
    fn create_capture(
        &mut self,
        name: &str,
        link_type: u32,
        snap: u32,
    ) -> Result<Box<dyn CaptureWriter>, String>;

    /// Reads a file as a whole.
    ///
    /// # Errors
    ///
    /// Fails with a reason.
    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String>;

    /// Writes bytes to a file: to its end, or as its first bytes.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no such files.
    fn write_file(&mut self, name: &str, bytes: &[u8], is_new: bool) -> Result<(), String> {
        let _ = (bytes, is_new);
        Err(format!("{name}: files cannot be written here"))
    }

    /// Writes a text.
    fn write_text(&mut self, output: TextOutput, text: &str);

    /// Returns the number of the process; 0 if there is none.
    fn process_id(&self) -> u32 {
        0
    }

    /// Sends a signal to a process, or to a group of processes for a negative number.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no processes.
    fn send_signal(&mut self, process: i32, signal: i32) -> Result<(), String> {
        let _ = (process, signal);
        Err("there are no processes here".to_owned())
    }
}

/// A system whose captures are empty, and that keeps nothing: for checks, and tests without files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl CaptureReader for NoFiles {
    fn link_type(&self) -> u32 {
        1
    }

    fn next(&mut self) -> Result<Option<CapturedPacket>, String> {
        Ok(None)
    }
}

impl CaptureWriter for NoFiles {
    fn write(&mut self, _: Timestamp, _: &[u8], _: u32) -> Result<(), String> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl System for NoFiles {
    fn open_capture(&mut self, _: &str) -> Result<Box<dyn CaptureReader>, String> {
        Ok(Box::new(NoFiles))
    }

    fn create_capture(&mut self, _: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Ok(Box::new(NoFiles))
    }

    fn read_file(&mut self, _: &str) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn write_text(&mut self, _: TextOutput, _: &str) {}
}
