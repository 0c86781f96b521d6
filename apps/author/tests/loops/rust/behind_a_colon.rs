// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The bytes behind a colon.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        let Some(at) = bytes.iter().position(|byte| *byte == b':') else { return Verdict::Pass };
        let rest = bytes.get(at..).unwrap_or_default();
        for byte in rest { // loop
            self.sum += u64::from(*byte);
        }
        Verdict::Pass
    }
}
