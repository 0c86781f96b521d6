//! What a link's scheduler promises, in simulated time.

mod changes;
mod disciplines;
mod figures;
mod judge;
mod properties;
mod simulator;
mod small;
mod traces;
