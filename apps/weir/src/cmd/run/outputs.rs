//! Frames that modules send. They are written to a capture for each output, sent on the interface of `--send`, or only
//! counted.

use super::forward::Forwarder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_datapath::egress::{Egress, FileEgress};
use weir_netio::{PacketWriter, WriteError, WriteOutcome};
use weir_os::private;
use weir_units::{Bytes, Timestamp};
use weir_wire::LinkType;
use {
    weir_admission::{Manifest, Name},
    weir_session::Record,
};

/// The outputs of one module.
#[derive(Debug)]
pub struct Outputs {
    outputs: Vec<Output>,
    /// The statistics of captures that are complete.
    complete: Vec<OutputSent>,
}

#[derive(Debug)]
struct Output {
    sent: OutputSent,
    /// The capture, if one is written.
    file: Option<Arc<FileEgress>>,
    /// The capture as an egress; `Nothing` without one.
    egress: Egress,
}

/// Statistics of an output's frames.
#[derive(Clone, Debug)]
pub struct OutputSent {
    /// The output's name.
    pub name: Name,
    /// The number of frames in the capture; without a capture, of frames that the module sent.
    pub frames: u64,
    /// Total bytes of these frames.
    pub bytes: Bytes,
    /// The number of frames with a time after 2106-02-07T06:28:15Z, which a pcap file cannot express. The capture has them,
    /// with its last second.
    pub late: u64,
    /// The capture that holds the frames. Its name ends with `.part` unless it is complete.
    pub path: Option<PathBuf>,
    /// The interface whose queue the frames were put into.
    pub interface: Option<String>,
}

impl Outputs {
    /// Opens `dir`/`folder`/`OUTPUT.pcap` for each output. The folder `dir` must exist. Without `dir`, no captures are written.
    pub fn create(dir: Option<&Path>, folder: &str, manifest: &Manifest) -> Result<Self, WriteError> {
        let names: Vec<&Name> = manifest.outputs.iter().map(|declared| &declared.name).collect();
        let writers = writers(dir, folder, &names)?;
        let output = |(name, writer): (&Name, Option<PacketWriter>)| {
            let file = writer.map(|writer| Arc::new(FileEgress::new(writer)));
            let egress = file.clone().map_or(Egress::Nothing, Egress::File);
            Output { sent: OutputSent::new(name), file, egress }
        };
        Ok(Self { outputs: names.into_iter().zip(writers).map(output).collect(), complete: Vec::new() })
    }

    /// Sends a frame that a module staged for an output, with the time `ts`. A frame is staged as a record: `stream` is the
    /// index of the output in the manifest, and `row` has the bytes of the frame.
    pub fn send(&mut self, frame: &Record<'_>, ts: Timestamp, forwarder: Option<&Forwarder>) {
        let Some(output) = self.outputs.get_mut(usize::from(frame.stream)) else { return };
        output.sent.frames += 1;
        output.sent.bytes.0 += frame.row.len() as u64;
        if let Some(forwarder) = forwarder.filter(|forwarder| forwarder.link_type() == LinkType::Ethernet) {
            forwarder.egress().send_from_module(frame.row, ts);
            output.sent.interface.get_or_insert_with(|| forwarder.interface().to_owned());
        }
        output.egress.send_from_module(frame.row, ts);
    }

    /// Returns the first write error.
    pub fn check(&self) -> Result<(), WriteError> {
        self.outputs.iter().filter_map(|output| output.file.as_ref()).try_for_each(|file| file.check())
    }

    /// Writes gathered frames, so that they survive the end of this process.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.outputs.iter().filter_map(|output| output.file.as_ref()).for_each(|file| file.sync());
        self.check()
    }

    /// Completes the captures, and begins new ones in the folder `dir`/`folder`.
    pub fn rotate(&mut self, dir: Option<&Path>, folder: &str) -> Result<(), WriteError> {
        let names: Vec<&Name> = self.outputs.iter().map(|output| &output.sent.name).collect();
        let next = writers(dir, folder, &names)?;
        let mut first_error = None;
        for (output, next) in self.outputs.iter_mut().zip(next) {
            let full = output.file.as_ref().zip(next).and_then(|(file, next)| file.replace(next));
            if let Some(full) = full {
                let next = OutputSent::new(&output.sent.name);
                let sent = std::mem::replace(&mut output.sent, next);
                let (sent, error) = sent.of_file(full, true);
                self.complete.push(sent);
                first_error = first_error.or(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Ends the captures. They get their names if the run was complete.
    pub fn end(self, is_complete: bool) -> (Vec<OutputSent>, Vec<WriteError>) {
        let (mut all, mut errors) = (self.complete, Vec::new());
        for output in self.outputs {
            let (sent, error) = match output.file.and_then(|file| file.close()) {
                Some(writer) => output.sent.of_file(writer, is_complete),
                None => (output.sent, None),
            };
            all.push(sent);
            errors.extend(error);
        }
        (all, errors)
    }
}

impl OutputSent {
    fn new(name: &Name) -> Self {
        Self { name: name.clone(), frames: 0, bytes: Bytes(0), late: 0, path: None, interface: None }
    }

    /// Ends the capture of these frames. Returns the statistics of the frames that the capture has, and the error if not all
    /// were written.
    fn of_file(self, writer: PacketWriter, is_complete: bool) -> (Self, Option<WriteError>) {
        let WriteOutcome { summary, error } = writer.end(is_complete);
        let sent = Self {
            frames: summary.packets,
            bytes: summary.captured,
            late: summary.late,
            path: Some(summary.path),
            ..self
        };
        (sent, error)
    }
}

/// Opens a capture for each of these outputs; `None` for each without `dir`.
fn writers(
    dir: Option<&Path>,
    folder: &str,
    outputs: &[&Name],
) -> Result<Vec<Option<PacketWriter>>, WriteError> {
    let Some(dir) = dir.filter(|_| !outputs.is_empty()) else {
        return Ok(outputs.iter().map(|_| None).collect());
    };
    let opened = private::make_inside(dir, folder)
        .map_err(|error| WriteError::Create { file: dir.join(folder), error: error.into() })?;
    let folder = Arc::new(opened);
    outputs.iter().map(|name| PacketWriter::create_in(&folder, &format!("{name}.pcap")).map(Some)).collect()
}
