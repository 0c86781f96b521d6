//! Packets that go through an element together.

use super::order::Order;
use super::packet::GraphPacket;
use super::ports::PortReference;

/// Packets with their orders. Each packet has one order.
#[derive(Debug, Default)]
pub struct Batch {
    packets: Vec<GraphPacket>,
    orders: Vec<Order>,
    /// The packets may not be in order.
    is_unsorted: bool,
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
    pub fn packets(&self) -> &[GraphPacket] {
        &self.packets
    }

    /// Returns the packets.
    pub fn packets_mut(&mut self) -> &mut [GraphPacket] {
        &mut self.packets
    }

    /// Adds a packet behind all others.
    pub(super) fn push(&mut self, packet: GraphPacket, order: Order) {
        self.is_unsorted |= self.orders.last().is_some_and(|last| *last > order);
        self.packets.push(packet);
        self.orders.push(order);
    }

    /// Adds at most this number of packets behind those that came before, with the next indices.
    #[inline]
    pub fn extend_next(&mut self, count: usize, mut next: impl FnMut() -> Option<GraphPacket>) {
        let before = self.len();
        self.packets.reserve(count);
        while self.packets.len() < before + count
            && let Some(packet) = next()
        {
            self.packets.push(packet);
        }
        self.orders.extend((before..self.packets.len()).map(Order::first));
    }

    /// Moves all packets of another batch behind these.
    pub(super) fn append(&mut self, other: &mut Batch) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        self.packets.append(&mut other.packets);
        self.orders.append(&mut other.orders);
        self.is_unsorted = true;
        other.is_unsorted = false;
    }

    /// Gives the packets the orders of those that come first.
    pub(super) fn number(&mut self) {
        self.orders.clear();
        self.orders.extend((0..self.packets.len()).map(Order::first));
        self.is_unsorted = false;
    }

    /// Removes and returns the packets with their orders.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (GraphPacket, Order)> + '_ {
        self.is_unsorted = false;
        self.packets.drain(..).zip(self.orders.drain(..))
    }

    /// Removes and returns all packets.
    pub fn take_packets(&mut self) -> std::vec::Drain<'_, GraphPacket> {
        self.orders.clear();
        self.is_unsorted = false;
        self.packets.drain(..)
    }

    /// Puts the packets into their order. Packets of equal order keep theirs.
    pub(super) fn sort(&mut self) {
        if std::mem::take(&mut self.is_unsorted) && !self.orders.is_sorted() {
            let mut all: Vec<(GraphPacket, Order)> = self.drain().collect();
            all.sort_by_key(|(_, order)| *order);
            (self.packets, self.orders) = all.into_iter().unzip();
        }
    }
}

/// The packets that elements have emitted, in order, each from an output.
#[derive(Debug, Default)]
pub(super) struct Emissions {
    batch: Batch,
    /// The outputs, each with the number of packets up to its last one. Neighbours differ.
    runs: Vec<(PortReference, usize)>,
}

impl Emissions {
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Adds a packet. Its order is assigned when the element has returned.
    #[inline]
    pub fn push(&mut self, from: PortReference, packet: GraphPacket) {
        self.batch.packets.push(packet);
        self.batch.orders.push(Order::first(0));
        match self.runs.last_mut() {
            Some((last, end)) if *last == from => *end += 1,
            _ => self.runs.push((from, self.batch.len())),
        }
    }

    /// Adds packets of an output.
    #[inline]
    pub fn extend(&mut self, from: PortReference, packets: impl Iterator<Item = GraphPacket>) {
        let before = self.batch.len();
        self.batch.packets.extend(packets);
        let end = self.batch.len();
        self.batch.orders.resize(end, Order::first(0));
        match self.runs.last_mut() {
            Some((last, last_end)) if *last == from => *last_end = end,
            _ if end > before => self.runs.push((from, end)),
            _ => {}
        }
    }

    /// Removes and returns the last packet.
    pub fn pop(&mut self) -> Option<(PortReference, GraphPacket)> {
        self.batch.orders.pop();
        let packet = self.batch.packets.pop()?;
        let (from, _) = *self.runs.last()?;
        let before = self.runs.len().checked_sub(2).map_or(0, |index| self.runs[index].1);
        match self.runs.last_mut() {
            Some((_, end)) if *end > before + 1 => *end -= 1,
            _ => _ = self.runs.pop(),
        }
        Some((from, packet))
    }

    /// Gives the packets from an index on their orders, as parts of the order of the packet for which they were emitted.
    pub fn assign_orders(&mut self, first: usize, order: Order) {
        let orders = &mut self.batch.orders[first..];
        match orders {
            [] => {}
            [only] => *only = order,
            _ => {
                let count = orders.len();
                orders.iter_mut().enumerate().for_each(|(index, it)| *it = order.part(index, count));
            }
        }
    }

    /// Removes all packets if they are of one output, and returns the output. The batch has to be empty.
    pub fn take_single(&mut self, batch: &mut Batch) -> Option<PortReference> {
        let [(from, _)] = self.runs[..] else { return None };
        std::mem::swap(batch, &mut self.batch);
        batch.is_unsorted = true;
        self.runs.clear();
        Some(from)
    }

    /// Removes all packets, and hands those of each output over, at most this number at once.
    pub fn drain(&mut self, most: usize, batch: &mut Batch, mut take: impl FnMut(PortReference, &mut Batch)) {
        if self.len() <= most
            && let Some(from) = self.take_single(batch)
        {
            return take(from, batch);
        }
        let mut all = self.batch.packets.drain(..).zip(self.batch.orders.drain(..));
        let mut start = 0;
        for (from, end) in self.runs.drain(..) {
            for at in start..end {
                if let Some((packet, order)) = all.next() {
                    batch.push(packet, order);
                }
                if batch.len() >= most || at + 1 == end {
                    take(from, batch);
                }
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::PacketPool;
    use super::*;

    #[test]
    fn emitted_packets_come_by_output_in_pieces_or_from_the_end() {
        let mut pool = PacketPool::default();
        let port = |port| PortReference { element: 1, port };
        let mut emit = |emitted: &mut Emissions| {
            for (byte, output) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 0)] {
                emitted.push(port(output), pool.of_bytes(&[byte]));
            }
        };
        let (mut emitted, mut pieces) = (Emissions::default(), Vec::new());
        emit(&mut emitted);
        emitted.drain(2, &mut Batch::default(), |from, batch| {
            pieces
                .push((from.port, batch.take_packets().map(|packet| packet.bytes()[0]).collect::<Vec<_>>()));
        });
        assert_eq!(pieces, [(0, vec![0, 1]), (0, vec![2]), (1, vec![3]), (0, vec![4])]);
        assert!(emitted.is_empty());
        emit(&mut emitted);
        let popped = std::iter::from_fn(|| emitted.pop());
        let popped: Vec<_> = popped.map(|(from, packet)| (from.port, packet.bytes()[0])).collect();
        assert_eq!(popped, [(0, 4), (1, 3), (0, 2), (0, 1), (0, 0)]);
        emit(&mut emitted);
        assert_eq!(emitted.len(), 5);
    }
}
