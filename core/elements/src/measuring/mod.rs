//! Elements that count and show packets.

mod aggregate_ip_flows;
mod average_counter;
mod counter;
mod flow_table;
mod print;
mod rate_average;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] =
    &[&counter::CLASS, &average_counter::CLASS, &aggregate_ip_flows::CLASS, &print::CLASS];
