//! Tests of key establishment and of the encrypted messages after it, with attackers.

mod altered;
mod datagrams;
mod forged;
mod honest;
mod middle;
mod pair;
mod raw;
mod stream;
