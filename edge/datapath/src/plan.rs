//! The plan of an interface: which packets go to which queues.

use crate::account::DeferredCharges;
use crate::effects::Patches;
use crate::egress::{Copies, Egress};
use crate::queue::PacketQueue;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_demux::{
    CHANNELS_MAX, ChannelSet, FilterProgram, Filters, JoinError, JoinLimits, Joined, Joiner, SubFlows,
};
use weir_netio::{Block, Selection};
use weir_wire::{BadChecksum, PEEK, ReassemblyCounters};

/// What a channel got and lost. Counters only grow.
#[derive(Debug, Default)]
pub struct ChannelPlanCounters {
    /// Packets that its filter selected.
    pub packets: AtomicU64,
    /// Their bytes on the link.
    pub bytes: AtomicU64,
    /// Of these, what went on without a module, and its bytes.
    pub passed: AtomicU64,
    /// Bytes on the link of what went on without a module.
    pub passed_bytes: AtomicU64,
    /// Lost because a queue was full.
    pub queue_full: AtomicU64,
    /// Lost because a reader lagged too far behind.
    pub lagged: AtomicU64,
    /// Lost because the channel's own memory was full.
    pub no_memory: AtomicU64,
    /// Lost because there was too much for all, and others had a higher priority.
    pub shed: AtomicU64,
    /// Lost because their reader lagged too far behind and was ended.
    pub ended: AtomicU64,
    /// Lost because their session was closed or their module unloaded, and nothing goes on without it.
    pub closed: AtomicU64,
    /// Lost because a checksum was wrong: of IPv4, TCP, UDP and ICMP.
    bad_checksums: [AtomicU64; 4],
    /// What became of fragments that were to be put together.
    pub reassembly: ReassemblyStatus,
    /// Not wanted by a filter that looks at what is shown of them.
    pub unwanted: AtomicU64,
}

/// What became of fragments. Counters only grow.
#[derive(Debug, Default)]
pub struct ReassemblyStatus {
    datagrams: AtomicU64,
    overlapping: AtomicU64,
    late: AtomicU64,
    displaced: AtomicU64,
    malformed: AtomicU64,
    repeated: AtomicU64,
}

