//! The parts of a system that a graph needs, as traits: so elements are pure, and tests need no system.

use super::endpoints::{
    ControlPlace, ControlPort, HostDevice, HostDeviceOptions, PacketSocket, SocketOptions,
};
use super::packet::{PacketType, SourceBlock};
use crate::arguments::{EthernetAddress, Ipv4Prefix};
use core::net::Ipv4Addr;
use std::rc::Rc;
use weir_units::{Nanos, Timestamp};

/// Packets of a capture that are read together.
#[derive(Default)]
pub struct CapturedBlock {
    /// The bytes of all packets.
    pub source: Option<Rc<SourceBlock>>,
    /// The packets, in order.
    pub packets: Vec<BlockPacket>,
}

/// A function that ends a wait for devices.
pub type DeviceWaker = Box<dyn Fn() + Send + Sync>;

/// A packet of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPacket {
    /// The start of the captured bytes in the block.
    pub start: u32,
    /// Their end.
    pub end: u32,
    /// The length on the wire.
    pub wire_length: u32,
    /// The link type, as in a pcap file: 1 for Ethernet.
    pub link_type: u32,
    /// The time stamp.
    pub time: Timestamp,
}

/// A capture that is read.
pub trait CaptureReader {
    /// Replaces the packets of a block by the next ones; by none at the end. Packets of the graph can still refer to the
    /// bytes of the earlier ones.
    ///
    /// # Errors
    ///
    /// Fails with a reason for a capture that cannot be read further.
    fn next_block(&mut self, block: &mut CapturedBlock) -> Result<(), String>;

    /// Returns the link type that a capture states before its first packet, as in a pcap file. By default Ethernet.
    fn link_type(&self) -> u32 {
        1
    }
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

/// The choices with which a device is opened for receiving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Packets for other hosts are received, too.
    pub is_promiscuous: bool,
    /// The host's own network receives the packets, too.
    pub is_sniffer: bool,
    /// Packets that the host sends are received, too.
    pub has_outgoing: bool,
    /// The way in which packets are received.
    pub method: DeviceMethod,
    /// An expression in tcpdump's language; empty for all packets.
    pub filter: String,
}

/// The way in which packets are received from a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceMethod {
    /// A packet socket.
    #[default]
    PacketSocket,
    /// AF_XDP.
    Xdp,
}

/// A packet that a device received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPacket<'a> {
    /// The received bytes.
    pub bytes: &'a [u8],
    /// The length on the wire.
    pub wire_length: u32,
    /// The time of the arrival.
    pub time: Timestamp,
    /// The receiver.
    pub packet_type: PacketType,
}

/// The state of a device after packets were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// More packets may be there.
    More,
    /// No packet is there at present.
    Quiet,
    /// No packet will come any more.
    End,
}

/// The outcome of sending packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentPackets {
    /// The number of packets that were sent or lost; they are the first ones. There is no room for the others at present.
    pub taken: usize,
    /// The lost packets, by their indices in ascending order, each with the reason.
    pub lost: Vec<(usize, &'static str)>,
}

/// A device that receives packets.
pub trait ReceivingDevice {
    /// Returns the link type, as in a pcap file: 1 for Ethernet.
    fn link_type(&self) -> u32;

    /// Calls a function for each of at most this number of packets that have arrived. Does not wait. Each piece of news
    /// about the device, such as its removal, is added to `news` as a line.
    ///
    /// # Errors
    ///
    /// Fails with a reason if the device cannot be used any more.
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(ReceivedPacket<'_>),
        news: &mut Vec<String>,
    ) -> Result<DeviceState, String>;

    /// Returns the number of packets that were lost before they were received.
    fn lost(&mut self) -> u64;
}

/// A device that sends packets.
pub trait SendingDevice {
    /// Returns the link type, as in a pcap file: 1 for Ethernet.
    fn link_type(&self) -> u32;

    /// Sends packets with their link headers, in order, as long as there is room. Does not wait.
    fn send(&mut self, packets: &[&[u8]]) -> SentPackets;
}

