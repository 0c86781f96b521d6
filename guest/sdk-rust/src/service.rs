//! Services: calls between sessions.

use crate::{host, Error};

/// The outcome of a call of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The serving module answered: [`message`] has the answer.
    Answered,
    /// The deadline passed first.
    Late,
    /// The serving module no longer exists.
    Gone,
    /// The serving module had a fault in its `serve` function.
    Failed,
    /// A status that this crate does not know.
    Other(i32),
}

impl From<i32> for Status {
    fn from(status: i32) -> Self {
        match status {
            0 => Self::Answered,
            1 => Self::Late,
            2 => Self::Gone,
            3 => Self::Failed,
            other => Self::Other(other),
        }
    }
}

/// Calls a service, by its index in the manifest's `calls`, with a deadline in ns from now. The answer has the returned
/// ticket.
///
/// # Errors
///
/// [`Error::Denied`] if the session may not call the service, [`Error::When`] if no session offers the service now,
/// [`Error::Full`] if too many calls wait or memory is short, [`Error::Range`] if the message is too long or the deadline
/// is out of range, [`Error::Unknown`] if the manifest's `calls` has no such index.
pub fn call(service: u32, message: &[u8], deadline: u64) -> Result<u64, Error> {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    // SAFETY: the address and length are those of a slice.
    let ticket = unsafe { host::call(service, message.as_ptr(), len, deadline) };
    u64::try_from(ticket).map_err(|_| Error::of(i32::try_from(ticket).unwrap_or(i32::MIN)))
}

/// Copies the message of the present call or answer into `room`, as much as fits, and returns the copied part.
pub fn message(room: &mut [u8]) -> &[u8] {
    let most = u32::try_from(room.len()).unwrap_or(u32::MAX);
    // SAFETY: the address and length are those of a slice that is held exclusively; the host writes no more than its length.
    let len = unsafe { host::message(room.as_mut_ptr(), most) };
    let len = usize::try_from(len).unwrap_or(0).min(room.len());
    &room[..len]
}

/// Answers a call of a service of this module. The module can answer in its `serve` function or in a later function.
///
/// # Errors
///
/// [`Error::Range`] if the message is too long, [`Error::Unknown`] if no caller waits for it any more.
pub fn reply(call: u64, message: &[u8]) -> Result<(), Error> {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    // SAFETY: the address and length are those of a slice.
    Error::check(unsafe { host::reply(call, message.as_ptr(), len) }).map(|_| ())
}
