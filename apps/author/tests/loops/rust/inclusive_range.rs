// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A range of ports, the last one included.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        for port in packet.src_port..=packet.dst_port { // loop
            self.sum ^= u64::from(port) << (self.sum & 7);
        }
        Verdict::Pass
    }
}
