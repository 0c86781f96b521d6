//! The packet that waits for the end of its delay.

use weir_graph::engine::{ElementContext, GraphPacket, Reason};
use weir_units::{Nanos, Timestamp};

/// The time stamps below which a packet counts as one without.
const FIRST_SECOND: Timestamp = Timestamp(Nanos::SECOND.0);

/// A delay, and the packet that waits for its end.
pub struct DelayedPacket {
    pub delay: Nanos,
    waiting: Option<GraphPacket>,
}

/// The state of a packet that is asked for.
pub enum DelayedState {
    /// Its time has come.
    Ready(GraphPacket),
    /// It waits until this time.
    Until(Timestamp),
    /// There is no packet.
    Empty,
}

impl DelayedPacket {
    /// Returns a delay without a packet.
    pub fn new(delay: Nanos) -> Self {
        Self { delay, waiting: None }
    }

    /// Takes the packet that waits, or pulls the next one, and returns it if its time has come. Its time stamp is the end of
    /// the delay.
    pub fn next(&mut self, cx: &mut ElementContext<'_>) -> DelayedState {
        let packet = match self.waiting.take() {
            Some(packet) => packet,
            None => {
                let Some(mut packet) = cx.pull(0) else { return DelayedState::Empty };
                let from = match packet.time() {
                    time if time < FIRST_SECOND => cx.services.now(),
                    time => time,
                };
                packet.set_time(Timestamp(from.0.saturating_add(self.delay.0)));
                packet
            }
        };
        let at = packet.time();
        if at <= cx.services.now() {
            return DelayedState::Ready(packet);
        }
        self.waiting = Some(packet);
        DelayedState::Until(at)
    }

    /// Sets the delay of later packets by the value of a handler.
    ///
    /// # Errors
    ///
    /// Fails with a reason if it is no time.
    pub fn write_delay(&mut self, value: &str) -> Result<String, Reason> {
        self.delay = crate::values::read(value)?;
        Ok(String::new())
    }

    /// Takes the packet that waits in an earlier element.
    pub fn take_over(&mut self, earlier: &mut DelayedPacket) {
        self.waiting = earlier.waiting.take();
    }
}
