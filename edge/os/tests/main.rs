//! All integration tests of `weir-os` that need no program of their own: each program links the same libraries once more.

mod children;
mod walls;
