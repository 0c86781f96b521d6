//! Receiving from a device, for all elements that do.

use weir_graph::engine::{DeviceState, ElementContext, Reason, ReceivedPacket, ReceivingDevice, TextOutput};

/// The link type of Ethernet in captures.
pub const ETHERNET: u32 = 1;

/// The device that an element receives from, from its start to its end.
pub struct DeviceReceiver {
    /// The device; `None` before the start, and after its end.
    device: Option<Box<dyn ReceivingDevice>>,
    /// The reason why the device cannot be used any more.
    failure: Option<String>,
    /// The number of packets lost in the device, and its link type, for handlers that are read after its end.
    lost: u64,
    link_type: u32,
}

impl Default for DeviceReceiver {
    fn default() -> Self {
        Self { device: None, failure: None, lost: 0, link_type: ETHERNET }
    }
}

impl DeviceReceiver {
    /// Begins to receive from a device.
    pub fn begin(&mut self, device: Box<dyn ReceivingDevice>) {
        self.link_type = device.link_type();
        self.device = Some(device);
    }

    /// Returns the link type of the device.
    pub fn link_type(&self) -> u32 {
        self.link_type
    }

    /// Returns the number of packets lost in the device so far.
    pub fn lost(&mut self) -> u64 {
        if let Some(device) = &mut self.device {
            self.lost = device.lost();
        }
        self.lost
    }

    /// Hands over at most this number of packets, and writes news about the device to standard error. Returns true if more
    /// may be there.
    pub fn receive(
        &mut self,
        most: usize,
        cx: &mut ElementContext<'_>,
        each: &mut dyn FnMut(ReceivedPacket<'_>, &mut ElementContext<'_>),
    ) -> bool {
        let Some(device) = &mut self.device else { return false };
        let mut news = Vec::new();
        let result = device.receive(most, &mut |packet| each(packet, cx), &mut news);
        let is_over = !matches!(result, Ok(DeviceState::More | DeviceState::Quiet));
        let again = result == Ok(DeviceState::More);
        if let Err(reason) = result {
            self.failure = Some(reason.clone());
            news.push(reason);
        }
        if is_over {
            cx.stop_watching();
            self.lost();
            self.device = None;
        }
        for line in news {
            let text = format!("{}: {line}\n", cx.read_own_name());
            cx.services.system.write_text(TextOutput::Error, &text);
        }
        again
    }

    /// Closes the device.
    ///
    /// # Errors
    ///
    /// Fails with the reason why the device could not be used any more.
    pub fn finish(&mut self) -> Result<(), Reason> {
        self.lost();
        self.device = None;
        self.failure.take().map_or(Ok(()), Err)
    }
}
