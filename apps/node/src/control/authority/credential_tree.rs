//! The tree of the delegations under which sessions run, reduced to the part that the requester may see.

use super::ceilings::{Used, used};
use super::{Requester, SessionOwner, SessionRelation};
use crate::control::protocol::{CredentialTree, DelegationStatus, RootStatus};
use crate::control::spec::SessionSpec;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_admission::Name;
use weir_trust::credential::{ChainBlock, DatedId, DelegationId, VerifiedCredential};
use weir_trust::explain;
use weir_trust::grant::{Ceilings, Grant, GrantCommand};
use weir_trust::key::PublicKey;
use weir_trust::revocation::Revocations;

/// The most delegations of a tree.
const DELEGATIONS_MAX: usize = 8192;
/// The most bytes of the texts of all delegations' rights together. This limit and [`DELEGATIONS_MAX`] keep an answer within its
/// greatest length, also if each character is escaped.
const RIGHTS_BYTES_MAX: usize = 8 << 20;

/// A session in the tree, copied so that the tree is built without the node's lock.
#[derive(Debug)]
pub(crate) struct TreeSession {
    credential: Arc<VerifiedCredential>,
    /// The name by which the requester calls the session.
    name: Name,
    used: Used,
}

impl TreeSession {
    /// Returns a session for the tree of a requester; `None` if the session does not concern the requester.
    pub(crate) fn new(requester: &Requester, owner: &SessionOwner, spec: &SessionSpec) -> Option<Self> {
        let name = match requester {
            Requester::Operator(_) => &spec.name,
            Requester::Holder(credential) => match owner.relation(credential)? {
                SessionRelation::Own => &owner.session_name,
                SessionRelation::Delegator => &spec.name,
            },
        };
        Some(Self { credential: Arc::clone(&owner.credential), name: name.clone(), used: used(spec) })
    }
}

/// The delegations of one root that were found so far, by identifier.
#[derive(Default)]
struct RootTree {
    delegations: BTreeMap<DelegationId, FoundDelegation>,
    /// The delegations without a delegator in the tree.
    top: BTreeSet<DelegationId>,
    /// The sum of the usage of all of its sessions that concern the requester, also of those for which the tree has no room.
    used: Used,
}

/// A delegation in the tree. Its holder owns a session, or a holder below it does; or it is the requester's own delegation.
struct FoundDelegation {
    /// The status, without the usage and the delegates.
    status: DelegationStatus,
    /// The ceilings that the status shows.
    ceilings: Ceilings,
    /// The sum of the usage of its sessions, and of those below it.
    used: Used,
    /// The delegations directly below it.
    delegates: BTreeSet<DelegationId>,
}

/// The room for further parts of a tree.
struct TreeRoom {
    /// The number of further delegations.
    delegations: usize,
    /// The bytes of the texts of further rights.
    rights_bytes: usize,
}

/// The circumstances of a tree, and the room that is left in it.
struct TreeBuilder<'a> {
    /// The holder for whom the tree is; `None` for an operator.
    holder: Option<&'a VerifiedCredential>,
    /// The revocations that the node knows.
    revocations: &'a Revocations,
    room: TreeRoom,
}

/// Returns the tree for a requester. `sessions` are those that concern the requester, `roots` all trusted roots with the
/// limits of the node's policy.
///
/// An operator sees every root, and each delegation from the root to the owner of a session. A holder sees the own
/// delegation, with or without a session, and each delegation from there to the owner of a session. A holder sees neither
/// siblings nor the usage under earlier holders.
pub(crate) fn credential_tree<'a>(
    requester: &Requester,
    sessions: &[TreeSession],
    roots: impl Iterator<Item = (&'a PublicKey, &'a Grant)>,
    revocations: &Revocations,
) -> CredentialTree {
    let room = TreeRoom { delegations: DELEGATIONS_MAX, rights_bytes: RIGHTS_BYTES_MAX };
    tree_within(room, requester, sessions, roots, revocations)
}

