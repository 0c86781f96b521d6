//! Where a node is that a command speaks with.

use super::NodeCommandError;
use super::args::NodeAddressArgs;
use crate::cmd::trust::{credential_of, identity_of};
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weir_node::client::{PORT, SOCKET, Whereabouts};
use weir_trust::key::{Identity, PublicKey};

/// The variable that names a node elsewhere.
pub const NODE: &str = "WEIR_NODE";

/// A node elsewhere, as it is written: `[KEY@]HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    key: Option<PublicKey>,
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, rest) = match text.rsplit_once('@') {
            Some((key, rest)) => {
                (Some(key.parse().map_err(|error: weir_trust::key::KeyError| error.to_string())?), rest)
            }
            None => (None, text),
        };
        let wrong =
            || format!("`{}` is no node: write HOST, HOST:PORT or [ADDRESS]:PORT", rest.escape_debug());
        let (host, port) = match rest.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(wrong)) {
            // An address of IPv6.
            Some(parts) => {
                let (host, port) = parts?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
            }
            None if rest.matches(':').count() > 1 => (rest, None),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
        let is_host =
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:%".contains(c));
        if is_host { Ok(Self { key, host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Address {
    /// The node there, with an identity, and a credential or none.
    pub fn whereabouts(
        &self,
        identity: Identity,
        credential: Vec<u8>,
    ) -> Result<Whereabouts, NodeCommandError> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses =
            addresses.map_err(|source| NodeCommandError::Address { node: self.clone(), source })?.collect();
        Ok(Whereabouts::There { addresses, expected: self.key, identity: Box::new(identity), credential })
    }
}

/// A node that is named.
#[derive(Clone, Debug)]
pub enum Named {
    /// On this machine.
    Here(PathBuf),
    /// Elsewhere.
    There(Address),
}

/// Which node is named: on the command line, or else by WEIR_NODE or WEIR_SOCKET. None where nothing is said.
pub fn named(node: Option<&Address>, socket: Option<&Path>) -> Result<Option<Named>, NodeCommandError> {
    if let Some(node) = node {
        return Ok(Some(Named::There(node.clone())));
    }
    if let Some(socket) = socket {
        return Ok(Some(Named::Here(socket.to_owned())));
    }
    let said = |variable| std::env::var_os(variable).filter(|said| !said.is_empty());
    if let Some(node) = said(NODE) {
        let node = node.to_string_lossy().parse();
        return node.map(|node| Some(Named::There(node))).map_err(NodeCommandError::Variable);
    }
    Ok(said("WEIR_SOCKET").map(|socket| Named::Here(socket.into())))
}

impl NodeAddressArgs {
    /// Which node, and by what right it is asked: the one on this machine where nothing is said.
    pub fn whereabouts(&self) -> Result<Whereabouts, NodeCommandError> {
        Ok(self.named()?.unwrap_or_else(|| Whereabouts::Here(SOCKET.into())))
    }

    /// The same; nothing where nothing is said.
    pub fn named(&self) -> Result<Option<Whereabouts>, NodeCommandError> {
        let node = match named(self.node.as_ref(), self.socket.as_deref())? {
            None => return Ok(None),
            Some(Named::Here(socket)) => return Ok(Some(Whereabouts::Here(socket))),
            Some(Named::There(node)) => node,
        };
        // The node's operators have none; anybody else is told that he needs one.
        let credential = self.credential.as_deref().filter(|path| !path.as_os_str().is_empty());
        let credential = credential.map(credential_of).transpose()?;
        let credential = credential.map_or_else(Vec::new, |credential| credential.as_bytes().to_vec());
        let key = self.key.as_deref().ok_or(NodeCommandError::NoKey)?;
        let identity = identity_of(key, self.passphrase_file.as_deref())?;
        node.whereabouts(identity, credential).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_written_as_hosts_are() {
        let read = |text: &str| text.parse::<Address>().map(|address| (address.host, address.port));
        for (text, host, port) in [
            ("ix.example", "ix.example", PORT),
            ("ix.example:7", "ix.example", 7),
            ("192.0.2.1:7", "192.0.2.1", 7),
            ("2001:db8::1", "2001:db8::1", PORT),
            ("[2001:db8::1]", "2001:db8::1", PORT),
            ("[2001:db8::1]:7", "2001:db8::1", 7),
        ] {
            assert_eq!(read(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in ["", ":7", "a:", "a:70000", "[::1", "[::1]7", "a b", "key@host", "a/b"] {
            assert!(read(text).is_err(), "{text}");
        }
        let key = weir_trust::key::Identity::from_seed(&[1; 32]).public();
        let with_key: Address = format!("{key}@ix.example").parse().unwrap();
        assert_eq!((with_key.key, with_key.to_string()), (Some(key), format!("ix.example:{PORT}")));
    }
}
