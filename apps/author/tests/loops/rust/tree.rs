// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A function over a tree of 256 nodes, which calls itself.
impl Loop {
    fn count(&self, node: u8) -> u64 {
        let [left, right] = self.nodes[usize::from(node)];
        if node == 0 {
            return 0;
        }
        self.count(left) + 1 + self.count(right) // loop
    }
}

impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        self.sum += self.count(1);
        Verdict::Pass
    }
}
