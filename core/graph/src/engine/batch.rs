//! Packets that go through an element together.

use super::order::Order;
use super::packet::GraphPacket;

/// Packets with their orders. Each packet has one order.
#[derive(Debug, Default)]
pub struct Batch {
    packets: Vec<GraphPacket>,
    orders: Vec<Order>,
}

impl Batch {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if there is no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the packets.
    pub fn packets_mut(&mut self) -> &mut [GraphPacket] {
        &mut self.packets
    }

    /// Adds a packet.
    pub fn push(&mut self, packet: GraphPacket, order: Order) {
        self.packets.push(packet);
        self.orders.push(order);
    }

    /// Adds a packet behind those that came before, with the next index.
    pub fn push_next(&mut self, packet: GraphPacket) {
        let order = Order::first(self.len());
        self.push(packet, order);
    }

    /// Moves all packets of another batch behind these.
    pub fn append(&mut self, other: &mut Batch) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.packets.append(&mut other.packets);
        self.orders.append(&mut other.orders);
    }

    /// Removes and returns the packets with their orders.
    pub fn drain(&mut self) -> impl Iterator<Item = (GraphPacket, Order)> + '_ {
        self.packets.drain(..).zip(self.orders.drain(..))
    }

    /// Removes and returns all packets.
    pub fn take_packets(&mut self) -> std::vec::Drain<'_, GraphPacket> {
        self.orders.clear();
        self.packets.drain(..)
    }

    /// Puts the packets into their order. Packets of equal order keep theirs.
    pub fn sort(&mut self) {
        if !self.orders.is_sorted() {
            let mut all: Vec<(GraphPacket, Order)> = self.drain().collect();
            all.sort_by_key(|(_, order)| *order);
            (self.packets, self.orders) = all.into_iter().unzip();
        }
    }
}
