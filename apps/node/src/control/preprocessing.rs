//! The preprocessing (checksum validation, reassembly) and the sub-flows that a channel requests for its packets.
//! Contains the checks of these settings against the channel's view.

use crate::control::bounded_list;
use crate::control::spec::{ChannelSpec, MappedPackets, QUEUE_USUAL};
use serde::{Deserialize, Serialize};
use weir_datapath::queue::PacketQueue;
use weir_demux::KeyField;
use weir_wire::PacketView;

/// The most sub-flows of a channel.
pub const SUBFLOWS_MAX: u16 = 1024;

/// The requested validation of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// Packets with a wrong IPv4, TCP, UDP or ICMP checksum are dropped and counted.
    Verify,
}

/// Division of a channel's queue into queues for sub-flows, whose lengths differ by at most one packet. A module gets
/// packets of these queues in turn, and the packets of each queue in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubFlowSpec {
    /// Fields by whose values packets are divided. Packets with equal fields are in one sub-flow.
    #[serde(deserialize_with = "bounded_list::list")]
    pub by: Vec<ShardField>,
    /// Number of sub-flows, each with a queue. A keyed hash of the fields chooses the sub-flow of a packet, so packets
    /// with different fields can be in one sub-flow.
    pub queues: u16,
}

/// A header field by whose value packets are divided into sub-flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardField {
    /// Source address.
    SrcAddr,
    /// Destination address.
    DstAddr,
    /// TCP or UDP source port. Fragments count as packets without ports, so all fragments of a datagram are in one
    /// sub-flow.
    SrcPort,
    /// TCP or UDP destination port.
    DstPort,
    /// Protocol above IP.
    Protocol,
    /// Identifier of the outermost VLAN tag.
    Vlan,
}

impl SubFlowSpec {
    /// Returns the fields as [`weir_demux::SubFlows`] takes them.
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

/// An invalid setting: its key, the given value, and the allowed values. If the value is a table of keys, as for
/// `subflows`, the word "given" stands for it: "`subflows` is given; it must be left out".
type InvalidSetting = (&'static str, String, String);

impl ChannelSpec {
    /// Returns true if checksums are validated or datagrams reassembled before a module sees the packets.
    pub(crate) fn is_preprocessed(&self) -> bool {
        self.checksum.is_some() || self.reassemble
    }

    pub(crate) fn check_preprocessing(&self) -> Result<(), InvalidSetting> {
        self.check_view()?;
        if self.reassemble && self.visibility == MappedPackets::All {
            let wanted =
                "false where `visibility` is \"all\": modules then read packets only in the memory in which they arrive, which has no reassembled datagrams".to_owned();
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

    /// Checks that no other setting of the channel reveals the fields that its view hides. The transformed packets of
    /// a view are in separate memory, and cannot be forwarded.
    fn check_view(&self) -> Result<(), InvalidSetting> {
        let view = self.effective_view();
        if view == PacketView::ALL {
            return Ok(());
        }
        if self.visibility == MappedPackets::All {
            let wanted = format!(
                "\"selected\" where its packets are shown by a view (`{view}`): the interface's memory contains the original packets"
            );
            return Err(("visibility", "\"all\"".to_owned(), wanted));
        }
        // With preprocessing the view comes last, so the hash that chooses the sub-flow would be of the original fields.
        if self.subflows.is_some() && self.is_preprocessed() {
            let wanted = format!(
                "left out where its packets are shown by a view (`{view}`) and are preprocessed (`checksum`, `reassemble`): sub-flows would reveal hidden fields"
            );
            return Err(("subflows", "given".to_owned(), wanted));
        }
        if let Some(target) = &self.forward {
            let wanted = format!(
                "left out where its packets are shown by a view (`{view}`): a forwarded packet would be changed by the view, or contain hidden fields. \
                 Let a channel without a view forward packets, or let the module send frames of its own"
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
