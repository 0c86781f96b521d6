//! Frames that modules send: written to a capture for each output, sent on the interface of `--send`, or only counted.

use super::forward::Forwarder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_datapath::egress::{Egress, FileEgress};
use weir_netio::{PacketWriter, WriteError};
use weir_os::private::{self, PrivateFolder};
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
}

#[derive(Debug)]
struct Output {
    sent: OutputSent,
    /// The capture, under its temporary name, and its folder.
    file: Option<(Arc<FileEgress>, Arc<PrivateFolder>)>,
    /// The capture as an egress; `Nothing` without one.
    egress: Egress,
}

/// Statistics of an output's frames.
#[derive(Clone, Debug)]
pub struct OutputSent {
    /// The output's name.
    pub name: Name,
    /// Number of frames.
    pub frames: u64,
    /// Total bytes of the frames.
    pub bytes: Bytes,
    /// Frames whose time the capture cannot hold.
    pub late: u64,
    /// The capture that holds the frames.
    pub path: Option<PathBuf>,
    /// The interface whose queue the frames were put into.
    pub interface: Option<String>,
}

impl Outputs {
    /// Opens `dir`/`label`/`OUTPUT.pcap` for each output. The folder `dir` must exist. Without `dir`, no captures are written.
    pub fn create(dir: Option<&Path>, label: &str, manifest: &Manifest) -> Result<Self, WriteError> {
        let folder = match dir.filter(|_| !manifest.outputs.is_empty()) {
            Some(dir) => Some(Arc::new(
                private::make_inside(dir, label)
                    .map_err(|error| WriteError::Create { file: dir.join(label), error: error.into() })?,
            )),
            None => None,
        };
        let open = |name: &Name| {
            let Some(folder) = &folder else { return Ok(None) };
            let part = partial(name);
            let writer = match PacketWriter::create_in(folder, &part) {
                // A symbolic link or another user's file is replaced, not written to.
                Err(WriteError::Create { .. }) => {
                    _ = folder.remove(&part);
                    PacketWriter::create_in(folder, &part)
                }
                writer => writer,
            };
            writer.map(|writer| Some((Arc::new(FileEgress::new(writer)), Arc::clone(folder))))
        };
        let output = |name: &Name| {
            let opened = open(name)?;
            let path = opened.as_ref().map(|(_, folder)| folder.path().join(partial(name)));
            let sent =
                OutputSent { name: name.clone(), frames: 0, bytes: Bytes(0), late: 0, path, interface: None };
            let egress = opened.as_ref().map_or(Egress::Nothing, |(file, _)| Egress::File(Arc::clone(file)));
            Ok(Output { sent, file: opened, egress })
        };
        let outputs =
            manifest.outputs.iter().map(|declared| output(&declared.name)).collect::<Result<_, _>>()?;
        Ok(Self { outputs })
    }

    /// Sends a frame that a module staged for an output, with the time `ts`.
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
        self.outputs.iter().filter_map(|output| output.file.as_ref()).try_for_each(|(file, _)| file.check())
    }

    /// Flushes and closes the captures. Renames them from their temporary names if the run was complete.
    pub fn finish(self, is_complete: bool) -> Result<Vec<OutputSent>, WriteError> {
        let finish = |mut output: Output| {
            let written = output.file.and_then(|(file, folder)| Some((file.close()?, folder)));
            if let Some((writer, folder)) = written {
                // The lock keeps other runs from taking the file between close and rename.
                let _lock = writer.hold();
                output.sent.late = writer.finish()?.late;
                if is_complete {
                    let name = format!("{}.pcap", output.sent.name);
                    let path = folder.path().join(&name);
                    let renamed = folder.rename(&partial(&output.sent.name), &name);
                    renamed.map_err(|error| WriteError::Create { file: path.clone(), error })?;
                    output.sent.path = Some(path);
                }
            }
            Ok(output.sent)
        };
        // All files are finished before the first error is returned.
        self.outputs.into_iter().map(finish).collect::<Vec<_>>().into_iter().collect()
    }
}

/// The temporary name of an output's capture.
fn partial(output: &Name) -> String {
    format!("{output}.pcap.part")
}
