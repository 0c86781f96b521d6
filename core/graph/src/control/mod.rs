//! The protocol of Click's ControlSocket, version 1.3: it calls handlers of a running graph.
//!
//! A peer sends lines with commands, and gets for each of them a line that begins with a code, as in FTP. A
//! [`ControlSession`] is the state of one connection. It knows no socket: bytes come from its caller, and go to it.
//!
//! - E. Kohler: manual page of the element ControlSocket of Click.

mod command;
mod session;

pub use session::{
    CONTROL_INPUT_MAX, CONTROL_VALUE_MAX, ControlHandlers, ControlSession, HandlerAction, HandlerCall,
};
