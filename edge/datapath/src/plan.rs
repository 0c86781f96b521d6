//! The forwarding plan of an interface: the channels, their filters, and the queues of their readers. A node makes
//! plans with a [`Planner`]; the receive thread ([`crate::receive`]) follows them.

use crate::account::DeferredCharges;
use crate::effects::Patches;
use crate::egress::{CopyBuffers, Egress};
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

/// Packets that a channel received and lost. Counters never decrease.
#[derive(Debug, Default)]
pub struct ChannelPlanCounters {
    /// Packets that the channel's filter selected.
    pub packets: AtomicU64,
    /// Bytes on the link of the selected packets.
    pub bytes: AtomicU64,
    /// Selected packets that were forwarded without a module.
    pub passed: AtomicU64,
    /// Bytes on the link of the packets that were forwarded without a module.
    pub passed_bytes: AtomicU64,
    /// Packets lost because a queue was full.
    pub queue_full: AtomicU64,
    /// Packets lost because a reader exceeded its lag limit.
    pub lagged: AtomicU64,
    /// Packets lost because the channel's own memory was full.
    pub no_memory: AtomicU64,
    /// Packets lost because packet memory ran out and this reader was chosen to lose packets.
    pub shed: AtomicU64,
    /// Packets lost because their reader exceeded its lag limit, and its session was closed for that.
    pub ended: AtomicU64,
    /// Packets lost because their session was closed or their module unloaded, and the channel does not forward without
    /// a module.
    pub closed: AtomicU64,
    /// Packets lost because a checksum was wrong: of IPv4, TCP, UDP and ICMP, in this order.
    bad_checksums: [AtomicU64; 4],
    /// Outcomes of reassembly.
    pub reassembly: ReassemblyTotals,
    /// Packets that a filter refused after the view had been applied.
    pub unwanted: AtomicU64,
}

/// Outcomes of reassembly, in fragments and datagrams. Counters never decrease.
#[derive(Debug, Default)]
pub struct ReassemblyTotals {
    datagrams: AtomicU64,
    overlapping: AtomicU64,
    late: AtomicU64,
    displaced: AtomicU64,
    malformed: AtomicU64,
    repeated: AtomicU64,
}

