//! TCP streams: the events of connections that weir follows for a module with a table `[tcp]` in its manifest.

use crate::stream_event::StreamEventFields;
use crate::Ip;
use core::marker::PhantomData;
use core::ops::Deref;

pub use crate::stream_event::{cause, kind, state};

/// An event of a TCP stream, and through [`Deref`] its [`StreamEventFields`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct StreamEvent<'a> {
    fields: &'a StreamEventFields,
    // The bytes belong to weir for the duration of one call.
    only_here: PhantomData<*const u8>,
}

impl Deref for StreamEvent<'_> {
    type Target = StreamEventFields;

    #[inline(always)]
    fn deref(&self) -> &StreamEventFields {
        self.fields
    }
}

impl<'a> StreamEvent<'a> {
    /// # Safety
    ///
    /// `fields` must be the address that weir gave to `weir_stream`, in that call.
    #[inline(always)]
    pub(crate) unsafe fn new(fields: *const StreamEventFields) -> Self {
        // SAFETY: weir keeps the event aligned, whole and unchanged for the duration of a call.
        Self { fields: unsafe { &*fields }, only_here: PhantomData }
    }

    /// Returns the bytes of the event.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        if self.fields.len == 0 {
            return &[];
        }
        // SAFETY: only weir writes the event, with the address and length of bytes that are mapped for reading for the
        // duration of the call.
        unsafe {
            core::slice::from_raw_parts(self.fields.data as usize as *const u8, self.fields.len as usize)
        }
    }

    /// Returns the address of the client.
    pub fn client(&self) -> Ip {
        Ip::v6(self.fields.client)
    }

    /// Returns the address of the server.
    pub fn server(&self) -> Ip {
        Ip::v6(self.fields.server)
    }
}
