//! Elements that set and use time stamps and annotations.

mod adjust_timestamp;
mod set_anno_byte;
mod set_timestamp;
mod set_timestamp_delta;
mod set_vlan_anno;
mod time_filter;

use weir_graph::engine::{ElementClass, FIRST_TIMESTAMP, GraphPacket};
use weir_units::Timestamp;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &set_timestamp::CLASS,
    &set_timestamp_delta::CLASS,
    &adjust_timestamp::CLASS,
    &time_filter::CLASS,
    &set_vlan_anno::CLASS,
    &set_anno_byte::CLASS,
];

/// Returns the annotation FIRST_TIMESTAMP.
fn first_timestamp(packet: &GraphPacket) -> Timestamp {
    Timestamp(packet.annotation(FIRST_TIMESTAMP).try_into().map_or(0, u64::from_ne_bytes))
}

fn set_first_timestamp(packet: &mut GraphPacket, time: Timestamp) {
    packet.annotation_mut(FIRST_TIMESTAMP).copy_from_slice(&time.0.to_ne_bytes());
}
