//! Live interfaces, in network namespaces that the tests create. They need root and ip(8).
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod changing;
mod devices;
mod fanout;
mod frames;
mod holding;
mod net;
mod opening;
mod queues;
mod rates;
mod receiving;
mod sending;