/// A text that is read line by line.
pub trait LineReader {
    /// Returns the length of the text in bytes, if it is known.
    fn length(&self) -> Option<u64>;

    /// Replaces the content of `line` by the next line, with its line break. Returns false at the end.
    ///
    /// # Errors
    ///
    /// Fails with a reason for a text that cannot be read further.
    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String>;

    /// Replaces the content of `bytes` by the next ones, as many as it has. Returns false if fewer are left.
    ///
    /// # Errors
    ///
    /// Fails with a reason for a text that cannot be read further.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, String>;
}

/// The lines of a text in memory.
#[derive(Clone, Debug, Default)]
pub struct TextLines {
    text: Vec<u8>,
    at: usize,
}

impl TextLines {
    /// Returns the lines of a text.
    pub fn new(text: Vec<u8>) -> Self {
        Self { text, at: 0 }
    }
}

impl LineReader for TextLines {
    fn length(&self) -> Option<u64> {
        u64::try_from(self.text.len()).ok()
    }

    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        line.clear();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        line.extend_from_slice(&rest[..length]);
        self.at += length;
        Ok(length > 0)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, String> {
        let next = self.text.get(self.at..).and_then(|rest| rest.get(..bytes.len()));
        match next {
            Some(next) => bytes.copy_from_slice(next),
            None => return Ok(false),
        }
        self.at += bytes.len();
        Ok(true)
    }
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

    /// Opens a text for reading line by line. By default it is read as a whole.
    ///
    /// # Errors
    ///
    /// Fails with a reason.
    fn open_lines(&mut self, name: &str) -> Result<Box<dyn LineReader>, String> {
        Ok(Box::new(TextLines::new(self.read_file(name)?)))
    }

    /// Writes bytes to a file: to its end, or as its first bytes.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no such files.
    fn write_file(&mut self, name: &str, bytes: &[u8], is_new: bool) -> Result<(), String> {
        let _ = (bytes, is_new);
        Err(format!("{name}: files cannot be written here"))
    }

    /// Opens a device for receiving.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no devices.
    fn open_device(
        &mut self,
        name: &str,
        options: &DeviceOptions,
    ) -> Result<Box<dyn ReceivingDevice>, String> {
        let _ = options;
        Err(format!("{name}: there are no devices here"))
    }

    /// Opens a device for sending.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no devices.
    fn open_sender(&mut self, name: &str) -> Result<Box<dyn SendingDevice>, String> {
        Err(format!("{name}: there are no devices here"))
    }

    /// Makes a device of the host's network, or opens one of this name.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no devices.
    fn open_host_device(&mut self, options: &HostDeviceOptions) -> Result<HostDevice, String> {
        Err(format!("{}: there are no devices here", options.name))
    }

    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no sockets.
    fn open_socket(&mut self, options: &SocketOptions) -> Result<Box<dyn PacketSocket>, String> {
        Err(format!("{}: there are no sockets here", options.transport))
    }

    /// Opens a control socket.
    ///
    /// # Errors
    ///
    /// Fails with a reason; by default there are no sockets.
    fn open_control(&mut self, place: &ControlPlace) -> Result<Box<dyn ControlPort>, String> {
        let _ = place;
        Err("there are no sockets here".to_owned())
    }

    /// Waits until one of the devices that receive may have packets or news, but for no longer than this time; without
    /// one until any event. May return earlier. With a time of 0, it looks and does not wait.
    ///
    /// Returns true if a device may have packets or news.
    fn wait_for_devices(&mut self, longest: Option<Nanos>) -> bool {
        let _ = longest;
        true
    }

    /// Returns a function that ends a wait for devices, or the next one, from any thread; `None` in a system that never
    /// waits long.
    fn device_waker(&mut self) -> Option<DeviceWaker> {
        None
    }

    /// Writes a text.
    fn write_text(&mut self, output: TextOutput, text: &str);

