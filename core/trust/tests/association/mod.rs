//! Tests of key establishment and of the encrypted messages after it, with attackers.

mod altered;
mod forged;
mod honest;
mod middle;
pub mod pair;
mod raw;
mod stream;