impl ReassemblyTotals {
    /// Fragments that were not reassembled into a datagram, for any cause.
    pub fn lost(&self) -> u64 {
        let lost = [&self.overlapping, &self.late, &self.displaced, &self.malformed, &self.repeated];
        lost.into_iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// Adds the difference between two readings of a reassembler's counters.
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
    /// Counts packets that the channel's filter selected.
    pub fn count_selected(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets lost because a checksum was wrong, of any protocol.
    pub fn bad_checksums(&self) -> u64 {
        self.bad_checksums.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// The counter of packets with a wrong checksum of this kind.
    pub fn bad_checksum(&self, which: BadChecksum) -> &AtomicU64 {
        let [ipv4, tcp, udp, icmp] = &self.bad_checksums;
        match which {
            BadChecksum::Ipv4 => ipv4,
            BadChecksum::Tcp => tcp,
            BadChecksum::Udp => udp,
            BadChecksum::Icmp => icmp,
        }
    }

    /// The counters of preprocessing, with the names under which the status shows them.
    pub fn named_counts(&self) -> [(&'static str, u64); 11] {
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
            ("unmatched", get(&self.unwanted)),
        ]
    }
}

/// A handle by which the receive thread reaches a thread that runs modules.
pub trait ModuleWaker: Debug + Send + Sync {
    /// Wakes a module because packets have arrived.
    fn wake(&self, module: u64);

    /// Makes a module release the packets before `position` that it has taken from its queue, because their memory is
    /// needed.
    fn release(&self, module: u64, position: u64);
}

/// Modules that have to be woken because packets have arrived.
#[derive(Debug, Default)]
pub struct Wakeups(Vec<(Arc<dyn ModuleWaker>, u64)>);

impl Wakeups {
    /// Returns true if no module has to be woken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes the modules.
    pub fn send(&mut self) {
        self.0.drain(..).for_each(|(waker, module)| waker.wake(module));
    }
}

/// A module that reads the packets of a channel.
#[derive(Clone, Debug)]
pub struct PlanReader {
    /// The number of the module.
    pub module: u64,
    /// The queue that holds the module's packets.
    pub queue: Arc<PacketQueue>,
    /// The thread that runs the module.
    pub waker: Arc<dyn ModuleWaker>,
    /// The CPU time that the receive thread spends for the module.
    pub account: Arc<DeferredCharges>,
}

/// The limit on how far a reader may lag, and the consequence of exceeding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagPolicy {
    /// The greatest lag, in bytes of the interface's traffic.
    pub lag_max: u64,
    /// True if exceeding the limit closes the session; false if the packets are lost.
    pub closes_session: bool,
}

/// The packet memory that a channel's readers can access.
#[derive(Clone, Debug)]
pub enum Visibility {
    /// The interface's own memory.
    All(LagPolicy),
    /// A copy of the packets that the filter selects, or of their view. Channels with the same filter and view share
    /// this copy.
    Selected(Arc<Mutex<Selection>>),
    /// Memory of each reader, which a [`Preprocessor`](crate::preprocess::Preprocessor) fills. The preprocessor reads a
    /// copy of the selected packets without the view, which the channel's modules cannot access. Channels with the same
    /// filter and no view share this copy.
    Preprocessed(Arc<Mutex<Selection>>),
}

impl Visibility {
    /// The selection that packets are copied to; `None` for the interface's own memory.
    pub fn selection(&self) -> Option<&Arc<Mutex<Selection>>> {
        match self {
            Self::All(_) => None,
            Self::Selected(selection) | Self::Preprocessed(selection) => Some(selection),
        }
    }

    /// Returns true if a filter reads packets after the view has been applied. This filter then decides which of the
    /// selected packets belong to the channel.
    pub fn filters_view(&self) -> bool {
        self.selection()
            .is_some_and(|selection| selection.lock().unwrap_or_else(PoisonError::into_inner).filters_view())
    }
}

/// A channel as its interface sees it: the filter, the readers and their queues.
#[derive(Clone, Debug)]
pub struct Route {
    /// The channel's number on this node. Numbers are not reused.
    pub channel: u64,
    /// The owner's number, for [`ObservedEvent::Lagging`](crate::event::ObservedEvent::Lagging). Numbers are not
    /// reused.
    pub owner: u64,
    /// The owner's shed priority: of several readers, the lowest loses packets first.
    pub priority: u8,
    /// The filter that selects the channel's packets.
    pub program: Arc<FilterProgram>,
    /// The packet memory that the channel's readers can access.
    pub visibility: Visibility,
    /// True if a filter reads packets after the view has been applied. The channel's packets are then counted after
    /// that filter.
    pub filters_view: bool,
    /// The division of the channel's packets into sub-flows, if any.
    pub flows: Option<SubFlows>,
    /// The modules that read the channel.
    pub readers: Vec<PlanReader>,
    /// The egress of the channel's packets while the channel has no reader. With [`Egress::Nothing`] the
    /// packets are counted as lost. With `None` the channel selects no packets while it has no reader.
    pub on_no_module: Option<Egress>,
    /// The channel's counters.
    pub counters: Arc<ChannelPlanCounters>,
    /// The CPU time that the receive thread spends for the channel while it has no reader.
    pub account: Arc<DeferredCharges>,
}

/// All channels of an interface. The *place* of a channel is its index in the plan. It stays the same as long as the
/// channel exists.
#[derive(Clone, Debug, Default)]
pub struct ForwardingPlan {
    pub(crate) joined: Arc<Joined>,
    pub(crate) routes: Vec<Option<Route>>,
    /// Places of channels that select packets, because they have a reader or forward without a module.
    pub(crate) active: ChannelSet,
    /// Places of channels with readers that access the interface's own memory.
    pub(crate) direct: Vec<usize>,
    /// Each selection, with the places of the channels that read it.
    pub(crate) selections: Vec<(Arc<Mutex<Selection>>, Vec<usize>)>,
}

impl ForwardingPlan {
    /// The channel at a place.
    pub fn route(&self, place: usize) -> Option<&Route> {
        self.routes.get(place)?.as_ref()
    }

    /// The active channels that want every packet, if no filter reads the packet.
    pub(crate) fn constant(&self) -> Option<ChannelSet> {
        let mut wanted = self.joined.constant()?;
        wanted.keep(&self.active);
        Some(wanted)
    }

    /// Returns true if a channel forwards its packets, so that they should be delivered without delay.
    pub(crate) fn forwards(&self) -> bool {
        self.routes.iter().flatten().any(|route| route.on_no_module.is_some())
    }

    /// The capacity of the shortest queue; `None` if there is no queue.
    pub(crate) fn queue_min(&self) -> Option<u32> {
        let readers = self.routes.iter().flatten().flat_map(|route| &route.readers);
        readers.map(|reader| reader.queue.capacity()).min()
    }

    /// For a later fragment that a channel of a selection wants, adds all channels of the selection. All of them have
    /// the same filter, but a later fragment goes to the channels that got its first fragment. Channels that were
    /// opened after the first fragment are therefore not in `wanted`.
    pub(crate) fn add_channels_of_selections(&self, wanted: &mut ChannelSet) {
        for (_, places) in &self.selections {
            if places.iter().any(|place| wanted.contains(*place)) {
                places.iter().for_each(|place| wanted.insert(*place));
            }
        }
    }

    /// The places in `earlier` of channels that are not in this plan.
    pub fn removed_since(&self, earlier: &Self) -> ChannelSet {
        let number = |plan: &Self, place| plan.route(place).map(|route| route.channel);
        (0..earlier.routes.len())
            .filter(|&place| {
                number(earlier, place).is_some_and(|channel| number(self, place) != Some(channel))
            })
            .collect()
    }
}

/// The period without a new or removed filter after which all filters are joined.
const QUIET: Duration = Duration::from_millis(500);

/// A maker of forwarding plans for one interface. Joining filters takes long, so the thread that requests a plan joins
/// them, and joins as few as possible. Packets follow the present plan until the next plan is ready.
#[derive(Clone, Debug)]
pub struct Planner {
    /// The channel number at each place.
    places: Vec<Option<u64>>,
    joiner: Joiner,
    /// The time at which a filter was last added or removed; `None` before that, and if joining all filters
    /// has failed since.
    changed: Option<Instant>,
}

impl Default for Planner {
    fn default() -> Self {
        Self { places: Vec::new(), joiner: Joiner::new(JoinLimits::default()), changed: None }
    }
}

impl Planner {
    /// Makes a plan for these channels.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if there are too many channels, or their filters are too large together. The planner is
    /// unchanged then.
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
        let mut placed: Vec<Option<Route>> = self.places.iter().map(|_| None).collect();
        let mut new = Vec::new();
        for route in routes {
            match known.get(&route.channel) {
                Some(&place) => placed[place] = Some(route),
                None => new.push(route),
            }
        }
        let free: Vec<usize> = (0..placed.len()).filter(|&place| placed[place].is_none()).collect();
        let mut free = free.into_iter();
        for route in new {
            match free.next() {
                Some(place) => placed[place] = Some(route),
                None => placed.push(Some(route)),
            }
        }
        let filters: Filters =
            placed.iter().map(|route| route.as_ref().map(|route| Arc::clone(&route.program))).collect();
        let before = Arc::clone(self.joiner.joined());
        let joined = Arc::clone(self.joiner.change(filters)?);
        if !Arc::ptr_eq(&before, &joined) {
            self.changed = Some(Instant::now());
        }
        self.places = placed.iter().map(|route| route.as_ref().map(|route| route.channel)).collect();
        Ok(ForwardingPlan::new(joined, placed))
    }

    /// The filters to join, if some are not joined yet and the filters have not changed for a while.
    pub fn filters_to_join(&self, now: Instant) -> Option<Filters> {
        let since = self.changed.filter(|_| !self.joiner.joined().is_settled())?;
        (now.saturating_duration_since(since) >= QUIET).then(|| self.joiner.filters().clone())
    }

    /// Adopts the result of joining `filters`, if they are still the filters of the plan. Returns the joined filters to
    /// publish.
    pub fn adopt_joined(
        &mut self,
        filters: &Filters,
        joined: Result<Joined, JoinError>,
    ) -> Option<Arc<Joined>> {
        match joined {
            Ok(joined) => self.joiner.settle(filters, joined).then(|| Arc::clone(self.joiner.joined())),
            // The filters are too large to be joined into one graph, so the separate groups stay until a filter is
            // added or removed.
            Err(_) => {
                self.changed = self.changed.filter(|_| filters != self.joiner.filters());
                None
            }
        }
    }
}

impl ForwardingPlan {
    fn new(joined: Arc<Joined>, placed: Vec<Option<Route>>) -> Self {
        let mut plan = Self { joined, routes: placed, ..Self::default() };
        let mut known = HashMap::new();
        for (place, route) in plan.routes.iter().enumerate() {
            let Some(route) = route else { continue };
            // A channel without a reader takes packets only if it forwards without a module.
            if route.readers.is_empty() {
                if route.on_no_module.is_some() {
                    plan.active.insert(place);
                }
                continue;
            }
            plan.active.insert(place);
            let Some(selection) = route.visibility.selection() else {
                plan.direct.push(place);
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

    /// Returns this plan with other joined filters.
    pub fn with_joined(&self, joined: Arc<Joined>) -> Self {
        Self { joined, ..self.clone() }
    }
}

impl Route {
    /// Returns true if the channel forwards its packets without a module, because it has no reader.
    pub fn forwards_without_module(&self) -> bool {
        self.on_no_module.is_some() && self.readers.is_empty()
    }

    /// Forwards packets of a block for which the channel has no module.
    pub fn forward(&self, block: &Block, masks: &[u64], copies: &mut CopyBuffers) {
        let Some(egress) = &self.on_no_module else { return };
        let (mut packets, mut bytes) = (0, 0);
        for (batch, mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            packets += u64::from(mask.count_ones());
            if !matches!(egress, Egress::Nothing) {
                copies.forward(std::slice::from_ref(egress), block, batch, *mask, &mut Patches::default());
                let descriptors = block.descriptors().iter().skip(block.batch(batch).first).enumerate();
                let passed = descriptors.take(64).filter(|(place, _)| mask >> place & 1 == 1);
                bytes += passed.map(|(_, descriptor)| u64::from(descriptor.wire_len)).sum::<u64>();
            }
        }
        if matches!(egress, Egress::Nothing) {
            self.counters.closed.fetch_add(packets, Ordering::Relaxed);
        } else {
            self.counters.passed.fetch_add(packets, Ordering::Relaxed);
            self.counters.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Puts packets of a block into the queues of the channel's readers. Adds the readers that have to be woken to
    /// `wakeups`.
    pub fn put(
        &self,
        block: &Arc<Block>,
        masks: &[u64],
        position: u64,
        head: &mut Vec<u8>,
        flows: &mut Vec<u16>,
        wakeups: &mut Wakeups,
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
            self.counters.queue_full.fetch_add(put.lost, Ordering::Relaxed);
            if put.wakes {
                wakeups.0.push((Arc::clone(&reader.waker), reader.module));
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
    struct NeverWoken;

    impl ModuleWaker for NeverWoken {
        fn wake(&self, _: u64) {}

        fn release(&self, _: u64, _: u64) {}
    }

    /// A channel for packets whose first byte is `byte`.
    fn route(channel: u64, byte: u32, readers: usize) -> Route {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let program = [code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)];
        let reader = PlanReader {
            module: channel,
            queue: Arc::new(PacketQueue::new(1, 1)),
            waker: Arc::new(NeverWoken),
            account: Arc::default(),
        };
        Route {
            channel,
            owner: 1,
            priority: 0,
            program: Arc::new(FilterProgram::new(&program).unwrap()),
            visibility: Visibility::All(LagPolicy { lag_max: 1, closes_session: false }),
            filters_view: false,
            flows: None,
            readers: vec![reader; readers],
            on_no_module: None,
            counters: Arc::default(),
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
    fn channels_keep_their_places_and_the_reuse_of_a_place_is_reported() {
        let mut planner = Planner::default();
        let first = planner.plan(vec![route(1, 1, 1), route(2, 2, 1), route(3, 2, 0)]).unwrap();
        assert_eq!((wanted(&first, 1), wanted(&first, 2)), (vec![1], vec![2, 3]));
        assert_eq!((first.active.iter().collect::<Vec<_>>(), &first.direct[..]), (vec![0, 1], &[0, 1][..]));

        let second = planner.plan(vec![route(9, 1, 1), route(3, 2, 1)]).unwrap();
        assert_eq!((wanted(&second, 1), wanted(&second, 2)), (vec![9], vec![3]));
        assert_eq!(second.route(2).unwrap().channel, 3);
        assert_eq!(second.removed_since(&first).iter().collect::<Vec<_>>(), [0, 1]);
        assert!(second.removed_since(&second).is_empty());
    }

    #[test]
    fn only_the_groups_of_added_and_removed_filters_are_joined_again() {
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
    fn all_filters_are_joined_after_a_quiet_period_and_no_packet_changes_its_route_meanwhile() {
        let mut planner = Planner::default();
        let later = || Instant::now() + QUIET;
        assert!(planner.filters_to_join(later()).is_none(), "there are no filters");
        // Channels from 40 on want other packets.
        let of = |channel: u64| route(channel, u32::from(channel >= 40), 1);
        let many = |range: std::ops::Range<u64>| range.map(of).collect();
        planner.plan(many(0..40)).unwrap();
        assert!(planner.filters_to_join(later()).is_none(), "with this many, they were joined at once");
        let plan = planner.plan(many(1..41)).unwrap();
        assert!(
            !plan.joined.is_settled() && planner.filters_to_join(Instant::now()).is_none(),
            "the quiet period is not over"
        );
        let filters = planner.filters_to_join(later()).unwrap();
        let whole = weir_demux::join_all(&filters, &JoinLimits::default());
        let quiet = plan.with_joined(planner.adopt_joined(&filters, whole).unwrap());
        assert!(quiet.joined.is_settled() && planner.filters_to_join(later()).is_none());
        for plan in [&plan, &quiet] {
            assert_eq!((wanted(plan, 0).len(), wanted(plan, 1)), (39, vec![40]));
        }
        // A filter that was added while the others were being joined is not forgotten.
        planner.plan(many(2..42)).unwrap();
        let filters = planner.filters_to_join(later()).unwrap();
        let newest = planner.plan(many(3..43)).unwrap();
        let whole = weir_demux::join_all(&filters, &JoinLimits::default());
        assert!(
            planner.adopt_joined(&filters, whole).is_none() && planner.filters_to_join(later()).is_some()
        );
        assert_eq!((wanted(&newest, 0).len(), wanted(&newest, 1)), (37, vec![40, 41, 42]));
        // Filters that cannot be joined are not tried again.
        let filters = planner.filters_to_join(later()).unwrap();
        assert!(planner.adopt_joined(&filters, Err(JoinError::TooManyChannels(0))).is_none());
        assert!(planner.filters_to_join(later()).is_none());
    }

    #[test]
    fn too_many_channels_are_refused_and_change_nothing() {
        let mut planner = Planner::default();
        planner.plan(vec![route(1, 1, 1)]).unwrap();
        let many = (0..=CHANNELS_MAX as u64).map(|channel| route(channel, 1, 0)).collect();
        let error = planner.plan(many).unwrap_err();
        assert!(matches!(error, JoinError::TooManyChannels(1025)), "{error}");
        let plan = planner.plan(vec![route(1, 1, 1)]).unwrap();
        assert_eq!(wanted(&plan, 1), [1]);
    }
}
