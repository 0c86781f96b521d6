//! Values of handlers, read as arguments are, and values in texts.

use core::net::{Ipv4Addr, Ipv6Addr};
use weir_graph::Landmark;
use weir_graph::arguments::{ArgumentContext, ArgumentValue, NoNames};
use weir_graph::engine::Reason;
use weir_units::{Nanos, Timestamp};

/// Reads the value of a write handler.
///
/// # Errors
///
/// Fails with a reason if the text is no value of the type.
pub fn read<T: ArgumentValue>(text: &str) -> Result<T, Reason> {
    let landmark = Landmark { file: "handler".into(), line: 0 };
    let context = ArgumentContext { element: "", class: "", landmark: &landmark, names: &NoNames };
    T::parse_argument(text.trim(), &context).map_err(|fault| fault.to_string())
}

/// Returns a time in seconds, with six decimals if that is exact, else with nine, as Click writes it.
pub fn seconds(time: Timestamp) -> String {
    let (seconds, fraction) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    if fraction.is_multiple_of(1000) {
        return format!("{seconds}.{:06}", fraction / 1000);
    }
    format!("{seconds}.{fraction:09}")
}

/// Returns an IPv6 address as Click writes it: one with an IPv4 address in it ends with that, as in `::192.0.2.1`.
pub fn ipv6(address: Ipv6Addr) -> String {
    match address.octets() {
        octets if octets == [0; 16] => "::".to_owned(),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => format!("::{}", Ipv4Addr::new(a, b, c, d)),
        _ => address.to_string(),
    }
}

/// Returns an interval with its unit, as Click writes it.
pub fn interval(Nanos(nanos): Nanos) -> String {
    match nanos {
        _ if nanos >= Nanos::SECOND.0 => format!("{}s", seconds(Timestamp(nanos))),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => format!("{}us", nanos / 1000),
        _ => format!("{nanos}ns"),
    }
}