impl ReassemblyStatus {
    /// Fragments that came into no datagram, for whatever cause.
    pub fn lost(&self) -> u64 {
        let lost = [&self.overlapping, &self.late, &self.displaced, &self.malformed, &self.repeated];
        lost.into_iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// Counts what was added to `before`.
    pub fn add(&self, before: &ReassemblyCounters, now: &ReassemblyCounters) {
        for (counter, before, now) in [
            (&self.datagrams, before.datagrams, now.datagrams),
            (&self.overlapping, before.overlapping, now.overlapping),
            (&self.late, before.late, now.late),
            (&self.displaced, before.displaced, now.displaced),
            (&self.malformed, before.malformed, now.malformed),
            (&self.repeated, before.repeated, now.repeated),
        ] {
            if now > before {
                counter.fetch_add(now - before, Ordering::Relaxed);
            }
        }
    }
}

impl ChannelPlanCounters {
    /// Counts packets that came for it.
    pub fn came(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Lost because a checksum was wrong, of whatever protocol.
    pub fn bad_checksums(&self) -> u64 {
        self.bad_checksums.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// Packets of which this checksum was wrong.
    pub fn bad_checksum(&self, which: BadChecksum) -> &AtomicU64 {
        let [ipv4, tcp, udp, icmp] = &self.bad_checksums;
        match which {
            BadChecksum::Ipv4 => ipv4,
            BadChecksum::Tcp => tcp,
            BadChecksum::Udp => udp,
            BadChecksum::Icmp => icmp,
        }
    }

    /// What was found out about packets on the way to their modules, by name.
    pub fn findings(&self) -> [(&'static str, u64); 11] {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bad = |which| get(self.bad_checksum(which));
        let fragments = &self.reassembly;
        [
            ("bad-ipv4", bad(BadChecksum::Ipv4)),
            ("bad-tcp", bad(BadChecksum::Tcp)),
            ("bad-udp", bad(BadChecksum::Udp)),
            ("bad-icmp", bad(BadChecksum::Icmp)),
            ("reassembled", get(&fragments.datagrams)),
            ("fragments-overlapping", get(&fragments.overlapping)),
            ("fragments-late", get(&fragments.late)),
            ("fragments-displaced", get(&fragments.displaced)),
            ("fragments-malformed", get(&fragments.malformed)),
            ("fragments-repeated", get(&fragments.repeated)),
            ("unwanted", get(&self.unwanted)),
        ]
    }
}

/// The thread that a reader runs on.
pub trait Wake: Debug + Send + Sync {
    /// Wakes a module for packets.
    fn wake(&self, module: u64);

    /// Has a module release the packets in hand before this position: others need their memory.
    fn release(&self, module: u64, position: u64);
}

/// A module that takes packets of a channel.
#[derive(Clone, Debug)]
pub struct PlanReader {
    /// The number of the module.
    pub module: u64,
    /// The queue in which its packets wait.
    pub queue: Arc<PacketQueue>,
    /// The thread that is to be woken.
    pub waker: Arc<dyn Wake>,
    /// What is spent for it.
    pub account: Arc<DeferredCharges>,
}

/// How far a reader may lag, and what becomes of it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagCounters {
    /// Bytes of traffic.
    pub most: u64,
    /// Whether its session is to be closed.
    pub ends: bool,
}

/// What a channel's readers see.
#[derive(Clone, Debug)]
pub enum Visibility {
    /// The interface's own memory.
    All(LagCounters),
    /// A copy of what the filter selects, or of what is shown of that. Channels with one filter and view share it.
    Selected(Arc<Mutex<Selection>>),
    /// Nothing of a copy of what is selected, which only the node looks at: what it makes of that for each of them, in memory of their own. See
    /// [`Preprocessor`](crate::preprocess::Preprocessor).
    Made(Arc<Mutex<Selection>>),
}

impl Visibility {
    /// Where packets are copied, if they are.
    pub fn selection(&self) -> Option<&Arc<Mutex<Selection>>> {
        match self {
            Self::All(_) => None,
            Self::Selected(selection) | Self::Made(selection) => Some(selection),
        }
    }

    /// Whether some of the packets that are selected turn out to be nobody's when they are shown.
    pub fn is_screened(&self) -> bool {
        self.selection()
            .is_some_and(|selection| selection.lock().unwrap_or_else(PoisonError::into_inner).is_screened())
    }
}

/// A channel as its interface sees it.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its number on this node, which no other channel ever had.
    pub channel: u64,
    /// The number of its owner, for [`Notice::Lagging`](crate::notice::ObservedEvent::Lagging), which no other owner ever had.
    pub owner: u64,
    /// That of its owner.
    pub priority: u8,
    /// Which packets.
    pub program: Arc<FilterProgram>,
    /// What its readers see.
    pub sight: Visibility,
    /// Which of the packets that come here are its own is known when they are shown: they are counted then.
    pub is_screened: bool,
    /// How its packets are divided.
    pub flows: Option<SubFlows>,
    /// Its readers.
    pub readers: Vec<PlanReader>,
    /// The way of its packets while it has no reader: into [`Egress::Nothing`] they are counted as lost. `None` where it then takes no packets.
    pub unattended: Option<Egress>,
    /// What it got and lost.
    pub tally: Arc<ChannelPlanCounters>,
    /// What is spent for it while there is no reader.
    pub account: Arc<DeferredCharges>,
}

/// All channels of an interface, each at a place that it keeps as long as it exists.
#[derive(Clone, Debug, Default)]
pub struct ForwardingPlan {
    pub(crate) joined: Arc<Joined>,
    pub(crate) routes: Vec<Option<Route>>,
    /// Channels that take packets: somebody reads them, or they go on without that.
    pub(crate) taken: ChannelSet,
    /// Channels that somebody reads and that see the interface's own memory.
    pub(crate) whole: Vec<usize>,
    /// For each selection, which channels that somebody reads have it.
    pub(crate) selections: Vec<(Arc<Mutex<Selection>>, Vec<usize>)>,
}

impl ForwardingPlan {
    /// The channel at a place.
    pub fn route(&self, place: usize) -> Option<&Route> {
        self.routes.get(place)?.as_ref()
    }

