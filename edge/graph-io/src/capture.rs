//! The system of graphs: captures that are read and written, whole files, devices and the terminal.

use crate::control_port::HostControlPort;
use crate::host_device;
use crate::receive::InterfaceReceiver;
use crate::send::InterfaceSender;
use crate::sockets::HostSocket;
use crate::waiter::DeviceWaiter;
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_current_process_group, kill_process, kill_process_group};
use std::cell::Cell;
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::{Rc, Weak};
use weir_abi::Descriptor;
use weir_graph::arguments::{EthernetAddress, Ipv4Prefix};
use weir_graph::engine::{
    BlockPacket, CaptureReader, CaptureWriter, CapturedBlock, ControlPlace, ControlPort, DeviceOptions,
    DeviceWaker, HostDevice, HostDeviceOptions, InterfaceAddresses, LineReader, PacketSocket,
    ReceivingDevice, SendingDevice, SocketOptions, SourceBlock, System, TextOutput,
};
use weir_netio::{
    Block, Capture, CaptureInput, CaptureNext, CaptureOptions, LinkAddresses, PacketWriter, interface_names,
    link_addresses,
};
use weir_units::{Escape as _, Nanos, Timestamp};
use weir_wire::LinkType;

/// The most bytes of a file that an element reads as a whole.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The most bytes of a line that an element reads.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The files, the devices and the terminal of a program.
#[derive(Debug, Default)]
pub struct GraphSystem {
    waiter: DeviceWaiter,
}

/// The most blocks whose packets are used in place while the graph reads further blocks. The arena of a capture has
/// memory for a few blocks more.
const HELD_MAX: usize = 4;

/// A capture that is read.
///
/// A graph uses the packets in place, in the arena of the capture. If packets of earlier blocks take too much of it,
/// because the graph keeps them, the packets of a block are copied: once, all together, when an element first reads one of
/// them.
struct BlockReader {
    capture: Capture,
    /// The bytes of an earlier block, which are used again.
    spare: Rc<Cell<Vec<u8>>>,
    /// The earlier blocks whose packets are used in place.
    held: Vec<Weak<SourceBlock>>,
}

impl BlockReader {
    fn new(capture: Capture) -> Self {
        Self { capture, spare: Rc::default(), held: Vec::new() }
    }

    /// Ends the use of a block by the reader. If packets still refer to it, its bytes are kept in place or copied.
    fn end_block(&mut self, source: Rc<SourceBlock>) {
        match Rc::try_unwrap(source) {
            Ok(source) => source.into_bytes().into_iter().for_each(|bytes| self.spare.set(bytes)),
            // A block no longer needs the memory of the capture, once it is copied.
            Err(source) => _ = source.bytes(),
        }
    }

    /// Returns the bytes of a block's packets, and their places in them.
    fn source(&mut self, block: Block, places: &mut Vec<BlockPacket>) -> Result<Rc<SourceBlock>, String> {
        self.held.retain(|earlier| earlier.strong_count() > 0);
        if self.held.len() >= HELD_MAX {
            return self.copied(block, places);
        }
        match self.capture.hold_bytes(block) {
            Ok(held) => {
                let first = held.block().descriptors().first().map_or(0, |first| first.data);
                let in_place = |descriptor: &Descriptor| {
                    let start = descriptor.data.saturating_sub(first);
                    place_of(descriptor, start, start.saturating_add(descriptor.cap_len))
                };
                places.extend(held.block().descriptors().iter().map(in_place));
                let source = Rc::new(SourceBlock::from(Bytes::from_owner(held)));
                self.held.push(Rc::downgrade(&source));
                Ok(source)
            }
            Err(block) => self.copied(block, places),
        }
    }

