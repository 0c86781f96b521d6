//! Tests of the ledger's lines: reading, verification, and sums of usage.

mod adding;
mod damage;
mod lines;
mod make;