    /// Adds all channels of a selection of which one is there. They have one filter; but a later fragment goes where its first one went, and some of them may
    /// have come after that.
    pub(crate) fn complete(&self, wanted: &mut ChannelSet) {
        for (_, places) in &self.selections {
            if places.iter().any(|place| wanted.contains(*place)) {
                places.iter().for_each(|place| wanted.insert(*place));
            }
        }
    }

    /// Places at which there is not the channel any more that an earlier plan has there.
    pub fn gone_since(&self, earlier: &Self) -> ChannelSet {
        let number = |plan: &Self, place| plan.route(place).map(|route| route.channel);
        (0..earlier.routes.len())
            .filter(|&place| {
                number(earlier, place).is_some_and(|channel| number(self, place) != Some(channel))
            })
            .collect()
    }
}

/// When no filter has come or gone for so long, all are joined, where some were not.
const QUIET: Duration = Duration::from_millis(500);

/// Makes plans. Joining many filters takes long, so it is done by whoever asks for another plan, with as few of them as can be: packets go where the
/// present plan says until the next one is there.
#[derive(Clone, Debug)]
pub struct Planner {
    /// Which channel is where.
    places: Vec<Option<u64>>,
    joiner: Joiner,
    /// When a filter came or went, and all filters have not been joined since.
    changed: Option<Instant>,
}

impl Default for Planner {
    fn default() -> Self {
        Self { places: Vec::new(), joiner: Joiner::new(JoinLimits::default()), changed: None }
    }
}

impl Planner {
    /// A plan for these channels.
    ///
    /// # Errors
    ///
    /// There are too many, or their filters are too much together; the planner is as it was.
    pub fn plan(&mut self, routes: Vec<Route>) -> Result<ForwardingPlan, JoinError> {
        if routes.len() > CHANNELS_MAX {
            return Err(JoinError::TooManyChannels(routes.len()));
        }
        let known: HashMap<u64, usize> = self
            .places
            .iter()
            .enumerate()
            .filter_map(|(place, channel)| Some(((*channel)?, place)))
            .collect();
        let mut laid: Vec<Option<Route>> = self.places.iter().map(|_| None).collect();
        let mut new = Vec::new();
        for route in routes {
            match known.get(&route.channel) {
                Some(&place) => laid[place] = Some(route),
                None => new.push(route),
            }
        }
        let free: Vec<usize> = (0..laid.len()).filter(|&place| laid[place].is_none()).collect();
        let mut free = free.into_iter();
        for route in new {
            match free.next() {
                Some(place) => laid[place] = Some(route),
                None => laid.push(Some(route)),
            }
        }
        let filters: Filters =
            laid.iter().map(|route| route.as_ref().map(|route| Arc::clone(&route.program))).collect();
        let before = Arc::clone(self.joiner.joined());
        let joined = Arc::clone(self.joiner.change(filters)?);
        if !Arc::ptr_eq(&before, &joined) {
            self.changed = Some(Instant::now());
        }
        self.places = laid.iter().map(|route| route.as_ref().map(|route| route.channel)).collect();
        Ok(ForwardingPlan::new(joined, laid))
    }

    /// The filters, where some are not joined with the others yet, and it has been quiet for a while.
    pub fn unsettled(&self, now: Instant) -> Option<Filters> {
        let since = self.changed.filter(|_| !self.joiner.joined().is_settled())?;
        (now.saturating_duration_since(since) >= QUIET).then(|| self.joiner.filters().clone())
    }

    /// What has come of joining them. What says where packets go from now on, where they are still the present ones.
    pub fn settle(&mut self, filters: &Filters, joined: Result<Joined, JoinError>) -> Option<Arc<Joined>> {
        match joined {
            Ok(joined) => self.joiner.settle(filters, joined).then(|| Arc::clone(self.joiner.joined())),
            // Together they are too much, and as they are they are not: so they stay, until another comes or goes.
            Err(_) => {
                self.changed = self.changed.filter(|_| filters != self.joiner.filters());
                None
            }
        }
    }
}

impl ForwardingPlan {
    fn new(joined: Arc<Joined>, laid: Vec<Option<Route>>) -> Self {
        let mut plan = Self { joined, routes: laid, ..Self::default() };
        let mut known = HashMap::new();
        for (place, route) in plan.routes.iter().enumerate() {
            let Some(route) = route else { continue };
            // A channel without a module takes nothing, but for what goes on without one.
            if route.readers.is_empty() {
                if route.unattended.is_some() {
                    plan.taken.insert(place);
                }
                continue;
            }
            plan.taken.insert(place);
            let Some(selection) = route.sight.selection() else {
                plan.whole.push(place);
                continue;
            };
            let next = plan.selections.len();
            let at = *known.entry(Arc::as_ptr(selection)).or_insert(next);
            match plan.selections.get_mut(at) {
                Some((_, places)) => places.push(place),
                None => plan.selections.push((Arc::clone(selection), vec![place])),
            }
        }
        plan
    }