    /// Returns the bytes of a block's packets, which are copied later, and their places in them.
    fn copied(&self, block: Block, places: &mut Vec<BlockPacket>) -> Result<Rc<SourceBlock>, String> {
        let mut start = 0_u32;
        for descriptor in block.descriptors() {
            let end = start.checked_add(descriptor.cap_len).ok_or("a block of more than 4 GiB")?;
            places.push(place_of(descriptor, start, end));
            start = end;
        }
        let (spare, length) = (Rc::clone(&self.spare), start as usize);
        Ok(Rc::new(SourceBlock::later(move || {
            let mut bytes = spare.take();
            bytes.clear();
            (0..block.len()).for_each(|index| block.append_packet(index, &mut bytes));
            // A file that was cut meanwhile has no bytes for some packets.
            bytes.resize(length, 0);
            bytes
        })))
    }
}

fn place_of(descriptor: &Descriptor, start: u32, end: u32) -> BlockPacket {
    BlockPacket {
        start,
        end,
        wire_length: descriptor.wire_len,
        link_type: u32::from(descriptor.link_type),
        time: Timestamp(descriptor.ts_ns),
    }
}

impl CaptureReader for BlockReader {
    fn next_block(&mut self, to: &mut CapturedBlock) -> Result<(), String> {
        to.packets.clear();
        to.source.take().into_iter().for_each(|source| self.end_block(source));
        match self.capture.next_block() {
            Ok(CaptureNext::Block(block)) => {
                to.source = Some(self.source(block, &mut to.packets)?);
                Ok(())
            }
            Ok(CaptureNext::Full) => {
                Err("packets that elements keep take the memory for the next one".to_owned())
            }
            Ok(CaptureNext::End) => match self.capture.totals().truncated {
                Some(truncated) => Err(truncated.to_string()),
                None => Ok(()),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    fn link_type(&self) -> u32 {
        let first = self.capture.totals().interfaces.first().and_then(|it| it.link_type);
        first.map_or(1, |link_type| u32::from(link_type.number()))
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

/// The lines of a file or of standard input, with one line in memory.
struct FileLines {
    name: String,
    reader: Box<dyn BufRead>,
    length: Option<u64>,
}

impl LineReader for FileLines {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        line.clear();
        let mut reader = (&mut self.reader).take(LINE_BYTES_MAX + 1);
        let count = reader.read_until(b'\n', line).map_err(|error| format!("{}: {error}", self.name))?;
        if count as u64 > LINE_BYTES_MAX {
            return Err(format!("{}: a line is longer than {} MiB", self.name, LINE_BYTES_MAX >> 20));
        }
        Ok(count > 0)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, String> {
        match self.reader.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }
}

/// Writes bytes to a file without a buffer.
fn write_at_once(file: BorrowedFd<'_>, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the interfaces of this host with their addresses; none if the system does not tell them.
pub fn interfaces() -> Vec<InterfaceAddresses> {
    let names = interface_names().unwrap_or_default();
    let addresses = link_addresses(&names);
    let named = |(name, LinkAddresses { ipv4, gateway, ethernet })| InterfaceAddresses {
        name,
        ipv4: ipv4.map(|(address, mask)| Ipv4Prefix { address, mask }),
        gateway,
        ethernet: ethernet.map(EthernetAddress),
    };
    names.into_iter().zip(addresses).map(named).collect()
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

    fn open_host_device(&mut self, options: &HostDeviceOptions) -> Result<HostDevice, String> {
        let (name, receiver, sender) = host_device::open(options)?;
        self.waiter.add(&name, receiver.fd())?;
        Ok(HostDevice { name, receiver: Box::new(receiver), sender: Box::new(sender) })
    }

    fn open_socket(&mut self, options: &SocketOptions) -> Result<Box<dyn PacketSocket>, String> {
        let socket =
            HostSocket::open(options).map_err(|reason| format!("{}: {reason}", options.transport))?;
        self.waiter.add(&options.transport.to_string(), socket.fd())?;
        Ok(Box::new(socket))
    }

    fn open_control(&mut self, place: &ControlPlace) -> Result<Box<dyn ControlPort>, String> {
        let port = HostControlPort::open(place)?;
        self.waiter.add("control socket", port.fd())?;
        Ok(Box::new(port))
    }

    fn wait_for_devices(&mut self, longest: Option<Nanos>) -> bool {
        self.waiter.wait(longest)
    }

    fn device_waker(&mut self) -> Option<DeviceWaker> {
        self.waiter.waker().ok()
    }

    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        let input = if name == "-" { CaptureInput::Stdin } else { CaptureInput::File(name.into()) };
        let options = CaptureOptions { copy: true, ..CaptureOptions::default() };
        let capture = Capture::open_with(input, options).map_err(|error| error.to_string())?;
        // Elements look at headers themselves, if they do.
        let capture = capture.without_headers();
        Ok(Box::new(BlockReader::new(capture)))
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

    fn open_lines(&mut self, name: &str) -> Result<Box<dyn LineReader>, String> {
        if name == "-" {
            let reader = Box::new(BufReader::new(std::io::stdin()));
            return Ok(Box::new(FileLines { name: "standard input".to_owned(), reader, length: None }));
        }
        let shown = Path::new(name).escaped().to_string();
        let file = std::fs::File::open(name).map_err(|error| format!("{shown}: {error}"))?;
        let metadata = file.metadata().map_err(|error| format!("{shown}: {error}"))?;
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Box::new(FileLines { name: shown, reader: Box::new(BufReader::new(file)), length }))
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
        // A reader of the texts that is gone does not stop the graph. The program can have a lock on its standard output
        // while threads of a graph run.
        _ = match output {
            TextOutput::Out => write_at_once(rustix::stdio::stdout(), text.as_bytes()),
            TextOutput::Error => std::io::stderr().write_all(text.as_bytes()),
        };
    }

    fn interfaces(&self) -> Vec<InterfaceAddresses> {
        interfaces()
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }

    fn send_signal(&mut self, process: i32, signal: i32) -> Result<(), String> {
        let number =
            Signal::from_named_raw(signal).ok_or_else(|| format!("no signal has the number {signal}"))?;
        let id = |number: i32| Pid::from_raw(number).ok_or_else(|| format!("'{number}' is no process"));
        let result = match process {
            0 => kill_current_process_group(number),
            -1 => return Err("-1 would be all processes of the user".to_owned()),
            ..-1 => kill_process_group(id(process.saturating_neg())?, number),
            1.. => kill_process(id(process)?, number),
        };
        result.map_err(|error| format!("process {process}: {}", std::io::Error::from(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture whose packets have their number as bytes.
    fn write_capture(path: &Path, packets: u32) {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        file.extend([0_u32, 0, 65_535, 1].into_iter().flat_map(u32::to_le_bytes));
        for number in 0..packets {
            file.extend([1, 0, 4, 4, number].into_iter().flat_map(u32::to_le_bytes));
        }
        std::fs::write(path, file).unwrap();
    }

    fn numbers(source: &SourceBlock, packets: &[BlockPacket]) -> Vec<u32> {
        let bytes = source.bytes();
        let bytes = packets.iter().map(|it| &bytes[it.start as usize..it.end as usize]);
        bytes.map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect()
    }

    /// Blocks whose packets a graph keeps, and did not read, must not take the memory that further blocks need.
    #[test]
    fn packets_that_are_kept_have_their_bytes_after_the_end_of_the_capture() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_capture(file.path(), 100_000);
        let mut reader = GraphSystem::default().open_capture(file.path().to_str().unwrap()).unwrap();
        let mut kept = Vec::new();
        let mut block = CapturedBlock::default();
        loop {
            reader.next_block(&mut block).unwrap();
            if block.packets.is_empty() {
                break;
            }
            kept.push((block.source.clone().unwrap(), block.packets.clone()));
        }
        assert!(kept.len() > 50, "{} blocks", kept.len());
        let found: Vec<u32> = kept.iter().flat_map(|(source, packets)| numbers(source, packets)).collect();
        assert!(found.into_iter().eq(0..100_000));
    }

    #[test]
    fn blocks_that_no_element_reads_are_skipped_and_later_ones_are_right() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_capture(file.path(), 10_000);
        let mut reader = GraphSystem::default().open_capture(file.path().to_str().unwrap()).unwrap();
        let mut block = CapturedBlock::default();
        let (mut next, mut index) = (0, 0);
        loop {
            reader.next_block(&mut block).unwrap();
            let count = u32::try_from(block.packets.len()).unwrap();
            if count == 0 {
                break;
            }
            // Every third block is read, so its bytes are used again.
            if index % 3 == 2 {
                let found = numbers(block.source.as_ref().unwrap(), &block.packets);
                assert!(found.into_iter().eq(next..next + count));
            }
            (next, index) = (next + count, index + 1);
        }
        assert_eq!(next, 10_000);
    }

    /// The descriptors without headers state what those with headers do.
    #[test]
    fn lengths_times_and_link_types_are_those_of_the_capture() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_capture(file.path(), 5000);
        let mut expected = Vec::new();
        let mut capture = Capture::open(CaptureInput::File(file.path().into())).unwrap();
        while let CaptureNext::Block(block) = capture.next_block().unwrap() {
            let known = block.descriptors().iter();
            expected.extend(known.map(|it| (it.cap_len, it.wire_len, it.ts_ns, u32::from(it.link_type))));
        }
        let mut reader = GraphSystem::default().open_capture(file.path().to_str().unwrap()).unwrap();
        let mut found = Vec::new();
        let mut block = CapturedBlock::default();
        while reader.next_block(&mut block).is_ok_and(|()| !block.packets.is_empty()) {
            let packets = block.packets.iter();
            found.extend(packets.map(|it| (it.end - it.start, it.wire_length, it.time.0, it.link_type)));
        }
        assert_eq!(found.len(), 5000);
        assert!(found == expected);
    }

    /// The file is cut while its packets wait: they keep their length, and the missing bytes are zeros.
    #[test]
    fn packets_of_a_file_that_is_cut_keep_their_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_capture(file.path(), 1000);
        let mut reader = GraphSystem::default().open_capture(file.path().to_str().unwrap()).unwrap();
        let mut block = CapturedBlock::default();
        reader.next_block(&mut block).unwrap();
        file.as_file().set_len(24).unwrap();
        let found = numbers(block.source.as_ref().unwrap(), &block.packets);
        assert_eq!(found.len(), block.packets.len());
        assert!((0..).zip(&found).all(|(number, found)| *found == number || *found == 0), "{found:?}");
    }

    /// Returns the lengths of the lines of a file, and the reason for which the reading ended.
    fn lines(bytes: &[u8]) -> (Vec<usize>, Result<(), String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, bytes).unwrap();
        let mut reader = GraphSystem::default().open_lines(path.to_str().unwrap()).unwrap();
        assert_eq!(reader.length(), Some(bytes.len() as u64));
        let (mut lengths, mut line) = (Vec::new(), Vec::new());
        loop {
            match reader.next(&mut line) {
                Ok(true) => lengths.push(line.len()),
                Ok(false) => return (lengths, Ok(())),
                Err(reason) => return (lengths, Err(reason)),
            }
        }
    }

    #[test]
    fn lines_are_read_one_by_one_and_a_line_has_a_limit() {
        assert_eq!(lines(b""), (vec![], Ok(())));
        assert_eq!(lines(b"ab\n\nc"), (vec![3, 1, 1], Ok(())));
        let most = usize::try_from(LINE_BYTES_MAX).unwrap();
        let mut text = vec![b'x'; most - 1];
        text.extend_from_slice(b"\ny\n");
        assert_eq!(lines(&text), (vec![most, 2], Ok(())));
        text[most - 1] = b'x';
        let (lengths, end) = lines(&text);
        assert!(lengths.is_empty() && end.unwrap_err().contains("a line is longer than 1 MiB"));
        // The whole may be longer than what is read of a file at once.
        let long = b"0123456789abcdef\n".repeat(5 << 20);
        assert!(long.len() as u64 > FILE_BYTES_MAX);
        let (lengths, end) = lines(&long);
        assert!(end.is_ok() && lengths.len() == 5 << 20);
    }
}
