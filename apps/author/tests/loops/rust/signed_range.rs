// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A range around a port, with negative numbers in it.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        let low = i32::from(packet.src_port) - 100;
        for port in low..=low + 200 { // loop
            self.sum ^= (port as u64) << (self.sum & 7);
        }
        Verdict::Pass
    }
}
