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

impl GrantPart {
    /// Returns all parts.
    pub fn all() -> impl Iterator<Item = Self> {
        let first = [Self::Profile, Self::Modules, Self::Traffic, Self::Interfaces, Self::View, Self::Writes];
        let last = [Self::Unmetered, Self::Nodes, Self::NotBefore, Self::Expires, Self::Delegations];
        first.into_iter().chain(Resource::ALL.iter().map(|resource| Self::Resource(*resource))).chain(last)
    }

    /// Returns the option of `weir grant` that gives the part, without dashes. `weir delegate` has the same options, but for
    /// modules without a meter, which it cannot give.
    pub const fn grant_option(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Modules => "module",
            Self::Traffic => "filter",
            Self::Interfaces => "interface",
            Self::View => "view",
            Self::Writes => "write",
            Self::Unmetered => "unmetered",
            Self::Resource(resource) => resource.definition().name,
            Self::Nodes => "at",
            Self::NotBefore => "from",
            Self::Expires => "until",
            Self::Delegations => "delegations",
        }
    }

    /// Returns true if the request or the grant has a free text for the part: a module's name or a filter.
    pub(super) fn has_free_text(self) -> bool {
        matches!(self, Self::Modules | Self::Unmetered | Self::Traffic)
    }

    /// Reads the part with which the text of an excess begins, and returns the rest of the text.
    fn read(text: &str) -> Option<(Self, &str)> {
        let after = |part: Self| text.strip_prefix(&part.to_string())?.strip_prefix(ASKED_FOR);
        Self::all().find_map(|part| Some((part, after(part)?)))
    }
}

/// The words after the part in the text of an excess.
const ASKED_FOR: &str = ": asked for ";
/// The words before the granted value.
const GIVEN: &str = ", given is ";
/// The words between two excesses.
const BETWEEN: &str = "; ";
/// The end of a text that was cut off, as in the ledger.
const CUT: char = '…';

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

    /// Reads the texts of one or more excesses, joined by `; `. Returns `None` for another text. A text that was cut off, with
    /// `…` at its end, is read as far as it goes.
    ///
    /// A module's name and a filter are texts of other parties, which can look like a further excess. So no excess is read after
    /// a filter, and after a module only that it may not run without a meter.
    pub fn read_all(text: &str) -> Option<Vec<Self>> {
        let (mut all, mut rest) = (Vec::new(), Some(text));
        while let Some(text) = rest {
            let (part, text) = GrantPart::read(text)?;
            let is_next = |at: &usize| {
                let next = text.get(at + BETWEEN.len()..).and_then(GrantPart::read).map(|(next, _)| next);
                next.is_some_and(|next| match part {
                    GrantPart::Modules => next == GrantPart::Unmetered,
                    _ => !part.has_free_text(),
                })
            };
            // The last one after a module, whose name comes first.
            let mut ends = text.match_indices(BETWEEN).map(|(at, _)| at).filter(is_next);
            let end = if part == GrantPart::Modules { ends.last() } else { ends.next() };
            let body = end.map_or(Some(text), |end| text.get(..end))?;
            rest = end.and_then(|end| text.get(end + BETWEEN.len()..));
            let values =
                if part == GrantPart::Traffic { body.split_once(GIVEN) } else { body.rsplit_once(GIVEN) };
            let (requested, given) = match values {
                Some(values) => values,
                None if body.ends_with(CUT) => (body, ""),
                None => return None,
            };
            all.push(Self { part, requested: requested.to_owned(), given: given.to_owned() });
        }
        Some(all)
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
