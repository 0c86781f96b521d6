//! The guarantees of a link's scheduler, in simulated time.

mod cases;
mod changes;
mod disciplines;
mod figures;
mod oracle;
mod properties;
mod simulator;
mod traces;
