//! Frames that a module makes.

use crate::host::{self, Error};

/// An output that the manifest declares. `module.rs`, which `weir build` makes from the manifest, has a constant for
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output(u32);

impl Output {
    /// The output with this number in the manifest, from 0.
    #[doc(hidden)]
    pub const fn number(number: u32) -> Self {
        Self(number)
    }

    /// Sends an Ethernet frame, from its header on and without its check sequence. weir copies the frame at once, and
    /// sends the copy after the present call. If the call is lost, the frame is not sent.
    ///
    /// # Errors
    /// [`Error::Full`] beyond [`limit`](crate::limit), [`Error::Range`] for a frame that is too long or too short,
    /// [`Error::Denied`] if the output has no destination, [`Error::When`] at the start.
    #[inline(always)]
    pub fn send<B: AsRef<[u8]> + ?Sized>(self, frame: &B) -> Result<(), Error> {
        let frame = frame.as_ref();
        // SAFETY: the address and length are those of the slice, and the host only reads it.
        Error::check(unsafe { host::send(self.0, frame.as_ptr(), frame.len() as u32) }).map(|_| ())
    }
}
