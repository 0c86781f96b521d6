//! Sending of packets on interfaces.

use weir_graph::engine::{SendingDevice, SentPackets};
use weir_netio::{LiveSink, Loss, SocketKind};

/// An interface on which packets are sent.
#[derive(Debug)]
pub struct InterfaceSender {
    sink: LiveSink,
}

impl InterfaceSender {
    /// Opens an interface.
    pub fn open(name: &str) -> Result<Self, String> {
        let sink = LiveSink::open(name, SocketKind::Packet).map_err(|error| error.to_string())?;
        Ok(Self { sink })
    }

    /// Returns the sender of an open device.
    pub fn of_sink(sink: LiveSink) -> Self {
        Self { sink }
    }
}

/// Returns the reason for which a packet was lost, with what to do.
fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::TooLong => "longer than the MTU and the link header: fragment packets, or raise the MTU",
        Loss::Malformed => "shorter than a link header, or invalid for the interface",
        Loss::Cut => "captured only in part",
        Loss::Down => "the interface is down: set it up, or look at its cable",
        Loss::Gone => "the interface was removed; one of the same name is used as soon as it exists",
        Loss::Refused => "refused by the interface",
    }
}

impl SendingDevice for InterfaceSender {
    fn link_type(&self) -> u32 {
        u32::from(self.sink.link_type().number())
    }

    fn send(&mut self, packets: &[&[u8]]) -> SentPackets {
        let mut lost = Vec::new();
        let result = self.sink.send_reporting(packets, |index, loss| lost.push((index, reason(loss))));
        SentPackets { taken: result.consumed, lost }
    }
}
