//! Key establishment and what follows it, against those who would like to be somebody else.

mod altered;
mod datagrams;
mod forged;
mod honest;
mod middle;
mod pair;
mod raw;
mod stream;
