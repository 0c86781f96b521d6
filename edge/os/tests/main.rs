//! All integration tests of `weir-os` that need no program of their own, in one program, because each program links
//! the same libraries again.

mod children;
mod confinement;
