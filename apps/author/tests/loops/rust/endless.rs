// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A loop that ends by what it reads.
impl Loop {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let bytes = packet.bytes();
        let mut at = usize::from(packet.src_port);
        loop { // loop
            at = bytes.get(at & 15).map_or(0, |byte| usize::from(*byte));
            self.sum += 1;
            if at == 7 {
                break;
            }
        }
        Verdict::Pass
    }
}
