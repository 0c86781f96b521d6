//! Sending to the host's own network, over the graph's end of a TAP or TUN device.

use super::losses::LossCounts;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::engine::{HostDevice, HostDeviceKind, ReceivingDevice, SendingDevice};

/// The MTU of a device without an argument.
pub const MTU_DEFAULT: u32 = 1500;

/// The least MTU: an IPv4 header.
pub const MTU_MIN: u32 = 20;

/// The most room before packets.
pub const HEADROOM_MAX: u32 = 8192;

/// The reason for packets that come when the device is closed.
const CLOSED: &str = "the device is closed";

/// The reason for packets that the device cannot take at present.
const FULL: &str = "the device has no room at present";

/// A device of the host's network that several elements send to.
#[derive(Default)]
pub struct SharedHostDevice {
    state: RefCell<HostDeviceState>,
}

#[derive(Default)]
struct HostDeviceState {
    name: String,
    kind: Option<HostDeviceKind>,
    sender: Option<Box<dyn SendingDevice>>,
}

impl SharedHostDevice {
    /// Returns a device that is not open yet.
    pub fn named(name: &str, kind: HostDeviceKind) -> Rc<Self> {
        let state = HostDeviceState { name: name.to_owned(), kind: Some(kind), sender: None };
        Rc::new(Self { state: RefCell::new(state) })
    }

    /// Takes the sending end of a device, and returns the other one.
    pub fn open(&self, device: HostDevice) -> Box<dyn ReceivingDevice> {
        let mut state = self.state.borrow_mut();
        state.name = device.name;
        state.sender = Some(device.sender);
        device.receiver
    }

    /// Takes over the sending end of an earlier element.
    pub fn continue_from(&self, earlier: &Self) {
        let (mut state, mut earlier) = (self.state.borrow_mut(), earlier.state.borrow_mut());
        state.name.clone_from(&earlier.name);
        state.sender = earlier.sender.take();
    }

    /// Returns the name of the device.
    pub fn name(&self) -> String {
        self.state.borrow().name.clone()
    }

    /// Returns the packets of the device.
    pub fn kind(&self) -> HostDeviceKind {
        self.state.borrow().kind.unwrap_or(HostDeviceKind::Ethernet)
    }

    /// Sends a packet, and counts one that is lost.
    pub fn send(&self, bytes: &[u8], lost: &mut LossCounts) {
        let mut state = self.state.borrow_mut();
        let Some(sender) = &mut state.sender else { return lost.add(CLOSED) };
        let sent = sender.send(&[bytes]);
        match sent.lost.first() {
            Some((_, reason)) => lost.add(reason),
            None if sent.taken == 0 => lost.add(FULL),
            None => {}
        }
    }

    /// Closes the sending end.
    pub fn close(&self) {
        self.state.borrow_mut().sender = None;
    }
}
