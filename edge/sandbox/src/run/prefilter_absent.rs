//! In place of `prefilter.rs` on processors without AVX2: there is no prefilter, so each place of a text is compared.

/// Never made.
#[derive(Clone, Debug)]
pub(crate) enum NoPrefilter {}

pub(crate) use NoPrefilter as Prefilter;

impl NoPrefilter {
    pub(crate) fn new(_: &[&[u8]]) -> Option<Self> {
        None
    }

    pub(crate) unsafe fn first_candidate(&self, _: *const u8, _: usize) -> Option<usize> {
        match *self {}
    }
}
