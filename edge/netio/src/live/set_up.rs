//! The addresses and the state of an interface that the program has made.

use super::error::LiveError;
use super::sys;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// The hardware type of Ethernet (ARPHRD_ETHER).
pub(super) const ETHERNET: libc::sa_family_t = 1;

const CAPABILITY: &str = "cap_net_admin";

/// The settings of an interface. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceSettings {
    /// The host's IPv4 address on the interface, and its mask.
    pub address: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The gateway of a default route over the interface. The interface has to be set up.
    pub gateway: Option<Ipv4Addr>,
    /// The Ethernet address.
    pub ethernet: Option<[u8; 6]>,
    /// The longest packet without a link header.
    pub mtu: Option<u32>,
    /// The interface is set up.
    pub is_up: bool,
    /// The interface answers no ARP queries.
    pub has_no_arp: bool,
}

/// Changes the settings of an interface.
///
/// # Errors
///
/// [`LiveError`] if the process lacks the capability CAP_NET_ADMIN, or the system refuses a value.
pub fn set_up_interface(interface: &str, settings: &InterfaceSettings) -> Result<(), LiveError> {
    let system = |what| LiveError::refused(interface, what, CAPABILITY);
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(system("opening a socket"))?;
    let request = || request_about(interface);
    if let Some(ethernet) = settings.ethernet {
        let mut hardware = libc::sockaddr { sa_family: ETHERNET, sa_data: [0; 14] };
        for (to, from) in hardware.sa_data.iter_mut().zip(ethernet) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let mut request = request();
        request.ifr_ifru.ifru_hwaddr = hardware;
        control(&socket, libc::SIOCSIFHWADDR, &mut request)
            .map_err(system("setting the Ethernet address"))?;
    }
    if let Some(mtu) = settings.mtu {
        let mut request = request();
        request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
        control(&socket, libc::SIOCSIFMTU, &mut request).map_err(system("setting the MTU"))?;
    }
    if let Some((address, mask)) = settings.address {
        for (code, value, what) in [
            (libc::SIOCSIFADDR, address, "setting the address"),
            // An address without its mask would have that of its class.
            (libc::SIOCSIFNETMASK, mask, "setting the mask"),
        ] {
            let mut request = request();
            request.ifr_ifru.ifru_addr = internet_address(value);
            control(&socket, code, &mut request).map_err(system(what))?;
        }
    }
    if settings.is_up || settings.has_no_arp {
        let mut request = request();
        control(&socket, libc::SIOCGIFFLAGS, &mut request).map_err(system("reading the flags"))?;
        let flag =
            |flag: libc::c_int, is_set| if is_set { libc::c_short::try_from(flag).unwrap_or(0) } else { 0 };
        // SAFETY: the kernel has written the flags.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags =
            flags | flag(libc::IFF_UP, settings.is_up) | flag(libc::IFF_NOARP, settings.has_no_arp);
        control(&socket, libc::SIOCSIFFLAGS, &mut request).map_err(system("setting the interface up"))?;
    }
    if let Some(gateway) = settings.gateway {
        // SAFETY: a request of integers and pointers, for which zeros are valid.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = internet_address(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = internet_address(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = internet_address(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        let route = &raw mut route;
        // SAFETY: the kernel reads the request, which is alive here and names no device.
        let added = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as libc::Ioctl, route) };
        sys::checked(added).map_err(system("adding the default route"))?;
    }
    Ok(())
}

/// Returns an IPv4 address in the form of interface requests.
fn internet_address(address: Ipv4Addr) -> libc::sockaddr {
    let family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default();
    let mut value = libc::sockaddr { sa_family: family, sa_data: [0; 14] };
    // The port is before the address.
    for (to, from) in value.sa_data[2..].iter_mut().zip(address.octets()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    value
}

/// Returns a request about an interface.
pub(super) fn request_about(interface: &str) -> libc::ifreq {
    // SAFETY: a request of integers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    sys::set_interface_name(&mut request, interface);
    request
}

/// Makes a request.
pub(super) fn control(
    socket: &OwnedFd,
    code: libc::c_ulong,
    request: &mut libc::ifreq,
) -> std::io::Result<()> {
    let request = std::ptr::from_mut(request);
    // SAFETY: the kernel reads and writes the request, which is alive here.
    sys::checked(unsafe { libc::ioctl(socket.as_raw_fd(), code as libc::Ioctl, request) }).map(drop)
}
