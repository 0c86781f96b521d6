//! The ledger's lines: what is written is read, what is changed is found, and usage adds up.

mod adding;
mod damage;
mod lines;
mod make;
