//! Requests of holders, and their comparison with a grant.

use super::{
    Grant, InterfaceName, ModuleHash, NodeName, PacketView, Resource, UnixSecond, excess_unless, list,
};
use crate::key::PublicKey;
use std::fmt::{self, Display};
use weir_units::Name;

/// A part of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are the fields of `Grant`, and `Display` describes them")]
pub enum GrantPart {
    Profile,
    Modules,
    Traffic,
    Interfaces,
    View,
    Writes,
    Unmetered,
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
            Self::Unmetered => "modules without a meter",
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
#[error("{part}: asked for {requested}, given is {given}")]
pub struct GrantExcess {
    /// The part.
    pub part: GrantPart,
    /// The requested value.
    pub requested: String,
    /// The granted value.
    pub given: String,
}

/// The parts of a holder's request that are compared with a grant. A part that is not stated is not requested.
#[derive(Clone, Debug, Default)]
pub struct GrantRequest<'a> {
    /// The node that decides the request.
    pub node: Option<&'a NodeName>,
    /// The time of the request.
    pub at: Option<UnixSecond>,
    /// The profile by which a module is to be admitted.
    pub profile: Option<&'a Name>,
    /// The module, and the keys that have signed it.
    pub module: Option<(ModuleHash, &'a [PublicKey])>,
    /// True if the module is to run without a meter.
    pub unmetered: bool,
    /// The interface that packets come from.
    pub interface: Option<&'a InterfaceName>,
    /// The view of packets.
    pub view: Option<PacketView>,
    /// The fields of packets that the module writes.
    pub writes: &'a [Name],
}

impl GrantExcess {
    pub(super) fn new(part: GrantPart, requested: impl Display, given: impl Display) -> Self {
        Self { part, requested: requested.to_string(), given: given.to_string() }
    }
}

impl Grant {
    /// Returns every part in which a request exceeds this grant; empty if the grant allows the request. Filters are not
    /// compared, as the node applies the grant's filters to every packet. Amounts are compared by the caller, as they
    /// depend on the present usage of all sessions.
    pub fn excesses(&self, request: &GrantRequest<'_>) -> Vec<GrantExcess> {
        let mut excesses = Vec::new();
        let mut add = |excess: Option<GrantExcess>| excesses.extend(excess);
        add(excess_unless(GrantPart::Nodes, request.node, self.nodes.as_ref(), |node, nodes| {
            nodes.contains(node)
        }));
        add(excess_unless(
            GrantPart::NotBefore,
            request.at.as_ref(),
            self.not_before.as_ref(),
            UnixSecond::ge,
        ));
        add(excess_unless(GrantPart::Expires, request.at.as_ref(), self.expires.as_ref(), UnixSecond::lt));
        if let (Some(requested), Some(given)) = (request.profile, &self.profiles)
            && !given.contains(requested)
        {
            add(Some(GrantExcess::new(GrantPart::Profile, requested, list(given))));
        }
        if let Some((hash, signers)) = &request.module {
            let signed_by = if signers.is_empty() {
                "unsigned".to_owned()
            } else {
                format!("signed by {}", list(*signers))
            };
            let requested = format!("{hash}, {signed_by}");
            if !self.modules.contains(hash, signers) {
                add(Some(GrantExcess::new(GrantPart::Modules, &requested, &self.modules)));
            }
            if request.unmetered && !signers.iter().any(|signer| self.unmetered.contains(signer)) {
                let given = list(self.unmetered.iter().map(|signer| format!("signed by {signer}")));
                add(Some(GrantExcess::new(GrantPart::Unmetered, requested, given)));
            }
        }
        if let (Some(requested), Some(given)) = (request.interface, &self.interfaces)
            && !given.contains(requested)
        {
            add(Some(GrantExcess::new(GrantPart::Interfaces, requested, list(given))));
        }
        add(excess_unless(
            GrantPart::View,
            request.view.as_ref(),
            self.view.as_ref(),
            PacketView::is_at_most,
        ));
        if let Some(given) = &self.writes {
            let not_given: Vec<&Name> =
                request.writes.iter().filter(|field| !given.contains(*field)).collect();
            if !not_given.is_empty() {
                add(Some(GrantExcess::new(GrantPart::Writes, list(not_given), list(given))));
            }
        }
        excesses
    }
}
