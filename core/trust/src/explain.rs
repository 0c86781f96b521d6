//! Explanations of credentials and decisions in words.

use crate::credential::{Credential, CredentialRefusal, DatedId, DelegationId, VerifiedCredential};
use crate::grant::{Grant, GrantExcess, GrantPart, GrantRequest, PacketView, Resource, list};
use crate::key::PublicKey;
use std::fmt::{self, Display, Write};

mod sentences;

pub use sentences::sentences;

/// Returns the parts of a grant in words: modules, packets, amounts of resources, nodes and times, in this order. With
/// `all`, also parts without restriction.
pub fn grant(grant: &Grant, all: bool) -> Vec<(GrantPart, String)> {
    let any = |what: &str| all.then(|| what.to_owned());
    let names = |names: &Option<_>, otherwise: &str| match names {
        Some(names) => Some(list::<&_>(names)),
        None => any(otherwise),
    };
    let profile = grant.profiles.as_ref().map(list);
    let modules = (!grant.modules.is_any()).then(|| grant.modules.to_string());
    let traffic: Vec<String> = grant.filters.iter().map(|filter| format!("`{filter}`")).collect();
    let traffic =
        (!traffic.is_empty()).then(|| format!("packets that {} selects", traffic.join(" and also ")));
    let interfaces = grant.interfaces.as_ref().map(list);
    let writes = names(&grant.writes, "any that can be written");
    let amounts = Resource::ALL.iter().map(|resource| {
        let definition = resource.definition();
        let most = grant
            .ceilings
            .get(*resource)
            .map(|most| format!("at most {}{}", definition.unit.show(most, &[]), definition.amount_suffix));
        (GrantPart::Resource(*resource), most.or_else(|| any("no ceiling")))
    });
    let times = |times: u32| match times {
        0 => "none".to_owned(),
        1 => "one".to_owned(),
        times => times.to_string(),
    };
    let what = [
        (GrantPart::Profile, profile.or_else(|| any("any of the node's"))),
        (GrantPart::Modules, modules.or_else(|| any("any, by any author: this is an administrator's right"))),
        (GrantPart::Traffic, traffic.or_else(|| any("every packet"))),
        (GrantPart::Interfaces, interfaces.or_else(|| any("all"))),
        (GrantPart::View, grant.view.as_ref().map(PacketView::in_words).or_else(|| any("everything"))),
        (GrantPart::Writes, writes),
    ];
    let when = [
        (
            GrantPart::Nodes,
            grant.nodes.as_ref().map(ToString::to_string).or_else(|| any("all of this operator")),
        ),
        (GrantPart::NotBefore, grant.not_before.map(|from| from.to_string()).or_else(|| any("at once"))),
        (GrantPart::Expires, grant.expires.map(|until| until.to_string()).or_else(|| any("none"))),
        (
            GrantPart::Delegations,
            grant.delegations.map(times).or_else(|| any("as many as a chain has room for")),
        ),
    ];
    what.into_iter().chain(amounts).chain(when).filter_map(|(part, words)| Some((part, words?))).collect()
}

/// Returns a credential in words: its holder, its chain, and each block. These are the credential's claims. The first
/// line says whether the signatures are valid; only [`Credential::verify`] says whether a node accepts the credential.
pub fn credential(credential: &Credential) -> String {
    let mut text = String::new();
    let signatures = match credential.check_signatures() {
        Ok(()) => "its signatures hold",
        Err(_) => "FORGED OR DAMAGED: its signatures do not hold",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "A credential for {}; {signatures}.", credential.claimed_holder());
    let mut from = *credential.claimed_root();
    let ids = DatedId::of_chain(credential.claimed_blocks());
    for (block, (link, id)) in credential.claimed_blocks().iter().zip(ids).enumerate() {
        let who = if block == 0 { "the operator" } else { "" };
        let space = if who.is_empty() { "" } else { " " };
        let _ = writeln!(text, "\nBlock {block}, {id}:\n  {who}{space}{from}\n  gives {}", link.holder);
        if let Some(issued) = link.issued {
            let _ = writeln!(text, "    {:<20} {issued}", "signed:");
        }
        for (part, words) in grant(&link.grant, block == 0) {
            let _ = writeln!(text, "    {:<20} {words}", format!("{part}:"));
        }
        if block > 0 {
            let _ = writeln!(text, "    and otherwise what block {} gives", block - 1);
        }
        from = link.holder;
    }
    let _ = write!(text, "\n{}", sentences(credential));
    text
}

/// The reason why a request is allowed or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantExplanation {
    /// The request is within the credential.
    Allowed {
        /// The identifier of the credential.
        id: DelegationId,
        /// The holder.
        holder: PublicKey,
    },
    /// The credential is not valid, or exceeds the node's limit for its root.
    InvalidCredential(CredentialRefusal),
    /// The request exceeds the credential.
    Refused(Vec<Objection>),
}

/// One part in which a request exceeds a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The index of the first block that refuses the request, from 0.
    pub block: usize,
    /// The identifier of that block.
    pub id: DelegationId,
    /// The part of the request that exceeds the block's grant.
    pub excess: GrantExcess,
}

impl VerifiedCredential {
    /// Decides a request. A refusal names the blocks that refuse it, or the node's limit for the root.
    pub fn answer(&self, request: &GrantRequest<'_>) -> GrantExplanation {
        let mut objections: Vec<Objection> = Vec::new();
        for (block, link) in self.chain().iter().enumerate() {
            for excess in link.grant.refuses(request) {
                if objections.iter().all(|known| known.excess.part != excess.part) {
                    objections.push(Objection { block, id: link.id, excess });
                }
            }
        }
        let beyond = self.limit().refuses(request).into_iter().next();
        if let Some(excess) = beyond.filter(|_| objections.is_empty()) {
            return GrantExplanation::InvalidCredential(CredentialRefusal::Limited {
                root: *self.root(),
                excess,
            });
        }
        if objections.is_empty() {
            GrantExplanation::Allowed { id: self.id(), holder: *self.holder() }
        } else {
            GrantExplanation::Refused(objections)
        }
    }
}

impl Display for GrantExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed { id, holder } => write!(f, "allowed, under {id}, held by {holder}"),
            Self::InvalidCredential(refusal) => write!(f, "refused: {refusal}"),
            Self::Refused(objections) => {
                f.write_str("refused")?;
                let mut between = ": ";
                for Objection { block, id, excess } in objections {
                    write!(f, "{between}{excess} by block {block}, {id}")?;
                    between = "; ";
                }
                Ok(())
            }
        }
    }
}
