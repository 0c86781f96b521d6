//! One file: encoded rows, which are written in large pieces.

use crate::{ExportError, ExportFormat, ExportStream, OBSERVATION_DOMAIN};
use std::io::{self, Write};
use std::path::PathBuf;
use weir_exports::ipfix::{IpfixMessages, MESSAGE_BYTES_MAX};
use weir_exports::{EveRows, ZeekLog};
use weir_os::private::NamedOutput;
use weir_session::Record;
use weir_units::Timestamp;

/// The bytes of encoded rows that are written at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A file during writing.
#[derive(Debug)]
pub(crate) struct ExportFile {
    output: NamedOutput,
    writer: Writer,
    /// True once the file's header is encoded.
    has_begun: bool,
    /// Encoded rows that are not written yet.
    buffer: Vec<u8>,
    /// Bytes in the file.
    bytes: u64,
    /// Rows that were encoded, and those of them that are in the file.
    rows: u64,
    written: u64,
    /// True once a write has failed. Later rows are lost.
    has_failed: bool,
}

#[derive(Debug)]
enum Writer {
    /// One writer for each stream of the file.
    Zeek(Vec<ZeekLog>),
    Eve(Vec<EveRows>),
    Ipfix(Box<IpfixMessages>),
}

/// The result of a file.
#[derive(Debug)]
pub(crate) struct EndedExport {
    /// Rows in the file.
    pub(crate) rows: u64,
    pub(crate) path: PathBuf,
    /// Texts that were cut, because a message of IPFIX has no room for them.
    pub(crate) cut: u64,
    pub(crate) error: Option<ExportError>,
}

impl ExportFile {
    /// Begins a file for these streams. `name` is the name of the log.
    pub(crate) fn new(
        format: ExportFormat,
        name: &str,
        streams: &[ExportStream<'_>],
        output: NamedOutput,
    ) -> Self {
        let writer = match format {
            ExportFormat::Zeek => {
                let logs: Vec<ZeekLog> =
                    streams.iter().map(|stream| ZeekLog::new(name, stream.label, stream.declared)).collect();
                Writer::Zeek(logs)
            }
            ExportFormat::Eve => Writer::Eve(
                streams.iter().map(|stream| EveRows::new(stream.label, stream.declared)).collect(),
            ),
            ExportFormat::Ipfix => {
                let declared = streams.iter().map(|stream| stream.declared);
                let messages = IpfixMessages::new(declared, OBSERVATION_DOMAIN, MESSAGE_BYTES_MAX);
                Writer::Ipfix(Box::new(messages))
            }
        };
        Self {
            output,
            writer,
            has_begun: false,
            buffer: Vec::new(),
            bytes: 0,
            rows: 0,
            written: 0,
            has_failed: false,
        }
    }

    /// Encodes the header of the file before the first row, with the time at which this happens.
    fn begin(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        match &self.writer {
            Writer::Zeek(logs) => logs.iter().take(1).for_each(|log| log.push_header(&mut self.buffer, now)),
            Writer::Eve(_) => {}
            Writer::Ipfix(messages) => {
                messages.templates(now).iter().for_each(|message| self.buffer.extend_from_slice(message));
            }
        }
    }

    /// Appends a row of the stream with this index in the file.
    pub(crate) fn push(
        &mut self,
        stream: usize,
        record: &Record<'_>,
        now: Timestamp,
    ) -> Result<(), ExportError> {
        if self.has_failed {
            return Ok(());
        }
        self.begin(now);
        match &mut self.writer {
            Writer::Zeek(logs) => {
                logs.iter().skip(stream).take(1).for_each(|log| log.push(&mut self.buffer, record))
            }
            Writer::Eve(rows) => {
                rows.iter().skip(stream).take(1).for_each(|rows| rows.push(&mut self.buffer, record))
            }
            Writer::Ipfix(messages) => {
                let full = messages.push(stream, record, now);
                full.iter().for_each(|message| self.buffer.extend_from_slice(message));
            }
        }
        self.rows += 1;
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.flush(now)
    }

    /// Writes all rows so far to the file.
    pub(crate) fn flush(&mut self, now: Timestamp) -> Result<(), ExportError> {
        if self.has_failed {
            return Ok(());
        }
        self.begin(now);
        if let Writer::Ipfix(messages) = &mut self.writer {
            messages.flush(now).iter().for_each(|message| self.buffer.extend_from_slice(message));
        }
        self.write_buffer().map_err(|source| {
            self.has_failed = true;
            // The file ends with a complete row. If it cannot be cut, readers find one broken line at its end.
            _ = self.output.open().and_then(|file| file.set_len(self.bytes));
            ExportError::Write { path: self.output.present_path(), kept: self.written, source }
        })
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.output.open()?.write_all(&self.buffer)?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        self.written = self.rows;
        Ok(())
    }

    /// Returns the number of bytes in the file and in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.saturating_add(self.buffer.len() as u64)
    }

    /// Writes the remaining rows. A complete file gets its name; another one keeps `.part`.
    pub(crate) fn end(mut self, is_complete: bool, now: Timestamp) -> EndedExport {
        let mut error = self.flush(now).err();
        let is_whole = is_complete && !self.has_failed;
        if let (Writer::Zeek(logs), true) = (&self.writer, is_whole)
            && let Some(log) = logs.first()
        {
            log.push_footer(&mut self.buffer, now);
            error = self.flush(now).err();
        }
        if is_whole && error.is_none() && !self.output.is_in_place() {
            // A file under its own name is complete, also after a crash of the machine.
            let synced = self.output.open().and_then(std::fs::File::sync_data);
            let path = self.output.present_path();
            error = synced.map_err(|source| ExportError::Write { path, kept: self.written, source }).err();
        }
        if is_whole && error.is_none() {
            let renamed = self.output.complete();
            error = renamed
                .map_err(|source| ExportError::Rename { path: self.output.present_path(), source })
                .err();
        }
        let path = if is_whole && error.is_none() {
            self.output.path().to_owned()
        } else {
            self.output.present_path()
        };
        let cut = if let Writer::Ipfix(messages) = &self.writer { messages.cut() } else { 0 };
        EndedExport { rows: self.written, path, cut, error }
    }
}
