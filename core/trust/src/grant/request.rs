//! Requests, compared with a grant.

use super::{
    Ceilings, Grant, InterfaceName, ModuleHash, NodeName, PacketView, Resource, Second, list, where_not,
};
use crate::key::PublicKey;
use std::fmt::{self, Display};
use weir_units::Name;

/// A part of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the fields of `Grant`, and `Display` says what they are")]
pub enum GrantPart {
    Profile,
    Modules,
    Traffic,
    Interfaces,
    View,
    Writes,
    Resource(Resource),
    Nodes,
    NotBefore,
    Expires,
    Delegations,
}

impl Display for GrantPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Profile => "profile",
            Self::Modules => "modules",
            Self::Traffic => "traffic",
            Self::Interfaces => "interfaces",
            Self::View => "view",
            Self::Writes => "fields to write",
            Self::Resource(resource) => resource.definition().title,
            Self::Nodes => "nodes",
            Self::NotBefore => "beginning",
            Self::Expires => "end",
            Self::Delegations => "further delegations",
        })
    }
}

/// A part of a request that exceeds the grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: asked for {asked}, given is {given}")]
pub struct GrantExcess {
    /// The part.
    pub part: GrantPart,
    /// The requested value.
    pub asked: String,
    /// The granted value.
    pub given: String,
}

/// A request by a holder. A part that is not stated is not requested.
#[derive(Clone, Debug, Default)]
pub struct GrantRequest<'a> {
    /// The node that decides the request.
    pub node: Option<&'a NodeName>,
    /// The time of the request.
    pub at: Option<Second>,
    /// The profile by which a module is to be admitted.
    pub profile: Option<&'a Name>,
    /// The module, and the keys that have signed it.
    pub module: Option<(ModuleHash, &'a [PublicKey])>,
    /// The interface that packets come from.
    pub interface: Option<&'a InterfaceName>,
    /// The view of packets.
    pub view: Option<PacketView>,
    /// The fields of packets that the module writes.
    pub writes: &'a [Name],
    /// The amounts that all sessions of the holder would use together, present use included.
    pub ceilings: Ceilings,
}

impl GrantExcess {
    pub(super) fn new(part: GrantPart, asked: impl Display, given: impl Display) -> Self {
        Self { part, asked: asked.to_string(), given: given.to_string() }
    }
}

impl Grant {
    /// Returns every part in which a request exceeds this grant; empty if the grant allows the request. Filters are not
    /// compared: the node applies the grant's filters to every packet.
    pub fn refuses(&self, request: &GrantRequest<'_>) -> Vec<GrantExcess> {
        let mut excesses = Vec::new();
        let mut refuse = |excess: Option<GrantExcess>| excesses.extend(excess);
        refuse(where_not(GrantPart::Nodes, request.node, self.nodes.as_ref(), |node, nodes| {
            nodes.contains(node)
        }));
        refuse(where_not(GrantPart::NotBefore, request.at.as_ref(), self.not_before.as_ref(), Second::ge));
        refuse(where_not(GrantPart::Expires, request.at.as_ref(), self.expires.as_ref(), Second::lt));
        if let (Some(asked), Some(given)) = (request.profile, &self.profiles)
            && !given.contains(asked)
        {
            refuse(Some(GrantExcess::new(GrantPart::Profile, asked, list(given))));
        }
        if let Some((hash, signers)) = &request.module
            && !self.modules.contains(hash, signers)
        {
            let by = if signers.is_empty() {
                "unsigned".to_owned()
            } else {
                format!("signed by {}", list(*signers))
            };
            refuse(Some(GrantExcess::new(GrantPart::Modules, format_args!("{hash}, {by}"), &self.modules)));
        }
        if let (Some(asked), Some(given)) = (request.interface, &self.interfaces)
            && !given.contains(asked)
        {
            refuse(Some(GrantExcess::new(GrantPart::Interfaces, asked, list(given))));
        }
        refuse(where_not(GrantPart::View, request.view.as_ref(), self.view.as_ref(), PacketView::is_at_most));
        if let Some(given) = &self.writes {
            let beyond: Vec<&Name> = request.writes.iter().filter(|field| !given.contains(*field)).collect();
            if !beyond.is_empty() {
                refuse(Some(GrantExcess::new(GrantPart::Writes, list(beyond), list(given))));
            }
        }
        excesses.extend(request.ceilings.excesses(&self.ceilings));
        excesses
    }
}
