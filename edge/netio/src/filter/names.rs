//! Name lookup with the system's tables and name servers, for filters of the user who runs weir.

use std::io::Read;
use std::net::IpAddr;
use weir_filter::{Names, PortName, Transport};

/// The most bytes of the table of services that are read.
const TABLE_BYTES_MAX: u64 = 1 << 20;
const TABLE: &str = "/etc/services";

/// A lookup of hosts with [`weir_os::resolve`], and of ports in /etc/services.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for address in weir_os::resolve(name, 0).into_iter().flatten() {
            if !found.contains(&address.ip()) {
                found.push(address.ip());
            }
        }
        found
    }

    fn service(&self, name: &str) -> Option<PortName> {
        let mut table = String::new();
        std::fs::File::open(TABLE).ok()?.take(TABLE_BYTES_MAX).read_to_string(&mut table).ok()?;
        find_service(&table, name)
    }
}

/// The port of a service name or alias in a table in the format of services(5).
fn find_service(table: &str, name: &str) -> Option<PortName> {
    let mut found: Option<PortName> = None;
    for line in table.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let (Some(official), Some(number)) = (words.next(), words.next()) else { continue };
        if official != name && !words.any(|alias| alias == name) {
            continue;
        }
        let Some((port, protocol)) = number.split_once('/') else { continue };
        let (Ok(port), Some(protocol)) = (port.parse(), transport(protocol)) else { continue };
        match &mut found {
            None => found = Some(PortName { port, protocol: Some(protocol) }),
            // The service exists for several protocols, with the same port.
            Some(service) if service.port == port => service.protocol = None,
            Some(_) => {}
        }
    }
    found
}

fn transport(name: &str) -> Option<Transport> {
    match name {
        "tcp" => Some(Transport::Tcp),
        "udp" => Some(Transport::Udp),
        "sctp" => Some(Transport::Sctp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_port_and_protocol_of_its_lines() {
        let table = "# name\nweb 81/tcp www # a comment\nboth 90/tcp\nboth 90/udp\nodd 91/ddp\nlarge 70000/tcp\nbare\n";
        assert_eq!(find_service(table, "www"), Some(PortName { port: 81, protocol: Some(Transport::Tcp) }));
        assert_eq!(find_service(table, "both"), Some(PortName { port: 90, protocol: None }));
        for name in ["odd", "large", "bare", "#", "a", ""] {
            assert_eq!(find_service(table, name), None, "{name}");
        }
    }
}
