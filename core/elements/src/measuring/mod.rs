//! Elements that count and show packets.

mod aggregate_counter;
mod aggregate_ip;
mod aggregate_ip_flows;
mod average_counter;
mod counter;
mod flow_table;
mod ip_field;
mod ip_rate_monitor;
mod print;
mod random_sample;
mod rate_average;

pub use rate_average::RateAverage;
use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &counter::CLASS,
    &average_counter::CLASS,
    &aggregate_ip_flows::CLASS,
    &aggregate_ip::CLASS,
    &aggregate_counter::CLASS,
    &ip_rate_monitor::CLASS,
    &random_sample::CLASS,
    &print::CLASS,
];
