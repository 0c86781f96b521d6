//! All integration tests of `weir-bounds`, in one program, because each program links the same libraries again.

#![forbid(unsafe_code)]

mod attacks;
mod charge;
mod classes;
mod contributors;
mod generate;
mod generated;
mod hostile;
mod lines;
mod multiples;
mod one_table;
mod reach;
mod search;
mod support;
mod trips;
