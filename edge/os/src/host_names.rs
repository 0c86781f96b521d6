//! Addresses of host names.
//!
//! A dynamically linked program asks the system's resolver, getaddrinfo(3). In a statically linked one, getaddrinfo loads
//! the system's modules (nsswitch.conf(5)) together with the system's libc, which can be of another version than the
//! program's; that can crash the program. So a static program reads hosts(5) and asks the name servers of resolv.conf(5)
//! itself. It knows no other sources, such as multicast DNS and LDAP.

mod dns;

use dns::NameServer;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// The files that a static program reads, and the most bytes of each.
const HOSTS: &str = "/etc/hosts";
const NAME_SERVERS: &str = "/etc/resolv.conf";
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The limits of resolv.conf(5).
const SERVERS_MAX: usize = 3;
const SUFFIXES_MAX: usize = 6;
const ATTEMPTS_MAX: u32 = 5;
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The time after which a lookup fails, however many name servers and suffixes are left.
const LOOKUP_MAX: Duration = Duration::from_secs(60);
const DNS_PORT: u16 = 53;
const NAME_BYTES_MAX: usize = 253;

/// Returns the addresses of a host, which is a name or an address, with a port. The preferred address comes first; there
/// is at least one.
///
/// # Errors
/// The host has no address, or no name server answers.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = if cfg!(target_feature = "crt-static") {
        match literal(host, port) {
            Some(address) => vec![address],
            None => {
                let (hosts, name_servers) = (read(HOSTS)?, read(NAME_SERVERS)?);
                let resolver = Resolver::new(&hosts, &name_servers, DNS_PORT);
                resolver.addresses(host)?.into_iter().map(|address| SocketAddr::new(address, port)).collect()
            }
        }
    } else {
        (host, port).to_socket_addrs()?.collect()
    };
    if found.is_empty() { Err(no_address()) } else { Ok(found) }
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the name has no address")
}

/// The text of a file of the system, empty without the file.
fn read(path: &str) -> io::Result<String> {
    let file = match std::fs::File::open(Path::new(path)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An address in text form; one for IPv6 can have a zone, such as `fe80::1%eth0` (RFC 4007).
fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    match host.split_once('%') {
        None => Some(SocketAddr::new(host.parse().ok()?, port)),
        Some((address, zone)) => {
            let scope = zone.parse().ok().or_else(|| interface_number(zone))?;
            Some(SocketAddrV6::new(address.parse().ok()?, port, 0, scope).into())
        }
    }
}

/// The kernel's number of an interface.
fn interface_number(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: `name` is a C string that lives across the call.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|number| *number != 0)
}

/// A lookup in the contents of hosts(5), and with the name servers of resolv.conf(5).
struct Resolver<'a> {
    hosts: &'a str,
    servers: Vec<NameServer>,
    suffixes: Vec<String>,
    /// A name with fewer dots gets a suffix before it is looked up as it is.
    dots: u32,
    wait: Duration,
    attempts: u32,
}

impl<'a> Resolver<'a> {
    /// Lines that resolv.conf(5) does not define are ignored. Without a name server, the machine itself is asked.
    fn new(hosts: &'a str, name_servers: &str, dns_port: u16) -> Self {
        let (config, _) = resolv_conf::Config::parse_with_errors(name_servers.as_bytes());
        let address = |server: &resolv_conf::ScopedIp| literal(&server.to_string(), dns_port);
        let mut servers: Vec<NameServer> =
            config.nameservers.iter().filter_map(address).take(SERVERS_MAX).map(NameServer::new).collect();
        if servers.is_empty() {
            servers.push(NameServer::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), dns_port)));
        }
        Self {
            hosts,
            servers,
            suffixes: config.get_last_search_or_domain().take(SUFFIXES_MAX).map(ToOwned::to_owned).collect(),
            dots: config.ndots,
            wait: Duration::from_secs(config.timeout.max(1).into()).min(WAIT_MAX),
            attempts: config.attempts.clamp(1, ATTEMPTS_MAX),
        }
    }

    /// The addresses of a name, those first that this machine has a route to.
    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !is_name(name) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a host name"));
        }
        let mut found = find_in_hosts(self.hosts, name);
        let bare = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if found.is_empty() && (bare == "localhost" || bare.ends_with(".localhost")) {
            // Never asked of a name server (RFC 6761, 6.3).
            return Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
        }
        let deadline = Instant::now() + LOOKUP_MAX;
        for full in self.candidates(name).iter().filter(|full| is_name(full)) {
            if !found.is_empty() {
                break;
            }
            found = self.ask(full, deadline)?;
        }
        // A stable order: IPv6 before IPv4, each as the source gives it.
        found.sort_by_key(|address| (!has_route(*address), address.is_ipv4()));
        Ok(found)
    }

    /// The full names that a name can stand for, in the order in which they are looked up.
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        let mut names: Vec<String> = self.suffixes.iter().map(|suffix| format!("{name}.{suffix}")).collect();
        let place = if u32::try_from(dots).is_ok_and(|dots| dots < self.dots) { names.len() } else { 0 };
        names.insert(place, name.to_owned());
        names
    }

    /// Asks the name servers in turn. The first that answers counts, also if the name has no address there.
    fn ask(&self, name: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
        let mut failure = no_address();
        for _ in 0..self.attempts {
            for server in &self.servers {
                let now = Instant::now();
                if now >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                match server.addresses(name, (now + self.wait).min(deadline)) {
                    Ok(found) => return Ok(found),
                    Err(error) => failure = error,
                }
            }
        }
        Err(failure)
    }
}

/// The addresses of a name or alias in a table in the format of hosts(5).
fn find_in_hosts(table: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = Vec::new();
    for line in table.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Asks the kernel for a route: connecting a UDP socket sends nothing.
fn has_route(address: IpAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0)).is_ok_and(|socket| socket.connect((address, DNS_PORT)).is_ok())
}

#[cfg(test)]
mod tests;
