//! The addresses of interfaces.

use super::set_up::{ETHERNET, control, request_about};
use super::sys;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// The addresses that an interface has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddresses {
    /// The first IPv4 address, and its mask.
    pub ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The gateway of a default route over the interface.
    pub gateway: Option<Ipv4Addr>,
    /// The Ethernet address.
    pub ethernet: Option<[u8; 6]>,
}

/// Returns the addresses of interfaces, in their order; none for one that does not exist.
pub fn link_addresses(interfaces: &[String]) -> Vec<LinkAddresses> {
    let Ok(socket) = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) else {
        return vec![LinkAddresses::default(); interfaces.len()];
    };
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let of = |interface: &String| {
        let ask = |code| query(&socket, interface, code);
        let address = ask(libc::SIOCGIFADDR).and_then(internet_address);
        LinkAddresses {
            ipv4: address.zip(ask(libc::SIOCGIFNETMASK).and_then(internet_address)),
            gateway: gateway(&routes, interface),
            ethernet: ask(libc::SIOCGIFHWADDR).and_then(|hardware| {
                let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|byte| byte.to_ne_bytes()[0]);
                (hardware.sa_family == ETHERNET).then_some([a, b, c, d, e, f])
            }),
        }
    };
    interfaces.iter().map(of).collect()
}

/// Asks the kernel for an address of an interface.
fn query(socket: &OwnedFd, interface: &str, code: libc::c_ulong) -> Option<libc::sockaddr> {
    let mut request = request_about(interface);
    control(socket, code, &mut request).ok()?;
    // SAFETY: the kernel has written a socket address. The zeros of a request are one, too.
    Some(unsafe { request.ifr_ifru.ifru_addr })
}

fn internet_address(address: libc::sockaddr) -> Option<Ipv4Addr> {
    // Two bytes of the port come before the address.
    let [_, _, a, b, c, d, ..] = address.sa_data.map(|byte| byte.to_ne_bytes()[0]);
    (i32::from(address.sa_family) == libc::AF_INET).then(|| Ipv4Addr::new(a, b, c, d))
}

/// Returns the gateway of the default route over an interface, from the kernel's table of routes (proc(5)). Addresses are
/// hexadecimal numbers in the byte order of the processor.
fn gateway(table: &str, interface: &str) -> Option<Ipv4Addr> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let (name, destination, gateway) = (columns.next()?, columns.next()?, columns.next()?);
        let gateway = u32::from_str_radix(gateway, 16).ok()?;
        let is_default = name == interface && destination == "00000000" && gateway != 0;
        is_default.then(|| Ipv4Addr::from(gateway.to_ne_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let found = link_addresses(&["lo".to_owned(), "no-such-one".to_owned(), "long".repeat(100)]);
        let loopback = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(255, 0, 0, 0));
        assert_eq!(found[0], LinkAddresses { ipv4: Some(loopback), ..LinkAddresses::default() });
        assert_eq!(found[1..], [LinkAddresses::default(); 2]);
    }

    #[test]
    fn the_gateway_is_that_of_the_default_route() {
        let gateway_number = u32::from_ne_bytes([192, 0, 2, 1]);
        let table = format!(
            "Iface\tDestination\tGateway\tFlags\neth1\t00000000\t00000000\t0001\n\
             eth0\t000200C0\t00000000\t0001\neth0\t00000000\t{gateway_number:08X}\t0003\nshort\n"
        );
        assert_eq!(gateway(&table, "eth0"), Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(
            (gateway(&table, "eth1"), gateway(&table, "short"), gateway("", "eth0")),
            (None, None, None)
        );
    }
}