    /// The same with other tables.
    pub fn with(&self, joined: Arc<Joined>) -> Self {
        Self { joined, ..self.clone() }
    }
}

impl Route {
    /// Returns true if its packets go on without a module, because it has none.
    pub fn is_unattended(&self) -> bool {
        self.unattended.is_some() && self.readers.is_empty()
    }

    /// Has packets of a block go on that no module decides about.
    pub fn pass(&self, block: &Block, masks: &[u64], copies: &mut Copies) {
        let Some(egress) = &self.unattended else { return };
        let (mut packets, mut bytes) = (0, 0);
        for (batch, mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            packets += u64::from(mask.count_ones());
            if !matches!(egress, Egress::Nothing) {
                copies.pass(std::slice::from_ref(egress), block, batch, *mask, &mut Patches::default());
                let there = block.descriptors().iter().skip(block.batch(batch).first).enumerate();
                let passed = there.take(64).filter(|(place, _)| mask >> place & 1 == 1);
                bytes += passed.map(|(_, descriptor)| u64::from(descriptor.wire_len)).sum::<u64>();
            }
        }
        if matches!(egress, Egress::Nothing) {
            self.tally.closed.fetch_add(packets, Ordering::Relaxed);
        } else {
            self.tally.passed.fetch_add(packets, Ordering::Relaxed);
            self.tally.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Puts packets of a block into the queues of its readers.
    pub fn put(
        &self,
        block: &Arc<Block>,
        masks: &[u64],
        position: u64,
        head: &mut Vec<u8>,
        flows: &mut Vec<u16>,
    ) {
        flows.clear();
        if let Some(sub_flows) = &self.flows {
            let queue = |(index, descriptor)| {
                block.copy_head(index, PEEK, head);
                sub_flows.queue(descriptor, head)
            };
            flows.extend(block.descriptors().iter().enumerate().map(queue));
        }
        for reader in &self.readers {
            let put = reader.queue.put(block, masks, position, flows);
            self.tally.queue_full.fetch_add(put.lost, Ordering::Relaxed);
            if put.wakes {
                reader.waker.wake(reader.module);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_demux::{Instruction, Packet};

    /// A thread that is never woken.
    #[derive(Debug)]
    struct Asleep;

    impl Wake for Asleep {
        fn wake(&self, _: u64) {}

        fn release(&self, _: u64, _: u64) {}
    }

    /// A channel for packets that begin with this byte.
    fn route(channel: u64, byte: u32, readers: usize) -> Route {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let program = [code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)];
        let reader = PlanReader {
            module: channel,
            queue: Arc::new(PacketQueue::new(1, 1)),
            waker: Arc::new(Asleep),
            account: Arc::default(),
        };
        Route {
            channel,
            owner: 1,
            priority: 0,
            program: Arc::new(FilterProgram::new(&program).unwrap()),
            sight: Visibility::All(LagCounters { most: 1, ends: false }),
            is_screened: false,
            flows: None,
            readers: vec![reader; readers],
            unattended: None,
            tally: Arc::default(),
            account: Arc::default(),
        }
    }

    /// The numbers of the channels that want a packet.
    fn wanted(plan: &ForwardingPlan, first: u8) -> Vec<u64> {
        let mut set = ChannelSet::NONE;
        plan.joined.channels(&Packet { head: &[first], cap_len: 1, wire_len: 1 }, &mut set).unwrap();
        set.iter().map(|place| plan.route(place).unwrap().channel).collect()
    }

    #[test]
    fn channels_keep_their_places_and_a_place_that_is_given_again_is_known() {
        let mut planner = Planner::default();
        let first = planner.plan(vec![route(1, 1, 1), route(2, 2, 1), route(3, 2, 0)]).unwrap();
        assert_eq!((wanted(&first, 1), wanted(&first, 2)), (vec![1], vec![2, 3]));
        assert_eq!((first.taken.iter().collect::<Vec<_>>(), &first.whole[..]), (vec![0, 1], &[0, 1][..]));

        let second = planner.plan(vec![route(9, 1, 1), route(3, 2, 1)]).unwrap();
        assert_eq!((wanted(&second, 1), wanted(&second, 2)), (vec![9], vec![3]));
        assert_eq!(second.route(2).unwrap().channel, 3);
        assert_eq!(second.gone_since(&first).iter().collect::<Vec<_>>(), [0, 1]);
        assert!(second.gone_since(&second).is_empty());
    }

    #[test]
    fn filters_are_joined_again_only_where_one_came_or_went() {
        let mut planner = Planner::default();
        let first = planner.plan(vec![route(1, 1, 0), route(2, 2, 0)]).unwrap();
        let with_a_module = planner.plan(vec![route(1, 1, 1), route(2, 2, 0)]).unwrap();
        assert!(Arc::ptr_eq(&first.joined, &with_a_module.joined));
        let with_another_channel =
            planner.plan(vec![route(1, 1, 1), route(2, 2, 0), route(3, 3, 0)]).unwrap();
        assert!(!Arc::ptr_eq(&first.joined, &with_another_channel.joined));
        assert_eq!((wanted(&first, 3), wanted(&with_another_channel, 3)), (vec![], vec![3]));
    }

    #[test]
    fn all_are_joined_when_it_is_quiet_and_nothing_goes_elsewhere_meanwhile() {
        let mut planner = Planner::default();
        let later = || Instant::now() + QUIET;
        assert!(planner.unsettled(later()).is_none(), "there are none");
        // Those that come later want other packets.
        let of = |channel: u64| route(channel, u32::from(channel >= 40), 1);
        let many = |range: std::ops::Range<u64>| range.map(of).collect();
        planner.plan(many(0..40)).unwrap();
        assert!(planner.unsettled(later()).is_none(), "so many that they were joined at once");
        let plan = planner.plan(many(1..41)).unwrap();
        assert!(!plan.joined.is_settled() && planner.unsettled(Instant::now()).is_none(), "it is not quiet");
        let filters = planner.unsettled(later()).unwrap();
        let whole = weir_demux::whole(&filters, &JoinLimits::default());
        let quiet = plan.with(planner.settle(&filters, whole).unwrap());
        assert!(quiet.joined.is_settled() && planner.unsettled(later()).is_none());
        for plan in [&plan, &quiet] {
            assert_eq!((wanted(plan, 0).len(), wanted(plan, 1)), (39, vec![40]));
        }
        // What has come while they were being joined is not forgotten.
        planner.plan(many(2..42)).unwrap();
        let filters = planner.unsettled(later()).unwrap();
        let newest = planner.plan(many(3..43)).unwrap();
        let whole = weir_demux::whole(&filters, &JoinLimits::default());
        assert!(planner.settle(&filters, whole).is_none() && planner.unsettled(later()).is_some());
        assert_eq!((wanted(&newest, 0).len(), wanted(&newest, 1)), (37, vec![40, 41, 42]));
        // What cannot be joined is not tried again and again.
        let filters = planner.unsettled(later()).unwrap();
        assert!(planner.settle(&filters, Err(JoinError::TooManyChannels(0))).is_none());
        assert!(planner.unsettled(later()).is_none());
    }

    #[test]
    fn too_many_are_refused_and_change_nothing() {
        let mut planner = Planner::default();
        planner.plan(vec![route(1, 1, 1)]).unwrap();
        let many = (0..=CHANNELS_MAX as u64).map(|channel| route(channel, 1, 0)).collect();
        let error = planner.plan(many).unwrap_err();
        assert!(matches!(error, JoinError::TooManyChannels(1025)), "{error}");
        let plan = planner.plan(vec![route(1, 1, 1)]).unwrap();
        assert_eq!(wanted(&plan, 1), [1]);
    }
}
