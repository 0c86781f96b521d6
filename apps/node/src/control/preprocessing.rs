//! The preprocessing that a channel requests for its packets.

use crate::control::bounded_list;
use crate::control::spec::{ChannelSpec, MappedPackets, QUEUE_USUAL};
use serde::{Deserialize, Serialize};
use weir_datapath::queue::PacketQueue;
use weir_demux::KeyField;
use weir_wire::PacketView;

/// The most sub-flows of a channel.
pub const SUBFLOWS_MAX: u16 = 1024;

/// The handling of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// Packets with a wrong IPv4, TCP, UDP or ICMP checksum are dropped and counted.
    Verify,
}

/// Division of a channel's queue into queues of equal length for sub-flows. A module gets packets of the sub-flows in turn,
/// and the packets of each sub-flow in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubFlowSpec {
    /// Fields that all packets of a sub-flow have in common.
    #[serde(deserialize_with = "bounded_list::list")]
    pub by: Vec<ShardField>,
    /// Number of queues. A keyed hash of the fields chooses the queue of a packet, so several sub-flows can share a queue.
    pub queues: u16,
}

/// A field that divides packets into sub-flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardField {
    /// Source address.
    SrcAddr,
    /// Destination address.
    DstAddr,
    /// TCP or UDP source port. Fragments count as packets without ports, so all fragments of a datagram are in one sub-flow.
    SrcPort,
    /// TCP or UDP destination port.
    DstPort,
    /// Protocol above IP.
    Protocol,
    /// Identifier of the outermost VLAN tag.
    Vlan,
}

impl SubFlowSpec {
    /// Returns the fields for the classifier.
    pub fn fields(&self) -> Vec<KeyField> {
        let field = |field: &ShardField| match field {
            ShardField::SrcAddr => KeyField::Source,
            ShardField::DstAddr => KeyField::Destination,
            ShardField::SrcPort => KeyField::SourcePort,
            ShardField::DstPort => KeyField::DestinationPort,
            ShardField::Protocol => KeyField::Protocol,
            ShardField::Vlan => KeyField::Vlan,
        };
        self.by.iter().map(field).collect()
    }
}

/// A faulty key: its name, the given value, and the allowed values.
type Wrong = (&'static str, String, String);

impl ChannelSpec {
    /// Returns true if packets are preprocessed before a module sees them.
    pub(crate) fn is_preprocessed(&self) -> bool {
        self.checksum.is_some() || self.reassemble
    }

    pub(crate) fn check_preprocessing(&self) -> Result<(), Wrong> {
        self.check_view()?;
        if self.reassemble && self.visibility == MappedPackets::All {
            let wanted =
                "false where `visibility` is \"all\": whole datagrams are in memory of their own".to_owned();
            return Err(("reassemble", "true".to_owned(), wanted));
        }
        if let Some(subflows) = &self.subflows {
            let queues = u32::from(subflows.queues);
            if !(2..=u32::from(SUBFLOWS_MAX)).contains(&queues) || queues > self.queue_len() {
                let wanted = format!("between 2 and {SUBFLOWS_MAX}, and at most `queue`");
                return Err(("subflows.queues", queues.to_string(), wanted));
            }
            if subflows.by.is_empty() {
                let wanted = "at least one of src_addr, dst_addr, src_port, dst_port, protocol and vlan";
                return Err(("subflows.by", "empty".to_owned(), wanted.to_owned()));
            }
        }
        Ok(())
    }

    /// Checks that no other setting of the channel reveals the fields that its view hides: the packets of a view need memory
    /// of their own, and are not forwarded.
    fn check_view(&self) -> Result<(), Wrong> {
        let view = self.shows();
        if view == PacketView::ALL {
            return Ok(());
        }
        if self.visibility == MappedPackets::All {
            let wanted = format!(
                "\"selected\" where its packets are shown by a view (`{view}`): the interface's own memory has them as they are"
            );
            return Err(("visibility", "\"all\"".to_owned(), wanted));
        }
        if self.subflows.is_some() && self.is_preprocessed() {
            let wanted = format!(
                "left out where its packets are shown by a view (`{view}`) and something is done with them before (`checksum`, `reassemble`): they would be \
                 divided by what is hidden"
            );
            return Err(("subflows", "there".to_owned(), wanted));
        }
        if let Some(target) = &self.forward {
            let wanted = format!(
                "left out where its packets are shown by a view (`{view}`): what would go on is either changed, or has in it what is hidden. \
                 Have a channel without a view forward them, or let the module send frames of its own"
            );
            return Err(("forward", target.clone(), wanted));
        }
        Ok(())
    }

    /// Creates a queue for a module of this channel.
    pub(crate) fn new_queue(&self) -> PacketQueue {
        let flows = self.subflows.as_ref().map_or(1, |subflows| subflows.queues.max(1));
        PacketQueue::divided(self.queue_len(), flows)
    }

    /// Returns the number of packets that a queue of this channel can hold.
    pub(crate) fn queue_len(&self) -> u32 {
        self.queue.unwrap_or(QUEUE_USUAL)
    }
}
