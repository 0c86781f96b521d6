//! Record files, read back with the readers of users.

mod crashed;
mod python;
mod refused;
mod round_trip;
mod rows;
mod stopped;