    /// Returns the interfaces whose names stand for addresses in arguments.
    fn interfaces(&self) -> Vec<InterfaceAddresses> {
        Vec::new()
    }

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

/// The addresses for which the name of an interface stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddresses {
    /// The name of the interface.
    pub name: String,
    /// The IPv4 address with its mask.
    pub ipv4: Option<Ipv4Prefix>,
    /// The gateway of the default route over the interface.
    pub gateway: Option<Ipv4Addr>,
    /// The Ethernet address.
    pub ethernet: Option<EthernetAddress>,
}

/// A system as [`NoFiles`] that knows addresses of interfaces.
#[derive(Clone, Debug, Default)]
pub struct OnlyInterfaces(pub Vec<InterfaceAddresses>);

impl System for OnlyInterfaces {
    fn interfaces(&self) -> Vec<InterfaceAddresses> {
        self.0.clone()
    }

    fn open_device(
        &mut self,
        name: &str,
        options: &DeviceOptions,
    ) -> Result<Box<dyn ReceivingDevice>, String> {
        NoFiles.open_device(name, options)
    }

    fn open_sender(&mut self, name: &str) -> Result<Box<dyn SendingDevice>, String> {
        NoFiles.open_sender(name)
    }

    fn open_host_device(&mut self, options: &HostDeviceOptions) -> Result<HostDevice, String> {
        NoFiles.open_host_device(options)
    }

    fn open_socket(&mut self, options: &SocketOptions) -> Result<Box<dyn PacketSocket>, String> {
        NoFiles.open_socket(options)
    }

    fn open_control(&mut self, place: &ControlPlace) -> Result<Box<dyn ControlPort>, String> {
        NoFiles.open_control(place)
    }

    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        NoFiles.open_capture(name)
    }

    fn create_capture(
        &mut self,
        name: &str,
        link_type: u32,
        snap_length: u32,
    ) -> Result<Box<dyn CaptureWriter>, String> {
        NoFiles.create_capture(name, link_type, snap_length)
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        NoFiles.read_file(name)
    }

    fn write_text(&mut self, output: TextOutput, text: &str) {
        NoFiles.write_text(output, text);
    }
}

/// A system whose captures and devices are empty, and that keeps nothing: for checks, and tests without files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl CaptureReader for NoFiles {
    fn next_block(&mut self, block: &mut CapturedBlock) -> Result<(), String> {
        block.packets.clear();
        Ok(())
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

impl ReceivingDevice for NoFiles {
    fn link_type(&self) -> u32 {
        1
    }

    fn receive(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(ReceivedPacket<'_>),
        _: &mut Vec<String>,
    ) -> Result<DeviceState, String> {
        Ok(DeviceState::End)
    }

    fn lost(&mut self) -> u64 {
        0
    }
}

impl SendingDevice for NoFiles {
    fn link_type(&self) -> u32 {
        1
    }

    fn send(&mut self, packets: &[&[u8]]) -> SentPackets {
        SentPackets { taken: packets.len(), lost: Vec::new() }
    }
}

impl System for NoFiles {
    fn open_device(&mut self, _: &str, _: &DeviceOptions) -> Result<Box<dyn ReceivingDevice>, String> {
        Ok(Box::new(NoFiles))
    }

    fn open_sender(&mut self, _: &str) -> Result<Box<dyn SendingDevice>, String> {
        Ok(Box::new(NoFiles))
    }

    fn open_host_device(&mut self, options: &HostDeviceOptions) -> Result<HostDevice, String> {
        let name = options.name.clone();
        Ok(HostDevice { name, receiver: Box::new(NoFiles), sender: Box::new(NoFiles) })
    }

    fn open_socket(&mut self, _: &SocketOptions) -> Result<Box<dyn PacketSocket>, String> {
        Ok(Box::new(NoFiles))
    }

    fn open_control(&mut self, _: &ControlPlace) -> Result<Box<dyn ControlPort>, String> {
        Ok(Box::new(NoFiles))
    }

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
