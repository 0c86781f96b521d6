//! What a channel asks to have done with its packets on the way to its modules.

use crate::control::counted;
use crate::control::spec::{ChannelSpec, QUEUE_USUAL, RecordVisibility};
use serde::{Deserialize, Serialize};
use weir_datapath::queue::PacketQueue;
use weir_demux::KeyField;
use weir_wire::PacketView;

/// Sub-flows of a channel at most.
pub const SUBFLOWS_MAX: u16 = 1024;

/// What is done about checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// A packet with a wrong one, of IPv4, TCP, UDP or ICMP, is dropped and counted.
    Verify,
}

/// Sub-flows of a channel. Each has the same part of the channel's queue; a module gets them in turn, and in each the packets in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubFlowSpec {
    /// Packets that have these fields in common are in one.
    #[serde(deserialize_with = "counted::list")]
    pub by: Vec<ShardField>,
    /// How many queues there are. Which one a packet gets into is chosen by a hash with a key, so several flows share one where there are many.
    pub queues: u16,
}

/// A field by which packets are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardField {
    /// Source address.
    SrcAddr,
    /// Destination address.
    DstAddr,
    /// TCP or UDP source port. Fragments have none, so that all of a datagram are in one sub-flow.
    SrcPort,
    /// TCP or UDP destination port.
    DstPort,
    /// The protocol above IP.
    Protocol,
    /// The outermost VLAN tag's number.
    Vlan,
}

impl SubFlowSpec {
    /// The fields as they are looked up.
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

/// What is wrong: the key, what it is, and what would be right.
type Wrong = (&'static str, String, String);

impl ChannelSpec {
    /// Whether something is done with its packets before a module sees them.
    pub(crate) fn is_handled(&self) -> bool {
        self.checksum.is_some() || self.reassemble
    }

    pub(crate) fn check_handling(&self) -> Result<(), Wrong> {
        self.check_view()?;
        if self.reassemble && self.sees == RecordVisibility::All {
            let wanted =
                "false where `sees` is \"all\": whole datagrams are in memory of their own".to_owned();
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

    /// A view has memory of its own, and what is hidden of a packet goes nowhere.
    fn check_view(&self) -> Result<(), Wrong> {
        let view = self.shows();
        if view == PacketView::ALL {
            return Ok(());
        }
        if self.sees == RecordVisibility::All {
            let wanted = format!(
                "\"selected\" where its packets are shown by a view (`{view}`): the interface's own memory has them as they are"
            );
            return Err(("sees", "\"all\"".to_owned(), wanted));
        }
        if self.subflows.is_some() && self.is_handled() {
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

    /// A queue for a module of this channel.
    pub(crate) fn new_queue(&self) -> PacketQueue {
        let flows = self.subflows.as_ref().map_or(1, |subflows| subflows.queues.max(1));
        PacketQueue::divided(self.queue_len(), flows)
    }

    /// The number of packets that a queue of this channel holds.
    pub(crate) fn queue_len(&self) -> u32 {
        self.queue.unwrap_or(QUEUE_USUAL)
    }
}
