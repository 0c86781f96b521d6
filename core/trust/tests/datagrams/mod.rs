//! Tests of associations over datagrams, on a simulated network and with attackers.

mod adversaries;
mod flood;
mod honest;
mod moving;
mod network;
mod renewal;
mod window;
