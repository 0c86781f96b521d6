// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Items with a length that can be 0.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        let mut at = 0;
        while at < bytes.len() { // loop
            let step = usize::from(bytes[at]);
            if step == 0 {
                break;
            }
            self.sum += 1;
            at += step;
        }
        Verdict::Pass
    }
}
