//! How things are on a node, for somebody whom not all of it concerns.

use super::{Asker, Owner};
use crate::protocol::{Snapshot, Taken};
use crate::view::Bounds;
use weir_session::Name;
use weir_wire::View;

/// What of a snapshot is for whoever asks. A holder sees his own sessions, by the names that he gave them, and those of whoever got the right from him; of the
/// node and of others nothing that he could learn something from about their traffic.
pub(crate) fn snapshot_of(
    asker: &Asker,
    all: Snapshot,
    owner_of: &dyn Fn(&Name) -> Option<Owner>,
) -> Snapshot {
    let Asker::Holder(credential) = asker else { return all };
    let owner_of = |name: &str| owner_of(&Name::new(name).ok()?);
    // Some of a channel's packets are not his because of a filter of somebody from whom he has his right: how many there are is not for him.
    let has_others = Bounds::of(credential).within.iter().any(|(_, view)| *view != View::ALL);
    let mut sessions = all.sessions;
    sessions.retain_mut(|session| {
        let Some(owner) = owner_of(&session.name).filter(|owner| owner.is_under(credential)) else {
            return false;
        };
        if owner.credential.id() == credential.id() {
            session.name = owner.given.to_string();
        }
        for channel in session.channels.iter_mut().filter(|_| has_others) {
            channel.findings.remove("unwanted");
            if channel.counts_others {
                (channel.packets, channel.bytes) = (0, 0);
                channel.drops.clear();
                channel.findings.clear();
            }
        }
        true
    });
    let reserved = sessions.iter().map(|session| session.memory_reserved).fold(0, u64::saturating_add);
    let of = credential.grant().ceilings.memory.map_or(all.memory.of, |memory| memory.0.min(all.memory.of));
    Snapshot {
        node: all.node,
        version: all.version,
        uptime_ns: all.uptime_ns,
        at_ns: all.at_ns,
        sessions,
        memory: Taken { reserved, of },
        ..Snapshot::default()
    }
}
