//! Graphs on several threads give the results of one thread.

#![forbid(unsafe_code)]

mod control;
mod graphs;
mod handlers;
mod queues;
mod random;
mod support;
