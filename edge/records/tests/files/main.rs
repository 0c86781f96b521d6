//! Record files as their readers see them.

mod python;
mod refused;
mod round_trip;
mod rows;
mod stopped;
