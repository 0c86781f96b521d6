//! dns-names in Rust: names that DNS queries ask for.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::Names;
use weir_guest::containers::{Map, MapEntry};
use weir_guest::parse::{Cursor, DnsName, NameCase, ParseError};
use weir_guest::{emit, flag, Packet, Str, Verdict};

#[derive(Clone, Copy)]
struct Queries {
    first_ns: u64,
    count: u64,
}

struct State {
    names: Map<DnsName, Queries, 16384>,
    position: usize,
}

/// The name that a query asks for; `None` for other messages.
fn question(message: &[u8]) -> Result<Option<DnsName>, ParseError> {
    let mut cursor = Cursor::new(message);
    let header = cursor.dns_header()?;
    if header.is_response() || header.questions != 1 {
        return Ok(None);
    }
    cursor.dns_name(message, NameCase::Lower).map(Some)
}

#[inline(never)]
fn report(entry: &MapEntry<DnsName, Queries>) {
    let value = entry.value;
    emit(&Names { first: value.first_ns, name: Str::new(&entry.key), queries: value.count });
}

impl State {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        if !packet.has(flag::UDP | flag::L4) || packet.dst_port != 53 {
            return Verdict::Pass;
        }
        if let Ok(Some(name)) = question(packet.payload()) {
            let added = self.names.add(name);
            if added.value.count == 0 {
                added.value.first_ns = packet.ts_ns;
            }
            added.value.count += 1;
            if let Some(evicted) = &added.evicted {
                report(evicted);
            }
        }
        Verdict::Pass
    }

    fn rest(&mut self, _now: u64) -> bool {
        self.names.part::<1024>(&mut self.position, |entry| report(entry))
    }
}

weir_guest::module! {
    state: State = State { names: Map::new(Queries { first_ns: 0, count: 0 }), position: 0 };
    packet: State::packet;
    rest: State::rest;
}
