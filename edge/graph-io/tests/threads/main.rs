//! Graphs on several threads give the results of one thread.

#![forbid(unsafe_code)]

mod control;
mod control_element;
mod graphs;
mod handlers;
mod queues;
mod random;
mod sockets;
mod support;
