//! Frames that modules send: into a capture for each output, onto the interface of `--send`, or nowhere. They are counted in any case.

use super::forward::Forwarder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_datapath::egress::{Egress, FileEnd};
use weir_netio::{PacketWriter, WriteError};
use weir_os::private::{self, PrivateFolder};
use weir_units::{Bytes, Timestamp};
use weir_wire::LinkType;
use {
    weir_admission::{Manifest, Name},
    weir_session::Record,
};

/// A module's outputs.
#[derive(Debug)]
pub struct Outputs {
    all: Vec<Output>,
}

#[derive(Debug)]
struct Output {
    sent: OutputSent,
    /// The capture, under the name that it has until it is whole, and its folder.
    file: Option<(Arc<FileEnd>, Arc<PrivateFolder>)>,
    /// The same as a way out.
    egress: Egress,
}

/// What became of an output's frames.
#[derive(Clone, Debug)]
pub struct OutputSent {
    /// The output's name.
    pub name: Name,
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Frames with a time that the capture cannot hold.
    pub late: u64,
    /// The capture that they are in.
    pub path: Option<PathBuf>,
    /// The interface for which they were put into the queue.
    pub interface: Option<String>,
}

impl Outputs {
    /// Opens `dir`/`label`/`OUTPUT.pcap` for each output, in a folder that is there; without one, frames go elsewhere or are only counted.
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
                // A link or another user's file is replaced, not written to.
                Err(WriteError::Create { .. }) => {
                    _ = folder.remove(&part);
                    PacketWriter::create_in(folder, &part)
                }
                writer => writer,
            };
            writer.map(|writer| Some((Arc::new(FileEnd::new(writer)), Arc::clone(folder))))
        };
        let output = |name: &Name| {
            let opened = open(name)?;
            let path = opened.as_ref().map(|(_, folder)| folder.path().join(partial(name)));
            let sent =
                OutputSent { name: name.clone(), frames: 0, bytes: Bytes(0), late: 0, path, interface: None };
            let egress = opened.as_ref().map_or(Egress::Nothing, |(file, _)| Egress::File(Arc::clone(file)));
            Ok(Output { sent, file: opened, egress })
        };
        let all = manifest.outputs.iter().map(|declared| output(&declared.name)).collect::<Result<_, _>>()?;
        Ok(Self { all })
    }

    /// Takes a frame, sent at this time: the record of what was staged for an output.
    pub fn take(&mut self, frame: &Record<'_>, ts: Timestamp, forwarder: Option<&Forwarder>) {
        let Some(output) = self.all.get_mut(usize::from(frame.stream)) else { return };
        output.sent.frames += 1;
        output.sent.bytes.0 += frame.row.len() as u64;
        if let Some(forwarder) = forwarder.filter(|forwarder| forwarder.link_type() == LinkType::Ethernet) {
            forwarder.egress().send_made(frame.row, ts);
            output.sent.interface.get_or_insert_with(|| forwarder.interface().to_owned());
        }
        output.egress.send_made(frame.row, ts);
    }

    /// The first fault of writing.
    pub fn check(&self) -> Result<(), WriteError> {
        self.all.iter().filter_map(|output| output.file.as_ref()).try_for_each(|(file, _)| file.check())
    }

    /// Writes what is left, and gives each capture its name where the run was complete.
    pub fn finish(self, is_complete: bool) -> Result<Vec<OutputSent>, WriteError> {
        let finish = |mut output: Output| {
            let written = output.file.and_then(|(file, folder)| Some((file.close()?, folder)));
            if let Some((writer, folder)) = written {
                // Else another run could take the file between its end and its name.
                let _held = writer.hold();
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
        // Collected before an error is looked at, so that one file's error does not stop the others.
        self.all.into_iter().map(finish).collect::<Vec<_>>().into_iter().collect()
    }
}

/// The name of an output's capture until it is whole.
fn partial(output: &Name) -> String {
    format!("{output}.pcap.part")
}