fn tree_within<'a>(
    room: TreeRoom,
    requester: &Requester,
    sessions: &[TreeSession],
    roots: impl Iterator<Item = (&'a PublicKey, &'a Grant)>,
    revocations: &Revocations,
) -> CredentialTree {
    let holder = match requester {
        Requester::Operator(_) => None,
        Requester::Holder(credential) => Some(&**credential),
    };
    let mut builder = TreeBuilder { holder, revocations, room };
    let mut trees: BTreeMap<PublicKey, RootTree> = BTreeMap::new();
    if let Some(own) = holder {
        builder.find(trees.entry(*own.root()).or_default(), own, None, &Used::default());
    }
    let mut left_out = 0_u64;
    // There can be thousands of sessions, so each session is visited only once.
    for session in sessions {
        let TreeSession { credential, name, used } = session;
        let tree = trees.entry(*credential.root()).or_default();
        tree.used = tree.used.plus(used);
        if !builder.find(tree, credential, Some(name), used) {
            left_out = left_out.saturating_add(1);
        }
    }
    let shown: Vec<(&PublicKey, Option<&Grant>)> = match holder {
        Some(own) => vec![(own.root(), None)],
        None => roots.map(|(root, limit)| (root, Some(limit))).collect(),
    };
    let status = |(root, limit): (&PublicKey, Option<&Grant>)| {
        let RootTree { mut delegations, top, used } = trees.remove(root).unwrap_or_default();
        RootStatus {
            root: root.to_string(),
            policy_ceilings: limit.iter().flat_map(|limit| used.under(&limit.ceilings)).collect(),
            grants: statuses(&mut delegations, &top),
        }
    };
    let roots = shown.into_iter().map(status).collect();
    CredentialTree { node: String::new(), roots, left_out }
}

impl TreeBuilder<'_> {
    /// Adds the delegations of a chain that the requester may see. `session` is a session of the chain's holder, and `used` its
    /// usage, which counts for each of these delegations. Returns false if the tree has no room for all of the delegations.
    /// Delegations before the first one without room are in the tree nevertheless, and the usage counts for them.
    fn find(
        &mut self,
        tree: &mut RootTree,
        credential: &VerifiedCredential,
        session: Option<&Name>,
        used: &Used,
    ) -> bool {
        let chain = credential.chain();
        let first = self.holder.map_or(Some(0), |own| chain.iter().position(|block| block.id == own.id()));
        // Callers pass only chains that concern the holder.
        let Some(first) = first else { return true };
        let revoked_from = self.revocations.find(credential.root(), chain).map(|revoked| revoked.block);
        let mut above: Option<DelegationId> = None;
        for ((index, block), dated) in chain.iter().enumerate().zip(DatedId::of_chain(chain)).skip(first) {
            if let Entry::Vacant(place) = tree.delegations.entry(block.id) {
                let is_revoked = revoked_from.is_some_and(|from| index >= from);
                let Some(found) = self.describe(credential, index, block, dated, is_revoked) else {
                    return false;
                };
                place.insert(found);
                match above.and_then(|above| tree.delegations.get_mut(&above)) {
                    Some(above) => _ = above.delegates.insert(block.id),
                    None => _ = tree.top.insert(block.id),
                }
            }
            let Some(found) = tree.delegations.get_mut(&block.id) else { return false };
            found.used = found.used.plus(used);
            if index + 1 == chain.len() {
                found.status.sessions.extend(session.map(Name::to_string));
            }
            above = Some(block.id);
        }
        true
    }

    /// Describes a delegation; `None` if the tree has no room for it. `dated` has the time at which the delegation expires,
    /// which can be that of a delegation before it.
    fn describe(
        &mut self,
        credential: &VerifiedCredential,
        index: usize,
        block: &ChainBlock,
        dated: DatedId,
        is_revoked: bool,
    ) -> Option<FoundDelegation> {
        let grant = credential.grant_up_to(index)?;
        let allows = explain::grant(&grant, true).into_iter();
        let allows: Vec<(String, String)> = allows.map(|(part, words)| (part.to_string(), words)).collect();
        let options = block.grant.options(GrantCommand::of_block(index)).unwrap_or_default().into_iter();
        let options: Vec<(String, String)> =
            options.map(|(option, value)| (option.to_owned(), value)).collect();
        let rights_bytes = allows.iter().chain(&options).map(|(part, words)| part.len() + words.len()).sum();
        self.room = TreeRoom {
            delegations: self.room.delegations.checked_sub(1)?,
            rights_bytes: self.room.rights_bytes.checked_sub(rights_bytes)?,
        };
        // A holder does not see the delegations above, so their ceilings are shown as the holder's own.
        let is_own = self.holder.is_some_and(|own| own.id() == block.id);
        let status = DelegationStatus {
            id: dated.to_string(),
            holder: block.holder.to_string(),
            expires_s: dated.expires.map(|time| time.number()),
            revoked: is_revoked,
            allows,
            options,
            ..DelegationStatus::default()
        };
        let ceilings = if is_own { grant.ceilings } else { block.grant.ceilings };
        Some(FoundDelegation { status, ceilings, used: Used::default(), delegates: BTreeSet::new() })
    }
}

