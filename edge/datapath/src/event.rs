//! News of the packet path, for the log and for the owners of channels.

/// News of an interface that is read or sent on, or of a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedEvent {
    /// A channel's reader lags further behind than it may, and its owner is to be ended.
    Lagging {
        /// The number of the channel's owner.
        owner: u64,
        /// The number of the channel: an owner that was changed meanwhile has others.
        channel: u64,
    },
    /// The state of an interface changed.
    Interface {
        /// The interface.
        interface: String,
        /// The change, in words.
        what: String,
    },
    /// An interface can no longer be read.
    Failed {
        /// The interface.
        interface: String,
        /// The cause.
        what: String,
    },
}

/// Takes news. It never waits.
pub type Tell = Box<dyn Fn(ObservedEvent) + Send>;
