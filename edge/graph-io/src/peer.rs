//! The user of the program at the other end of a connection inside this machine.
//!
//! A TCP port has no permissions. But the kernel lists each connection with the user who opened it in `/proc/net/tcp`.

use std::net::SocketAddrV4;
use std::os::fd::AsFd;

/// The list of connections.
const CONNECTIONS: &str = "/proc/net/tcp";

/// Returns true if the program at the other end of a TCP connection belongs to this process' user or to root.
///
/// # Errors
///
/// Fails if the system has no list of connections.
pub fn is_own_connection(peer: SocketAddrV4, own: SocketAddrV4) -> std::io::Result<bool> {
    let list = std::fs::read_to_string(CONNECTIONS)?;
    Ok(user_of(&list, peer, own).is_some_and(is_own))
}

/// Returns true if the program at the other end of a Unix-domain socket belongs to this process' user or to root.
///
/// # Errors
///
/// Fails if the system does not tell.
pub fn is_own_process(socket: impl AsFd) -> std::io::Result<bool> {
    Ok(is_own(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw()))
}

fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Returns the user whose socket has these ends.
fn user_of(list: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u32> {
    let text = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (local, remote) = (text(local), text(remote));
    list.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next()? != local || fields.next()? != remote {
            return None;
        }
        let user = fields.nth(4)?.parse().ok()?;
        // A socket that its program has closed has no inode, and is listed as one of root.
        (fields.nth(1)? != "0").then_some(user)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5111 1 0 100 0 0 10 0\n   \
        1: 0100007F:C001 0100007F:1E61 01 00000000:00000000 00:00000000 00000000  1000        0 5113 1 0 20 4 30 10 -1\n   \
        2: 0100007F:1E61 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 5112 1 0 20 4 30 10 -1\n   \
        3: 0100007F:C002 0100007F:1E61 06 00000000:00000000 03:000017A5 00000000     0        0 0 3 0\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_list_has_the_user_of_each_end() {
        let at = |port| SocketAddrV4::new([127, 0, 0, 1].into(), port);
        assert_eq!(user_of(LIST, at(0xc001), at(0x1e61)), Some(1000));
        assert_eq!(user_of(LIST, at(0x1e61), at(0xc001)), Some(0));
        assert_eq!(user_of(LIST, at(0xc003), at(0x1e61)), None);
        // A closed socket shows no user.
        assert_eq!(user_of(LIST, at(0xc002), at(0x1e61)), None);
    }

    #[test]
    fn a_socket_of_this_process_is_its_own() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_own_process(&one).unwrap());
    }

    #[test]
    fn a_connection_of_this_process_is_its_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let v4 = |address| match address {
            std::net::SocketAddr::V4(address) => address,
            std::net::SocketAddr::V6(_) => panic!("an IPv4 socket"),
        };
        let (peer, own) = (v4(client.local_addr().unwrap()), v4(listener.local_addr().unwrap()));
        assert!(is_own_connection(peer, own).unwrap());
        drop(client);
        // The kernel forgets the user of a closed socket.
        assert!(!is_own_connection(peer, own).unwrap());
    }
}
