//! Record files as their readers see them.

mod crashed;
mod python;
mod refused;
mod round_trip;
mod rows;
mod stopped;
