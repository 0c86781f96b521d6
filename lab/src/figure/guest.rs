//! Modules that only experiments need.

use super::FigureError;
use crate::BenchError;
use crate::module::append_manifest;

/// A module that takes `turns` turns of a loop for each packet, and does nothing else. That is proved, so it may run without a reservation.
///
/// # Errors
/// None: its text is constant but for the number.
pub fn busy(turns: u32) -> Result<Vec<u8>, FigureError> {
    assemble(
        "busy",
        "",
        &format!(
            r#"(module (memory (export "memory") 1)
            (func (export "weir_packet") (param i32) (result i32) (local $left i32)
                (local.set $left (i32.const {turns}))
                (loop $turn
                    (br_if $turn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
                (i32.const 0)))"#
        ),
    )
}

/// Where in a frame [`turning`] finds its number, and [`calling`] what it says: behind the headers of a UDP packet over Ethernet.
pub const TURNS_AT: usize = 42;

/// A module that takes as many turns of a loop as each packet says, at most so many, and does nothing else.
///
/// # Errors
/// None: its text is constant but for the number.
pub fn turning(most: u32) -> Result<Vec<u8>, FigureError> {
    assemble(
        "turning",
        "",
        &format!(
            r#"(module (memory (export "memory") 1)
            (func (export "weir_packet") (param $descriptor i32) (result i32) (local $left i32)
                (local.set $left (i32.load (i32.add (i32.load offset=8 (local.get $descriptor)) (i32.const {TURNS_AT}))))
                (if (i32.gt_u (local.get $left) (i32.const {most}))
                    (then (local.set $left (i32.const {most}))))
                (if (local.get $left) (then
                    (loop $turn
                        (br_if $turn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
                (i32.const 0)))"#
        ),
    )
}

/// A module that calls a service of this name for each packet, with the first 12 bytes that stand behind its headers, and waits for nothing.
///
/// # Errors
/// None: its text is constant but for the name.
pub fn calling(service: &str) -> Result<Vec<u8>, FigureError> {
    assemble(
        "calling",
        &format!("calls = ['{service}']\n"),
        &format!(
            r#"(module (import "weir" "call" (func $call (param i32 i32 i32 i64) (result i64)))
            (memory (export "memory") 1)
            (func (export "weir_packet") (param $descriptor i32) (result i32) (local $at i32)
                (local.set $at (i32.add (i32.load offset=8 (local.get $descriptor)) (i32.const {TURNS_AT})))
                (i64.store (i32.const 64) (i64.load (local.get $at)))
                (i32.store (i32.const 72) (i32.load offset=8 (local.get $at)))
                (drop (call $call (i32.const 0) (i32.const 64) (i32.const 12) (i64.const 1000000000)))
                (i32.const 0))
            (func (export "weir_answer") (param i64 i32 i32)))"#
        ),
    )
}

/// A module of this name from its text, with these lines in its manifest.
///
/// # Errors
/// The text is none of WebAssembly.
pub fn assemble(name: &str, manifest: &str, text: &str) -> Result<Vec<u8>, FigureError> {
    let failed = |said: wat::Error| BenchError::Failed { command: name.to_owned(), said: said.to_string() };
    let mut wasm = wat::parse_str(text).map_err(failed)?;
    let head = format!(
        "name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'Apache-2.0 OR MIT'\nsummary = 'part of an experiment'\nmemory = '64 KiB'\n{manifest}"
    );
    append_manifest(&mut wasm, &head);
    Ok(wasm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::{Admitted, Tier};

    #[test]
    fn the_busy_module_is_proved_and_the_others_are_admitted() {
        let admitted = Admitted::admit(busy(1000).unwrap(), &[]).unwrap();
        assert_eq!(admitted.tier(), Tier::Proved);
        assert!(Admitted::admit(turning(1000).unwrap(), &[]).is_ok());
        assert_eq!(Admitted::admit(calling("make").unwrap(), &[]).unwrap().tier(), Tier::Proved);
    }
}
