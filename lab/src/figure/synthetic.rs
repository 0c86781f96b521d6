//! Small modules in WebAssembly text, for experiments and for the benchmark.

use crate::error::{Context, LabError};
use crate::module::append_manifest;

/// A module with a loop of this many iterations per packet. It is proved, so it needs no reservation.
pub fn busy(iterations: u32) -> Result<Vec<u8>, LabError> {
    assemble(
        "busy",
        "",
        &format!(
            r#"(module (memory (export "memory") 1)
            (func (export "weir_packet") (param i32) (result i32) (local $left i32)
                (local.set $left (i32.const {iterations}))
                (loop $again
                    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
                (i32.const 0)))"#
        ),
    )
}

/// The offset of the payload that [`looping`] and [`calling`] read: behind the headers of UDP over Ethernet.
pub const PAYLOAD_AT: usize = 42;

/// A module with a loop whose number of iterations is in the packet's payload, at most `iterations_max`.
pub fn looping(iterations_max: u32) -> Result<Vec<u8>, LabError> {
    assemble(
        "looping",
        "",
        &format!(
            r#"(module (memory (export "memory") 1)
            (func (export "weir_packet") (param $descriptor i32) (result i32) (local $left i32)
                (local.set $left (i32.load (i32.add (i32.load offset=8 (local.get $descriptor)) (i32.const {PAYLOAD_AT}))))
                (if (i32.gt_u (local.get $left) (i32.const {iterations_max}))
                    (then (local.set $left (i32.const {iterations_max}))))
                (if (local.get $left) (then
                    (loop $again
                        (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
                (i32.const 0)))"#
        ),
    )
}

/// A module that calls a service for each packet, with the first 12 bytes of the payload, and ignores the answer.
pub fn calling(service: &str) -> Result<Vec<u8>, LabError> {
    assemble(
        "calling",
        &format!("calls = ['{service}']\n"),
        &format!(
            r#"(module (import "weir" "call" (func $call (param i32 i32 i32 i64) (result i64)))
            (memory (export "memory") 1)
            (func (export "weir_packet") (param $descriptor i32) (result i32) (local $at i32)
                (local.set $at (i32.add (i32.load offset=8 (local.get $descriptor)) (i32.const {PAYLOAD_AT})))
                (i64.store (i32.const 64) (i64.load (local.get $at)))
                (i32.store (i32.const 72) (i32.load offset=8 (local.get $at)))
                (drop (call $call (i32.const 0) (i32.const 64) (i32.const 12) (i64.const 1000000000)))
                (i32.const 0))
            (func (export "weir_answer") (param i64 i32 i32)))"#
        ),
    )
}

/// Assembles a module from its WebAssembly text, with `manifest` as further lines of its manifest.
pub fn assemble(name: &str, manifest: &str, text: &str) -> Result<Vec<u8>, LabError> {
    let mut wasm = wat::parse_str(text).context(name)?;
    let full_manifest = format!(
        "name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'Apache-2.0 OR MIT'\nsummary = 'part of an experiment'\nmemory = '64 KiB'\n{manifest}"
    );
    append_manifest(&mut wasm, &full_manifest);
    Ok(wasm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_admission::{Admitted, Tier};

    #[test]
    fn the_busy_module_is_proved_and_the_others_are_admitted() {
        let admitted = Admitted::admit(busy(1000).unwrap(), &[]).unwrap();
        assert_eq!(admitted.tier(), Tier::Proved);
        assert!(Admitted::admit(looping(1000).unwrap(), &[]).is_ok());
        assert_eq!(Admitted::admit(calling("make").unwrap(), &[]).unwrap().tier(), Tier::Proved);
    }
}