/// Returns the statuses of these delegations, with those below them. Chains have at most
/// [`weir_trust::credential::BLOCKS_MAX`] blocks, which bounds the recursion.
fn statuses(
    delegations: &mut BTreeMap<DelegationId, FoundDelegation>,
    ids: &BTreeSet<DelegationId>,
) -> Vec<DelegationStatus> {
    let mut all = Vec::new();
    for id in ids {
        let Some(FoundDelegation { status, ceilings, used, delegates }) = delegations.remove(id) else {
            continue;
        };
        let (used, delegates) = (used.under(&ceilings).collect(), statuses(delegations, &delegates));
        all.push(DelegationStatus { used, delegates, ..status });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::authority::tests::{ceilings, chain, created, person, spec};
    use crate::control::protocol::{ANSWER_BYTES_MAX, CeilingStatus};
    use weir_trust::grant::{Resource, UnixSecond};
    use weir_trust::revocation::{ListReception, RevocationList};

    /// A holder with a session, two delegates with a session each, and another holder of the same root.
    struct Holders {
        parent: Arc<VerifiedCredential>,
        one: Arc<VerifiedCredential>,
        other: Arc<VerifiedCredential>,
        owned: Vec<(SessionOwner, SessionSpec)>,
    }

    fn holders() -> Holders {
        let delegated = |until| Grant { expires: UnixSecond::new(until), ..ceilings(50 << 20) };
        let parent = chain(&[ceilings(100 << 20)]);
        let [one, other] = [1000, 2000].map(|until| chain(&[ceilings(100 << 20), delegated(until)]));
        let stranger = chain(&[ceilings(200 << 20)]);
        let owned = [(&parent, 1), (&one, 2), (&other, 4), (&stranger, 8)].map(|(credential, memory)| {
            let (spec, owner) = created(credential, spec(&format!("memory = \"{memory} MiB\"")));
            (owner, spec)
        });
        Holders { parent, one, other, owned: owned.into() }
    }

    fn tree(
        holders: &Holders,
        requester: &Requester,
        room: TreeRoom,
        revocations: &Revocations,
    ) -> CredentialTree {
        let sessions =
            holders.owned.iter().filter_map(|(owner, spec)| TreeSession::new(requester, owner, spec));
        let sessions: Vec<TreeSession> = sessions.collect();
        let (roots, limit) = ([person(0).public(), person(9).public()], ceilings(400 << 20));
        let roots = roots.iter().map(|root| (root, &limit));
        tree_within(room, requester, &sessions, roots, revocations)
    }

    fn room() -> TreeRoom {
        TreeRoom { delegations: 100, rights_bytes: 100_000 }
    }

    fn seen_by(holders: &Holders, credential: &Arc<VerifiedCredential>) -> CredentialTree {
        let requester = Requester::Holder(Arc::clone(credential));
        tree(holders, &requester, room(), &Revocations::default())
    }

    fn memory(used: &[CeilingStatus]) -> (u64, u64) {
        assert_eq!(used.iter().map(|it| it.resource.as_str()).collect::<Vec<_>>(), ["memory"]);
        (used[0].used >> 20, used[0].granted >> 20)
    }

    #[test]
    fn an_operator_sees_all_roots_and_every_delegation_with_the_sum_below_it() {
        let holders = holders();
        let seen = tree(&holders, &Requester::Operator(None), room(), &Revocations::default());
        assert_eq!(seen.roots.len(), 2);
        let (root, unused) = (&seen.roots[0], &seen.roots[1]);
        assert_eq!(root.root, person(0).public().to_string());
        assert_eq!(memory(&root.policy_ceilings), (15, 400));
        assert_eq!((memory(&unused.policy_ceilings), unused.grants.len()), ((0, 400), 0));
        let parent = root.grants.iter().find(|it| memory(&it.used) == (7, 100)).unwrap();
        let id = DatedId::of_chain(holders.parent.chain()).last().unwrap();
        assert_eq!(
            (&parent.id, parent.holder.as_str()),
            (&id.to_string(), person(1).public().to_string().as_str())
        );
        assert_eq!(parent.sessions, [holders.owned[0].1.name.to_string()]);
        assert!(
            parent.allows.contains(&("memory".to_owned(), "at most 100 MiB".to_owned())),
            "{:?}",
            parent.allows
        );
        let stated = |it: &DelegationStatus| Grant::from_options(&it.options).unwrap();
        // The options also state when the credential expires.
        assert_eq!(Grant { expires: None, ..stated(parent) }, ceilings(100 << 20));
        assert!(parent.delegates.iter().all(|it| stated(it).ceilings == ceilings(50 << 20).ceilings));
        let mut below: Vec<_> = parent.delegates.iter().map(|it| (memory(&it.used), it.expires_s)).collect();
        below.sort_unstable();
        assert_eq!(below, [((2, 50), Some(1000)), ((4, 50), Some(2000))]);
        assert_eq!(root.grants.iter().filter(|it| memory(&it.used) == (8, 200)).count(), 1);
        assert_eq!((root.grants.len(), seen.left_out), (2, 0));
    }

    #[test]
    fn a_holder_sees_neither_siblings_nor_the_usage_under_earlier_holders() {
        let holders = holders();
        let seen = seen_by(&holders, &holders.one);
        let [root] = seen.roots.as_slice() else { panic!("{seen:?}") };
        let [own] = root.grants.as_slice() else { panic!("{seen:?}") };
        assert_eq!((memory(&own.used), root.policy_ceilings.len()), ((2, 50), 0));
        // The holder's own name of the session.
        assert_eq!((own.sessions.as_slice(), own.delegates.len()), (&["s".to_owned()][..], 0));
        let text = serde_json::to_string(&seen).unwrap();
        for hidden in [&holders.parent, &holders.other] {
            assert!(!text.contains(&hidden.id().to_string()), "{text}");
        }
        for (_, spec) in &holders.owned {
            assert!(!text.contains(spec.name.as_str()), "{text}");
        }
        // A delegator sees the sessions of delegates by the node's names, and not those of other holders of the root.
        let seen = seen_by(&holders, &holders.parent);
        let [own] = seen.roots[0].grants.as_slice() else { panic!("{seen:?}") };
        assert_eq!((memory(&own.used), own.delegates.len()), ((7, 100), 2));
        let mut below: Vec<&String> = own.delegates.iter().flat_map(|it| &it.sessions).collect();
        let mut names = [&holders.owned[1], &holders.owned[2]].map(|(_, spec)| spec.name.to_string());
        below.sort_unstable();
        names.sort_unstable();
        assert_eq!(below, names.iter().collect::<Vec<_>>());
        // Without a session.
        let idle = chain(&[ceilings(3 << 20)]);
        let seen = seen_by(&holders, &idle);
        assert_eq!(memory(&seen.roots[0].grants[0].used), (0, 3));
    }

    #[test]
    fn a_revoked_delegation_and_all_below_it_are_marked() {
        let holders = holders();
        let mut revocations = Revocations::default();
        let revoked = DatedId::from(holders.one.id()).into();
        let list = RevocationList::sign(&person(0), 1, UnixSecond::default(), revoked).unwrap();
        let roots = [person(0).public()];
        revocations.accept(&list, &ListReception::new(&roots, UnixSecond::default())).unwrap();
        let seen = tree(&holders, &Requester::Operator(None), room(), &revocations);
        let all = seen.roots[0].grants.iter().flat_map(|it| std::iter::once(it).chain(&it.delegates));
        let revoked: Vec<&DelegationStatus> = all.filter(|it| it.revoked).collect();
        assert_eq!(revoked.iter().map(|it| it.expires_s).collect::<Vec<_>>(), [Some(1000)]);
    }

    #[test]
    fn sessions_beyond_the_room_are_counted_and_the_longest_tree_fits_an_answer() {
        let holders = holders();
        for (room, left_out) in [
            (TreeRoom { delegations: 0, ..room() }, 4),
            (TreeRoom { delegations: 2, ..room() }, 2),
            (TreeRoom { rights_bytes: 10, ..room() }, 4),
        ] {
            let seen = tree(&holders, &Requester::Operator(None), room, &Revocations::default());
            assert_eq!(seen.left_out, left_out);
        }
        // The longest status of a delegation without words; each character of the words can need an escape.
        let mut all = Ceilings::default();
        Resource::ALL.iter().for_each(|resource| all.set(*resource, Some(u64::MAX)));
        let seen = tree(&holders, &Requester::Operator(None), room(), &Revocations::default());
        let longest = DelegationStatus {
            used: Used::default().under(&all).collect(),
            ..seen.roots[0].grants[0].clone()
        };
        let bytes = serde_json::to_string(&longest).unwrap().len();
        assert!(bytes * DELEGATIONS_MAX + 2 * RIGHTS_BYTES_MAX < ANSWER_BYTES_MAX, "{bytes}");
    }
}
