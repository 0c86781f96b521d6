//! Events of the packet path, for the log and for the owners of channels.

/// An event of a channel, an interface, a link or a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedEvent {
    /// A reader of a channel exceeded its lag limit, so the session that owns the channel is to be closed.
    Lagging {
        /// The number of the channel's owner.
        owner: u64,
        /// The number of the channel. A changed session has channels with new numbers.
        channel: u64,
    },
    /// The state of an interface changed.
    Interface {
        /// The name of the interface.
        interface: String,
        /// The change, as text for the log.
        what: String,
    },
    /// An interface can no longer be read.
    Failed {
        /// The name of the interface.
        interface: String,
        /// The cause, as text for the log.
        what: String,
    },
}

/// A handler of events. A handler must never block.
pub type EventSink = Box<dyn Fn(ObservedEvent) + Send>;
