//! The node that a command connects to: its address, credential and key.

use super::NodeCommandError;
use super::args::NodeAddressArgs;
use crate::trust_files::{read_credential, read_identity};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weir_node::client::{NodeLocation, PORT, SOCKET};
use weir_trust::key::{Identity, PublicKey};

/// The environment variable that names a remote node.
pub const NODE_VARIABLE: &str = "WEIR_NODE";

/// The maximum number of keys in an address: while a node's key is being replaced, the address can contain the old key
/// and the new one.
const KEYS_MAX: usize = 2;

/// The address of a remote node, written `[KEY[,KEY]@]HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    keys: Vec<PublicKey>,
    host: String,
    port: u16,
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (keys, rest) = match text.rsplit_once('@') {
            Some((keys, rest)) => (parse_keys(keys)?, rest),
            None => (Vec::new(), text),
        };
        let address_error = || {
            format!(
                "`{}` is not a node's address: write HOST, HOST:PORT or [ADDRESS]:PORT",
                rest.escape_debug()
            )
        };
        let (host, port) =
            match rest.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(address_error)) {
                // An IPv6 address in brackets, with an optional port after the brackets.
                Some(parts) => {
                    let (host, port) = parts?;
                    (
                        host,
                        if port.is_empty() {
                            None
                        } else {
                            Some(port.strip_prefix(':').ok_or_else(address_error)?)
                        },
                    )
                }
                None if rest.matches(':').count() > 1 => (rest, None),
                None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
            };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| address_error()))?;
        let is_host =
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:%".contains(c));
        if is_host { Ok(Self { keys, host: host.to_owned(), port }) } else { Err(address_error()) }
    }
}

/// Parses the keys before the `@` of an address.
fn parse_keys(text: &str) -> Result<Vec<PublicKey>, String> {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > KEYS_MAX {
        return Err(format!(
            "{} keys are given; a node has one, and two while its key is replaced",
            parts.len()
        ));
    }
    let key = |text: &str| text.parse().map_err(|error: weir_trust::key::KeyError| error.to_string());
    parts.into_iter().map(key).collect()
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl NodeAddress {
    /// Returns the text that parses to this address, with its keys.
    pub fn to_text(&self) -> String {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        if keys.is_empty() { self.to_string() } else { format!("{}@{self}", keys.join(",")) }
    }

    /// Resolves the host name for a connection with an identity and a credential. `credential` is empty for a client
    /// without one.
    pub fn resolve(&self, identity: Identity, credential: Vec<u8>) -> Result<NodeLocation, NodeCommandError> {
        let addresses = weir_os::resolve(&self.host, self.port)
            .map_err(|source| NodeCommandError::Address { node: self.clone(), source })?;
        Ok(NodeLocation::Remote {
            addresses,
            expected: self.keys.clone(),
            identity: Box::new(identity),
            credential,
        })
    }
}

/// A node named by an option or the environment.
#[derive(Clone, Debug)]
pub enum NamedNode {
    /// The socket of a node on this machine.
    Local(PathBuf),
    /// A remote node.
    Remote(NodeAddress),
}

/// Returns the node named by the options, or else by `WEIR_NODE` or `WEIR_SOCKET`; `None` if none is named.
pub fn named_node(
    node: Option<&NodeAddress>,
    socket: Option<&Path>,
) -> Result<Option<NamedNode>, NodeCommandError> {
    if let Some(node) = node {
        return Ok(Some(NamedNode::Remote(node.clone())));
    }
    if let Some(socket) = socket {
        return Ok(Some(NamedNode::Local(socket.to_owned())));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(node) = variable(NODE_VARIABLE) {
        let node = node.to_string_lossy().parse();
        return node.map(|node| Some(NamedNode::Remote(node))).map_err(NodeCommandError::Variable);
    }
    Ok(variable("WEIR_SOCKET").map(|socket| NamedNode::Local(socket.into())))
}

impl NodeAddressArgs {
    /// Returns the node that an option or the environment names, or else the node at the default socket of this
    /// machine.
    pub fn resolve(&self) -> Result<NodeLocation, NodeCommandError> {
        Ok(self.resolve_named()?.unwrap_or_else(|| NodeLocation::Local(SOCKET.into())))
    }

    /// Returns the node that an option or the environment names, for a remote node with the credential and identity of
    /// the options. `None` if no node is named.
    pub fn resolve_named(&self) -> Result<Option<NodeLocation>, NodeCommandError> {
        let node = match named_node(self.node.as_ref(), self.socket.as_deref())? {
            None => return Ok(None),
            Some(NamedNode::Local(socket)) => return Ok(Some(NodeLocation::Local(socket))),
            Some(NamedNode::Remote(node)) => node,
        };
        // An operator needs no credential; the node refuses any other client that has none.
        let credential = self.credential.as_deref().filter(|path| !path.as_os_str().is_empty());
        let credential = credential.map(read_credential).transpose()?;
        let credential = credential.map_or_else(Vec::new, |credential| credential.as_bytes().to_vec());
        let key = self.key.as_deref().ok_or(NodeCommandError::NoKey)?;
        let identity = read_identity(key, self.passphrase_file.as_deref())?;
        node.resolve(identity, credential).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_addresses_are_hosts_with_an_optional_key_and_port() {
        let read = |text: &str| text.parse::<NodeAddress>().map(|address| (address.host, address.port));
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
        let with_key: NodeAddress = format!("{key}@ix.example").parse().unwrap();
        assert_eq!((with_key.keys.clone(), with_key.to_string()), (vec![key], format!("ix.example:{PORT}")));
        let new = weir_trust::key::Identity::from_seed(&[2; 32]).public();
        let with_both: NodeAddress = format!("{key},{new}@ix.example:7").parse().unwrap();
        assert_eq!(with_both.keys, [key, new]);
        for address in [&with_key, &with_both, &"[::1]:7".parse().unwrap()] {
            assert_eq!(address.to_text().parse::<NodeAddress>().as_ref(), Ok(address));
        }
        for keys in ["", ",", &format!("{key},"), &format!("{key},{new},{key}"), &format!("{key} {new}")] {
            assert!(format!("{keys}@ix.example").parse::<NodeAddress>().is_err(), "{keys}");
        }
    }
}
