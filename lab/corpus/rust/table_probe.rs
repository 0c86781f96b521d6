//! A flow table with linear probing over an array: in flow monitors.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

const SLOTS: usize = 1024;
const PROBES: usize = 8;

#[derive(Clone, Copy)]
struct Flow {
    key: u64,
    bytes: u64,
}

struct Flows {
    slots: [Flow; SLOTS],
}

impl Flows {
    fn packet(&mut self, p: &Packet) -> Verdict {
        let key = p.flow_hash | 1;
        let begin = (key >> 17) as usize;
        for probe in 0..PROBES {
            let flow = &mut self.slots[(begin + probe) % SLOTS];
            if flow.key == key || flow.key == 0 {
                flow.key = key;
                flow.bytes += u64::from(p.wire_len);
                return Verdict::Pass;
            }
        }
        Verdict::Drop
    }

    fn stop(&mut self, _now: u64) {
        let bytes = self.slots.iter().map(|flow| flow.bytes).sum();
        weir_guest::emit(&module::Seen { value: bytes });
    }
}

weir_guest::module! {
    state: Flows = Flows { slots: [Flow { key: 0, bytes: 0 }; SLOTS] };
    packet: Flows::packet;
    stop: Flows::stop;
}
