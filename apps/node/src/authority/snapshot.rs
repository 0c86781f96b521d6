//! How things are on a node, for somebody whom not all of it concerns.

use super::Owner;
use crate::protocol::{SessionShot, Snapshot, Taken};
use crate::view::Bounds;
use std::collections::BTreeMap;
use weir_trust::credential::Verified;
use weir_wire::View;

/// What of a snapshot is for the holder of a credential: his own sessions, by the names that he gave them, and those of whoever got the right from him; of the
/// node and of others nothing that he could learn something from about their traffic. `owners` are those of its sessions that are not the operator's.
pub(crate) fn snapshot_of(
    credential: &Verified,
    all: &Snapshot,
    owners: &BTreeMap<String, Owner>,
) -> Snapshot {
    // Some of a channel's packets are not his because of a filter of somebody from whom he has his right: how many there are is not for him.
    let has_others = Bounds::of(credential).within.iter().any(|(_, view)| *view != View::ALL);
    let his = |session: &SessionShot| {
        let owner = owners.get(&session.name).filter(|owner| owner.is_under(credential))?;
        let is_own = owner.credential.id() == credential.id();
        let name = if is_own { owner.given.to_string() } else { session.name.clone() };
        let mut session = SessionShot { name, ..session.clone() };
        for channel in session.channels.iter_mut().filter(|_| has_others) {
            channel.findings.remove("unwanted");
            if channel.counts_others {
                (channel.packets, channel.bytes) = (0, 0);
                channel.drops.clear();
                channel.findings.clear();
            }
        }
        Some(session)
    };
    let sessions: Vec<SessionShot> = all.sessions.iter().filter_map(his).collect();
    let reserved = sessions.iter().map(|session| session.memory_reserved).fold(0, u64::saturating_add);
    let of = credential.grant().ceilings.memory.map_or(all.memory.of, |memory| memory.0.min(all.memory.of));
    Snapshot {
        node: all.node.clone(),
        version: all.version.clone(),
        uptime_ns: all.uptime_ns,
        at_ns: all.at_ns,
        sessions,
        memory: Taken { reserved, of },
        ..Snapshot::default()
    }
}
