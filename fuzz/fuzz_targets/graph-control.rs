//! Sends arbitrary bytes to a control session of a graph. The answers are the same however the bytes are cut, and the
//! session stores no more than its limit.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_graph::control::{CONTROL_INPUT_MAX, ControlHandlers, ControlSession, HandlerAction, HandlerCall};
use weir_graph::engine::{HandlerError, HandlerFault};

/// Handlers whose result follows from the call.
#[derive(Default)]
struct Calls(Vec<HandlerCall>);

impl ControlHandlers for Calls {
    fn call(&mut self, call: HandlerCall) -> Result<String, HandlerError> {
        let fault = match call.name.len() % 5 {
            0 => HandlerFault::NoElement,
            1 => HandlerFault::NoHandler,
            2 => HandlerFault::OtherDirection,
            3 => HandlerFault::Failed,
            _ if call.action == HandlerAction::Read => {
                self.0.push(call.clone());
                return Ok(call.value);
            }
            _ => HandlerFault::NoGraph,
        };
        let text = call.value.clone();
        self.0.push(call);
        Err(HandlerError { fault, text })
    }
}

fn exchange(bytes: &[u8], step: usize) -> (Vec<u8>, Vec<HandlerCall>) {
    let mut session = ControlSession::default();
    let mut calls = Calls::default();
    let mut output = Vec::new();
    let mut rest = bytes;
    loop {
        while session.advance(&mut calls) {
            output.extend_from_slice(session.output());
            session.sent(session.output().len());
        }
        output.extend_from_slice(session.output());
        session.sent(session.output().len());
        if session.is_closed() {
            return (output, calls.0);
        }
        if rest.is_empty() {
            session.end_input();
            continue;
        }
        let room = session.room();
        assert!(0 < room && room <= CONTROL_INPUT_MAX);
        let taken = session.receive(&rest[..rest.len().min(step)]);
        rest = &rest[taken..];
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (step, bytes) = bytes.split_first().map_or((1, bytes), |(step, rest)| (usize::from(*step).max(1), rest));
    assert_eq!(exchange(bytes, step), exchange(bytes, usize::MAX));
});
