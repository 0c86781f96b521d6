//! A credential in complete sentences, one for each part of its grant.

use crate::credential::{BLOCKS_MAX, Credential};
use crate::grant::{Grant, ModuleSet, Modules, PacketView, Resource};
use crate::key::PublicKey;
use std::fmt::Display;

/// Returns the rights that all blocks together give the last holder: a line for each sentence. If the blocks contradict
/// each other, it returns the reason instead.
///
/// The sentences state the claims of the credential. Only [`Credential::verify`] says whether a node accepts the
/// credential.
pub fn sentences(credential: &Credential) -> String {
    let grant = match credential.claimed_grant() {
        Ok(grant) => grant,
        Err(refusal) => return format!("Every node refuses this credential: {refusal}.\n"),
    };
    let mut lines = vec![introduction(credential)];
    lines.extend(grant_sentences(&grant));
    lines.concat()
}

/// Returns the line before the sentences: the holder, the root, and the holders between them.
fn introduction(credential: &Credential) -> String {
    let (holder, root) = (credential.claimed_holder(), credential.claimed_root());
    let blocks = credential.claimed_blocks();
    let through: Vec<&PublicKey> =
        blocks.iter().take(blocks.len().saturating_sub(1)).map(|block| &block.holder).collect();
    let through =
        if through.is_empty() { String::new() } else { format!(", through {}", all_or_none(through)) };
    format!("The credential gives the holder of {holder} these rights of {root}{through}:\n")
}

fn grant_sentences(grant: &Grant) -> Vec<String> {
    let Grant { profiles, modules, filters, interfaces, view, writes, ceilings, nodes, .. } = grant;
    let begin = grant.not_before.map_or("at once".to_owned(), |from| format!("on {from}"));
    let end = grant.expires.map_or("has no end".to_owned(), |until| format!("ends on {until}"));
    let nodes = match nodes {
        Some(nodes) => format!("at these nodes: {}", all_or_none(nodes.iter())),
        None => "at all nodes that trust this root".to_owned(),
    };
    let modules = if modules.is_any() {
        "Any module may be loaded, by any author".to_owned()
    } else {
        format!("These modules may be loaded: {}", modules_in_words(modules))
    };
    let profiles = match profiles {
        Some(profiles) => format!("by this profile of the node: {}", all_or_none(profiles)),
        None => "by any profile of the node".to_owned(),
    };
    let interfaces = match interfaces {
        Some(interfaces) => format!("these interfaces: {}", all_or_none(interfaces)),
        None => "all interfaces of these nodes".to_owned(),
    };
    let filters: Vec<String> = filters.iter().map(|filter| format!("`{filter}`")).collect();
    let packets = if filters.is_empty() {
        "every packet".to_owned()
    } else {
        format!("the packets that {} selects", filters.join(" and also "))
    };
    let view = view.unwrap_or(PacketView::ALL);
    let memory = if filters.is_empty() && view == PacketView::ALL {
        "They may read all of an interface's memory (`visibility = \"all\"`)"
    } else {
        "They can read no other packets (`visibility = \"all\"` is refused)"
    };
    let writes = match writes {
        Some(fields) if fields.is_empty() => "may change no field of a packet".to_owned(),
        Some(fields) => format!("may change these fields of packets: {}", all_or_none(fields)),
        None => "may change every field of a packet that can be written".to_owned(),
    };
    let unmetered = (!grant.unmetered.is_empty()).then(|| {
        format!(
            "Those signed by {} may run without a meter, each in a process of its own; this right cannot be passed on",
            all_or_none(&grant.unmetered)
        )
    });
    let delegation = match grant.delegations {
        Some(0) => "The holder cannot pass it on".to_owned(),
        Some(1) => "The holder can pass it on, to holders who cannot pass it on".to_owned(),
        Some(times) => format!("The holder can pass it on, through up to {times} further holders in a row"),
        None => format!("The holder can pass it on, until a chain has {BLOCKS_MAX} blocks"),
    };
    let mut sentences = vec![
        format!("It begins {begin} and {end}"),
        format!("It holds {nodes}"),
        modules,
        format!("Modules are admitted {profiles}"),
        format!("They get packets from, and send into, {interfaces}"),
        format!("They get {packets}"),
        format!("Of each packet they see {}", view.in_words()),
        memory.to_owned(),
        format!("They {writes}"),
    ];
    sentences.extend(unmetered);
    sentences.extend(Resource::ALL.iter().map(|resource| resource.explanation(ceilings.get(*resource))));
    sentences.push(delegation);
    sentences.iter().map(|sentence| format!("  {sentence}.\n")).collect()
}

/// Returns all sets of modules with all their entries. A module has to be in each set.
fn modules_in_words(modules: &Modules) -> String {
    let of_set = |set: &ModuleSet| match (set.hashes.is_empty(), set.signers.is_empty()) {
        (true, true) => "none".to_owned(),
        (false, true) => all_or_none(&set.hashes),
        (true, false) => format!("signed by {}", all_or_none(&set.signers)),
        (false, false) => format!("{} or signed by {}", all_or_none(&set.hashes), all_or_none(&set.signers)),
    };
    modules.iter().map(of_set).collect::<Vec<_>>().join(", and of these ")
}

/// Returns all items as a list, or `none` without items. The list is complete, because a grant should be read in full
/// before it is issued.
fn all_or_none<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}
