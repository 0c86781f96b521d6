//! The system of graphs: captures that are read and written, whole files, devices and the terminal.

use crate::receive::InterfaceReceiver;
use crate::send::InterfaceSender;
use crate::waiter::DeviceWaiter;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::rc::Rc;
use weir_graph::engine::{
    CaptureReader, CaptureWriter, CapturedPacket, DeviceOptions, ReceivingDevice, SendingDevice, System,
    TextOutput,
};
use weir_netio::{Block, Capture, CaptureInput, CaptureNext, PacketWriter};
use weir_units::{Escape as _, Nanos, Timestamp};
use weir_wire::LinkType;

/// The most bytes of a file that an element reads as a whole.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The files, the devices and the terminal of a program.
#[derive(Debug, Default)]
pub struct GraphSystem {
    waiter: DeviceWaiter,
}

/// A capture that is read, with one block of it in memory.
///
/// Elements read bytes several times, and the bytes of a mapped file can change meanwhile. So the packets of a block are
/// copied once, all together.
struct BlockReader {
    capture: Capture,
    bytes: Rc<Vec<u8>>,
    packets: std::vec::IntoIter<Place>,
    link_type: u32,
}

/// A packet in the bytes of a block.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    wire_length: u32,
    time: Timestamp,
    link_type: u32,
}

impl BlockReader {
    fn copy(&mut self, block: &Block) {
        // The bytes of the earlier block are used again if no packet needs them any more.
        let mut bytes = Rc::try_unwrap(std::mem::take(&mut self.bytes)).unwrap_or_default();
        bytes.clear();
        let mut places = Vec::with_capacity(block.packets());
        for (index, descriptor) in block.descriptors().iter().enumerate() {
            let start = bytes.len();
            block.append_packet(index, &mut bytes);
            places.push(Place {
                start,
                end: bytes.len(),
                wire_length: descriptor.wire_len,
                time: Timestamp(descriptor.ts_ns),
                link_type: u32::from(descriptor.link_type),
            });
        }
        self.bytes = Rc::new(bytes);
        self.packets = places.into_iter();
    }
}

impl CaptureReader for BlockReader {
    fn link_type(&self) -> u32 {
        self.link_type
    }

    fn next(&mut self) -> Result<Option<CapturedPacket>, String> {
        loop {
            if let Some(Place { start, end, wire_length, time, link_type }) = self.packets.next() {
                self.link_type = link_type;
                let source = Rc::clone(&self.bytes);
                return Ok(Some(CapturedPacket { source, range: start..end, wire_length, time }));
            }
            match self.capture.next_block() {
                Ok(CaptureNext::Block(block)) => self.copy(&block),
                // No block is in use, so there is always room.
                Ok(CaptureNext::Full | CaptureNext::End) => {
                    return match self.capture.totals().truncated {
                        Some(truncated) => Err(truncated.to_string()),
                        None => Ok(None),
                    };
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// A capture that is written.
struct FileWriter {
    writer: Option<PacketWriter>,
    link_type: LinkType,
}

impl CaptureWriter for FileWriter {
    fn write(&mut self, time: Timestamp, bytes: &[u8], wire_length: u32) -> Result<(), String> {
        let Some(writer) = self.writer.as_mut() else { return Err("it is complete already".to_owned()) };
        writer.write(time, wire_length, self.link_type, 0, bytes).map_err(|error| error.to_string())
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.writer.take() {
            Some(mut writer) => {
                writer.describe(0, self.link_type).map_err(|error| error.to_string())?;
                writer.finish().map(drop).map_err(|error| error.to_string())
            }
            None => Ok(()),
        }
    }
}

impl System for GraphSystem {
    fn open_device(
        &mut self,
        name: &str,
        options: &DeviceOptions,
    ) -> Result<Box<dyn ReceivingDevice>, String> {
        let device = InterfaceReceiver::open(name, options)?;
        self.waiter.add(name, device.fd())?;
        Ok(Box::new(device))
    }

    fn open_sender(&mut self, name: &str) -> Result<Box<dyn SendingDevice>, String> {
        Ok(Box::new(InterfaceSender::open(name)?))
    }

    fn wait_for_devices(&mut self, longest: Option<Nanos>) -> bool {
        self.waiter.wait(longest)
    }

    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        let input = if name == "-" { CaptureInput::Stdin } else { CaptureInput::File(name.into()) };
        let capture = Capture::open(input).map_err(|error| error.to_string())?;
        let link_type = capture
            .totals()
            .interfaces
            .first()
            .map_or(1, |it| it.link_type.map_or(1, |it| u32::from(it.number())));
        Ok(Box::new(BlockReader {
            capture,
            bytes: Rc::default(),
            packets: Vec::new().into_iter(),
            link_type,
        }))
    }

    fn create_capture(
        &mut self,
        name: &str,
        link_type: u32,
        _: u32,
    ) -> Result<Box<dyn CaptureWriter>, String> {
        let link_type = LinkType::try_from(link_type).map_err(|error| error.to_string())?;
        let writer = PacketWriter::create(Path::new(name), None).map_err(|error| error.to_string())?;
        Ok(Box::new(FileWriter { writer: Some(writer), link_type }))
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let file =
            std::fs::File::open(name).map_err(|error| format!("{}: {error}", Path::new(name).escaped()))?;
        let mut bytes = Vec::new();
        let result = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        result.map_err(|error| format!("{}: {error}", Path::new(name).escaped()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("{}: longer than {} MiB", Path::new(name).escaped(), FILE_BYTES_MAX >> 20));
        }
        Ok(bytes)
    }

    fn write_file(&mut self, name: &str, bytes: &[u8], is_new: bool) -> Result<(), String> {
        let mut options = std::fs::OpenOptions::new();
        if is_new {
            options.create(true).write(true).truncate(true);
        } else {
            options.create(true).append(true);
        }
        let result = options.open(name).and_then(|mut file| file.write_all(bytes));
        result.map_err(|error| format!("{}: {error}", Path::new(name).escaped()))
    }

    fn write_text(&mut self, output: TextOutput, text: &str) {
        // A reader of the texts that is gone does not stop the graph.
        _ = match output {
            TextOutput::Out => std::io::stdout().write_all(text.as_bytes()),
            TextOutput::Error => std::io::stderr().write_all(text.as_bytes()),
        };
    }
}
