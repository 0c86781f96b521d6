//! Elements that delay packets, emulate links, and act on rates.

mod block;
mod delay_shaper;
mod delay_unqueue;
mod delayed_packet;
mod link_unqueue;
mod meter;
mod rated_splitter;
mod red;
mod timed_unqueue;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &delay_unqueue::CLASS,
    &delay_shaper::CLASS,
    &link_unqueue::CLASS,
    &timed_unqueue::TIMED,
    &timed_unqueue::BURSTER,
    &rated_splitter::RATED,
    &rated_splitter::BANDWIDTH_RATED,
    &meter::METER,
    &meter::BANDWIDTH,
    &red::CLASS,
    &block::CLASS,
];
