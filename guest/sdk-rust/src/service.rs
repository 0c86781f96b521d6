//! Services of other sessions, and of this one.

use crate::{host, Error};

/// How a call of a service was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By the module that serves it: [`message`] has what it said.
    Answered,
    /// Not before its deadline.
    Late,
    /// The module that serves it is there no longer.
    Gone,
    /// The module that serves it lost its own call.
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

/// Calls a service, by its place in the manifest's `calls`, to be answered within `deadline` ns. The ticket comes back with the answer.
///
/// # Errors
///
/// [`Error::Denied`] where the session may not, [`Error::When`] where nobody offers it now, [`Error::Full`] and [`Error::Range`] where a limit is reached.
pub fn call(service: u32, message: &[u8], deadline: u64) -> Result<u64, Error> {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    // SAFETY: the address and length are those of a slice.
    let ticket = unsafe { host::call(service, message.as_ptr(), len, deadline) };
    u64::try_from(ticket).map_err(|_| Error::of(i32::try_from(ticket).unwrap_or(i32::MIN)))
}

/// The message of the call or answer that the module is being told of, as much of it as there is room for.
pub fn message(room: &mut [u8]) -> &[u8] {
    let most = u32::try_from(room.len()).unwrap_or(u32::MAX);
    // SAFETY: the address and length are those of a slice that is held exclusively; the host writes no more than its length.
    let len = unsafe { host::message(room.as_mut_ptr(), most) };
    let len = usize::try_from(len).unwrap_or(0).min(room.len());
    &room[..len]
}

/// Answers a call that the module was to serve, now or later.
///
/// # Errors
///
/// [`Error::Range`] where the message is too long, [`Error::Unknown`] where nobody waits for it any more.
pub fn reply(call: u64, message: &[u8]) -> Result<(), Error> {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    // SAFETY: the address and length are those of a slice.
    Error::check(unsafe { host::reply(call, message.as_ptr(), len) }).map(|_| ())
}
