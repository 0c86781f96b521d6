// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The entries of a table in a packet.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        for entry in bytes.chunks_exact(12) { // loop
            self.sum += u64::from(entry[0]);
        }
        Verdict::Pass
    }
}
