//! The reduction of a node's snapshot to the part that a holder may see.

use super::{SessionOwner, SessionRelation};
use crate::control::protocol::LimitsStatus;
use crate::control::protocol::{
    ChannelStatus, FindingsStatus, MemoryStatus, ModuleStatus, OutputStatus, ServicesStatus, SessionStatus,
    Snapshot, VirtualCpuStatus,
};
use crate::control::share::{ShareGrant, ShareableRight};
use crate::control::visibility::GrantedVisibility;
use std::collections::BTreeMap;
use weir_ledger::DropCounts;
use weir_trust::credential::VerifiedCredential;
use weir_wire::PacketView;

/// Returns the part of a snapshot for the holder of a credential: the holder's own sessions, under the names that the
/// holder gave them, and the sessions of the holder's delegates. A delegate's session is reduced to sums, unless its
/// owner shares it with the holder. The result reveals neither the node's traffic nor other holders. `owners` are the
/// owners of sessions, by the node's name of the session.
pub(crate) fn snapshot_of(
    credential: &VerifiedCredential,
    all: &Snapshot,
    owners: &BTreeMap<String, SessionOwner>,
) -> Snapshot {
    // A filter on a view was written by an earlier holder, and hides packets from this holder. Counters that include
    // hidden packets are removed.
    let has_hidden_packets = GrantedVisibility::from_credential(credential)
        .filters
        .iter()
        .any(|(_, view)| *view != PacketView::ALL);
    let visible = |session: &SessionStatus| {
        let owner = owners.get(&session.name)?;
        let relation = owner.relation(credential)?;
        let name = if relation == SessionRelation::Own {
            owner.session_name.to_string()
        } else {
            session.name.clone()
        };
        let mut session = SessionStatus { name, ..session.clone() };
        for channel in session.channels.iter_mut().filter(|_| has_hidden_packets) {
            channel.findings.remove("unmatched");
            if channel.counts_others {
                (channel.packets, channel.bytes) = (0, 0);
                channel.drops.clear();
                channel.findings.clear();
                session.used.drops = DropCounts::default();
            }
        }
        if relation == SessionRelation::Own {
            return Some(session);
        }
        // Texts of findings are records, so only the right to follow the session's records shows them.
        let follows = |share: &String| {
            let share: Option<ShareGrant> = share.parse().ok();
            share.is_some_and(|share| {
                share.right == ShareableRight::Follow && share.key == *credential.holder()
            })
        };
        if !session.share.iter().any(follows) {
            session.findings.latest.clear();
        }
        // A share is visible only to the owner of the session and to the holder of the share's key.
        session
            .share
            .retain(|share| share.parse().is_ok_and(|share: ShareGrant| share.key == *credential.holder()));
        Some(if session.share.is_empty() { sums(session) } else { session })
    };
    let sessions: Vec<SessionStatus> = all.sessions.iter().filter_map(visible).collect();
    let reserved = sessions.iter().map(|session| session.memory_reserved).fold(0, u64::saturating_add);
    let reservable = credential
        .grant()
        .ceilings
        .memory
        .map_or(all.memory.reservable, |memory| memory.0.min(all.memory.reservable));
    Snapshot {
        node: all.node.clone(),
        version: all.version.clone(),
        uptime_ns: all.uptime_ns,
        at_ns: all.at_ns,
        sessions,
        memory: MemoryStatus { reserved, reservable },
        ..Snapshot::default()
    }
}

/// Reduces a delegate's session to its usage and reservations, without its modules, packets and outputs.
fn sums(session: SessionStatus) -> SessionStatus {
    let processor = |(number, one): (usize, &VirtualCpuStatus)| VirtualCpuStatus {
        name: number.to_string(),
        ..one.clone()
    };
    SessionStatus {
        cpu: session.cpu.iter().enumerate().map(processor).collect(),
        channels: vec![sum_of_channels(&session.channels)],
        outputs: if session.outputs.is_empty() { Vec::new() } else { vec![sum_of_outputs(&session.outputs)] },
        modules: sum_of_modules(&session.modules, &session.ended).into_iter().collect(),
        ended: Vec::new(),
        used: session.used,
        limits: LimitsStatus { writes: None, writes_refused: 0, ..session.limits },
        services: ServicesStatus::default(),
        findings: FindingsStatus { latest: Vec::new(), ..session.findings },
        publish: Vec::new(),
        read: Vec::new(),
        offers: Vec::new(),
        uses: Vec::new(),
        share: Vec::new(),
        sums_only: true,
        // All fields are listed, so that a new field is not visible by default.
        name: session.name,
        id: session.id,
        // The delegator needs the credential's identifier for a revocation.
        credential: session.credential,
        priority: session.priority,
        memory_reserved: session.memory_reserved,
        memory_used: session.memory_used,
        memory_max: session.memory_max,
        memory_low: session.memory_low,
        memory_refused: session.memory_refused,
    }
}

/// The name of a channel, output channel or module in the status that is a sum.
const ALL: &str = "all";

fn sum_of_channels(channels: &[ChannelStatus]) -> ChannelStatus {
    let mut sum = ChannelStatus { name: ALL.to_owned(), ..ChannelStatus::default() };
    for channel in channels {
        add(&mut sum.waiting, channel.waiting);
        add(&mut sum.queue, channel.queue);
        add(&mut sum.packets, channel.packets);
        add(&mut sum.bytes, channel.bytes);
        add_each(&mut sum.drops, &channel.drops);
    }
    sum
}

fn sum_of_outputs(outputs: &[OutputStatus]) -> OutputStatus {
    let mut sum = OutputStatus { name: ALL.to_owned(), ..OutputStatus::default() };
    for output in outputs {
        add(&mut sum.reserved_bits, output.reserved_bits);
        add(&mut sum.cap_bits, output.cap_bits);
        add(&mut sum.waiting, output.waiting);
        add(&mut sum.queue, output.queue);
        add(&mut sum.packets, output.packets);
        add(&mut sum.bytes, output.bytes);
        add(&mut sum.wire_bytes, output.wire_bytes);
        add(&mut sum.reserved_wire_bytes, output.reserved_wire_bytes);
        add_each(&mut sum.drops, &output.drops);
    }
    sum
}

fn sum_of_modules(modules: &[ModuleStatus], ended: &[ModuleStatus]) -> Option<ModuleStatus> {
    let state = modules.first().map(|_| "running").or(ended.first().map(|_| "ended"))?;
    let mut sum = ModuleStatus { name: ALL.to_owned(), state: state.to_owned(), ..ModuleStatus::default() };
    for module in modules.iter().chain(ended) {
        add(&mut sum.packets, module.packets);
        add(&mut sum.records, module.records);
        add(&mut sum.records_lost, module.records_lost);
        add(&mut sum.faults, module.faults);
        add(&mut sum.strikes, module.strikes);
        add(&mut sum.used_ns, module.used_ns);
        add(&mut sum.other_threads_ns, module.other_threads_ns);
        add(&mut sum.memory, module.memory);
    }
    Some(sum)
}

fn add(to: &mut u64, more: u64) {
    *to = to.saturating_add(more);
}

fn add_each(to: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    more.iter().for_each(|(cause, count)| add(to.entry(cause.clone()).or_default(), *count));
}
