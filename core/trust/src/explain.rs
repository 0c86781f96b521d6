//! Grants and credentials in words, for the commands that show them.

use crate::credential::{Credential, DatedId};
use crate::grant::{Grant, GrantPart, PacketView, Resource, list};
use std::fmt::Write;

mod sentences;

pub use sentences::sentences;

/// Returns the parts of a grant in words: modules, packets, amounts of resources, nodes and times, in this order. Parts
/// without restriction are included if `all` is true.
pub fn grant(grant: &Grant, all: bool) -> Vec<(GrantPart, String)> {
    let unrestricted = |words: &str| all.then(|| words.to_owned());
    let names = |names: &Option<_>, otherwise: &str| match names {
        Some(names) => Some(list::<&_>(names)),
        None => unrestricted(otherwise),
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
        let ceiling = grant.ceilings.get(*resource).map(|amount| {
            format!("at most {}{}", definition.unit.show(amount, &[]), definition.amount_suffix)
        });
        (GrantPart::Resource(*resource), ceiling.or_else(|| unrestricted("no ceiling")))
    });
    let times = |times: u32| match times {
        0 => "none".to_owned(),
        1 => "one".to_owned(),
        times => times.to_string(),
    };
    let first_parts = [
        (GrantPart::Profile, profile.or_else(|| unrestricted("any of the node's"))),
        (
            GrantPart::Modules,
            modules.or_else(|| unrestricted("any, by any author: this is an administrator's right")),
        ),
        (GrantPart::Traffic, traffic.or_else(|| unrestricted("every packet"))),
        (GrantPart::Interfaces, interfaces.or_else(|| unrestricted("all"))),
        (
            GrantPart::View,
            grant.view.as_ref().map(PacketView::in_words).or_else(|| unrestricted("everything")),
        ),
        (GrantPart::Writes, writes),
        (
            GrantPart::Unmetered,
            (!grant.unmetered.is_empty()).then(|| format!("signed by {}", list(&grant.unmetered))),
        ),
    ];
    let last_parts = [
        (
            GrantPart::Nodes,
            grant.nodes.as_ref().map(ToString::to_string).or_else(|| unrestricted("all of this operator")),
        ),
        (
            GrantPart::NotBefore,
            grant.not_before.map(|from| from.to_string()).or_else(|| unrestricted("at once")),
        ),
        (GrantPart::Expires, grant.expires.map(|until| until.to_string()).or_else(|| unrestricted("none"))),
        (
            GrantPart::Delegations,
            grant.delegations.map(times).or_else(|| unrestricted("as many as a chain has room for")),
        ),
    ];
    first_parts
        .into_iter()
        .chain(amounts)
        .chain(last_parts)
        .filter_map(|(part, words)| Some((part, words?)))
        .collect()
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
    let mut giver = *credential.claimed_root();
    let ids = DatedId::of_chain(credential.claimed_blocks());
    for (index, (block, id)) in credential.claimed_blocks().iter().zip(ids).enumerate() {
        let role = if index == 0 { "the operator " } else { "" };
        let _ = writeln!(text, "\nBlock {index}, {id}:\n  {role}{giver}\n  gives {}", block.holder);
        if let Some(issued) = block.issued {
            let _ = writeln!(text, "    {:<20} {issued}", "signed:");
        }
        for (part, words) in grant(&block.grant, index == 0) {
            let _ = writeln!(text, "    {:<20} {words}", format!("{part}:"));
        }
        if index > 0 {
            let _ = writeln!(text, "    and otherwise what block {} gives", index - 1);
        }
        giver = block.holder;
    }
    let _ = write!(text, "\n{}", sentences(credential));
    text
}
