// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Entries whose number is a quotient.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        for i in 0..bytes.len() / 12 { // loop
            self.sum += bytes.get(i * 12).map_or(0, |byte| u64::from(*byte));
        }
        Verdict::Pass
    }
}
