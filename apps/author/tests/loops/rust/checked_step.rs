// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Items with a length, added by a function that fails on overflow.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        let mut at = 0_usize;
        while let Some(byte) = bytes.get(at) { // loop
            self.sum += 1;
            at = at.checked_add(usize::from(*byte)).unwrap();
        }
        Verdict::Pass
    }
}
