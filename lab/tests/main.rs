//! All integration tests of `weir-lab`, in one program: each program links the same libraries once more.

mod bounds;
mod differential;
mod figures;
