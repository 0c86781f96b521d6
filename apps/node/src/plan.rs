//! Who gets which packets of an interface.

use crate::account::Account;
use crate::link::Way;
use crate::queue::Queue;
use crate::runner::Waker;
use crate::spec::Unattended;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_demux::{CHANNELS_MAX, ChannelSet, Demux, JoinError, Limits, Program, ProgramError, SubFlows};
use weir_netio::{Block, Filter, FilterError, Selection};
use weir_session::ledger::DropCause;
use weir_wire::{BadChecksum, LinkType, PEEK, ReassemblyCounters};

/// What a channel got and lost. Counters only grow.
#[derive(Debug, Default)]
pub struct ChannelTally {
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
    pub reassembly: ReassemblyTally,
}

/// What became of fragments. Counters only grow.
#[derive(Debug, Default)]
pub struct ReassemblyTally {
    datagrams: AtomicU64,
    overlapping: AtomicU64,
    late: AtomicU64,
    displaced: AtomicU64,
    malformed: AtomicU64,
    repeated: AtomicU64,
}

impl ReassemblyTally {
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

impl ChannelTally {
    /// Each cause with its count, as the ledger names them.
    pub fn drops(&self) -> [(DropCause, u64); 8] {
        let fragments = &self.reassembly;
        let lost = [
            &fragments.overlapping,
            &fragments.late,
            &fragments.displaced,
            &fragments.malformed,
            &fragments.repeated,
        ];
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            (DropCause::QueueFull, get(&self.queue_full)),
            (DropCause::Lagged, get(&self.lagged)),
            (DropCause::NoMemory, get(&self.no_memory)),
            (DropCause::Shed, get(&self.shed)),
            (DropCause::ReaderEnded, get(&self.ended)),
            (DropCause::Closed, get(&self.closed)),
            (DropCause::BadChecksum, self.bad_checksums.iter().map(get).sum()),
            (DropCause::Reassembly, lost.into_iter().map(get).sum()),
        ]
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
    pub fn findings(&self) -> [(&'static str, u64); 10] {
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
        ]
    }
}

/// Who takes a channel's packets.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Which module.
    pub guest: u64,
    /// Where its packets wait.
    pub queue: Arc<Queue>,
    /// Who is to be woken.
    pub waker: Waker,
    /// What is spent for it.
    pub account: Arc<Account>,
}

/// How far a reader may lag, and what becomes of it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Bytes of traffic.
    pub most: u64,
    /// Whether its session is to be closed.
    pub ends: bool,
}

/// What a channel's readers see.
#[derive(Clone, Debug)]
pub enum Sight {
    /// The interface's own memory.
    All(Lag),
    /// A copy of what the filter selects. Channels with one filter share it.
    Selected(Arc<Mutex<Selection>>),
}

/// A channel as its interface sees it.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its number on this node, which no other channel ever had.
    pub channel: u64,
    /// Its session, for [`Notice::Lagging`](crate::source::Notice::Lagging), and that one's number.
    pub session: weir_session::Name,
    /// No other session of this node ever had it.
    pub session_id: u64,
    /// Of its session.
    pub priority: u8,
    /// Which packets.
    pub program: Program,
    /// What its readers see.
    pub sight: Sight,
    /// How its packets are divided.
    pub flows: Option<SubFlows>,
    /// Its readers.
    pub readers: Vec<Reader>,
    /// Where its packets go on. With a reader that is the reader's business.
    pub(crate) way: Option<Way>,
    /// What becomes of them where there is no reader.
    pub(crate) unattended: Unattended,
    /// What it got and lost.
    pub tally: Arc<ChannelTally>,
}

/// All channels of an interface, each at a place that it keeps as long as it exists.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) demux: Arc<Demux>,
    pub(crate) routes: Vec<Option<Route>>,
    /// Channels that take packets: somebody reads them, or they go on without that.
    pub(crate) taken: ChannelSet,
    /// Channels that somebody reads and that see the interface's own memory.
    pub(crate) whole: Vec<usize>,
    /// For each selection, which channels that somebody reads have it.
    pub(crate) selections: Vec<(Arc<Mutex<Selection>>, Vec<usize>)>,
}

/// Why an interface's channels cannot be. To blame is whoever asked for the last one.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The expression is wrong.
    #[error("{0}")]
    Filter(String),
    /// What it compiles to is not what a filter may be.
    #[error("the filter cannot be used: {0}")]
    Program(#[from] ProgramError),
    /// There are too many, or they are too large together.
    #[error("the filters of this interface cannot be joined: {0}")]
    Join(#[from] JoinError),
}

/// Compiles a filter for packets of this link type; an empty one selects all.
pub fn program(expression: &str, link_type: LinkType) -> Result<Program, PlanError> {
    if expression.trim().is_empty() {
        return Ok(Program::everything());
    }
    let wrong = |error: &FilterError| PlanError::Filter(error.to_string());
    let filter = Filter::new(expression).map_err(|error| wrong(&error))?;
    let instructions = filter.instructions(link_type).map_err(wrong)?;
    Ok(Program::new(&instructions)?)
}

impl Plan {
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

/// Makes plans. Joining many filters takes long, so it is done by whoever asks for another plan, and only where a filter came or went: packets go
/// where the present plan says until the next one is there.
#[derive(Debug, Default)]
pub struct Planner {
    /// Which channel is where.
    places: Vec<Option<u64>>,
    programs: Vec<Option<Program>>,
    demux: Arc<Demux>,
}

impl Planner {
    /// A plan for these channels.
    ///
    /// # Errors
    ///
    /// There are too many, or their filters are too much together; the planner is as it was.
    pub fn plan(&mut self, routes: Vec<Route>) -> Result<Plan, PlanError> {
        if routes.len() > CHANNELS_MAX {
            return Err(JoinError::TooManyChannels(routes.len()).into());
        }
        let mut places = self.places.clone();
        for place in &mut places {
            *place = place.filter(|channel| routes.iter().any(|route| route.channel == *channel));
        }
        let mut laid: Vec<Option<Route>> = places.iter().map(|_| None).collect();
        for route in routes {
            let known = places.iter().position(|place| *place == Some(route.channel));
            let place = known.or_else(|| places.iter().position(Option::is_none)).unwrap_or(places.len());
            if place == places.len() {
                places.push(None);
                laid.push(None);
            }
            places[place] = Some(route.channel);
            laid[place] = Some(route);
        }
        let same = |at: usize, route: &Option<Route>| {
            self.programs.get(at).unwrap_or(&None).as_ref() == route.as_ref().map(|route| &route.program)
        };
        let is_same =
            laid.len() == self.programs.len() && laid.iter().enumerate().all(|(at, route)| same(at, route));
        if !is_same {
            let programs: Vec<Option<&Program>> =
                laid.iter().map(|route| route.as_ref().map(|route| &route.program)).collect();
            self.demux = Arc::new(Demux::new(&programs, &Limits::default())?);
            self.programs = programs.into_iter().map(Option::<&Program>::cloned).collect();
        }
        self.places = places;
        let mut plan = Plan { demux: Arc::clone(&self.demux), routes: laid, ..Plan::default() };
        for (place, route) in plan.routes.iter().enumerate() {
            let Some(route) = route else { continue };
            // A channel without a module takes nothing, but for what goes on without one.
            if route.readers.is_empty() {
                if route.way.is_some() {
                    plan.taken.insert(place);
                }
                continue;
            }
            plan.taken.insert(place);
            let selection = match &route.sight {
                Sight::All(_) => {
                    plan.whole.push(place);
                    continue;
                }
                Sight::Selected(selection) => selection,
            };
            match plan.selections.iter_mut().find(|(known, _)| Arc::ptr_eq(known, selection)) {
                Some((_, places)) => places.push(place),
                None => plan.selections.push((Arc::clone(selection), vec![place])),
            }
        }
        Ok(plan)
    }
}

impl Route {
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
                reader.waker.wake(reader.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_demux::{Instruction, Packet};

    /// A channel for packets that begin with this byte.
    fn route(channel: u64, byte: u32, readers: usize) -> Route {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let program = [code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)];
        let reader = Reader {
            guest: channel,
            queue: Arc::new(Queue::new(1, 1)),
            waker: Waker::default(),
            account: Arc::default(),
        };
        Route {
            channel,
            session: weir_session::Name::new("any").unwrap(),
            session_id: 1,
            priority: 0,
            program: Program::new(&program).unwrap(),
            sight: Sight::All(Lag { most: 1, ends: false }),
            flows: None,
            readers: vec![reader; readers],
            way: None,
            unattended: Unattended::default(),
            tally: Arc::default(),
        }
    }

    /// The numbers of the channels that want a packet.
    fn wanted(plan: &Plan, first: u8) -> Vec<u64> {
        let mut set = ChannelSet::NONE;
        plan.demux.channels(&Packet { head: &[first], cap_len: 1, wire_len: 1 }, &mut set).unwrap();
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
        assert!(Arc::ptr_eq(&first.demux, &with_a_module.demux));
        let with_another_channel =
            planner.plan(vec![route(1, 1, 1), route(2, 2, 0), route(3, 3, 0)]).unwrap();
        assert!(!Arc::ptr_eq(&first.demux, &with_another_channel.demux));
        assert_eq!((wanted(&first, 3), wanted(&with_another_channel, 3)), (vec![], vec![3]));
    }

    #[test]
    fn too_many_are_refused_and_change_nothing() {
        let mut planner = Planner::default();
        planner.plan(vec![route(1, 1, 1)]).unwrap();
        let many = (0..=CHANNELS_MAX as u64).map(|channel| route(channel, 1, 0)).collect();
        let error = planner.plan(many).unwrap_err();
        assert!(matches!(error, PlanError::Join(JoinError::TooManyChannels(1025))), "{error}");
        let plan = planner.plan(vec![route(1, 1, 1)]).unwrap();
        assert_eq!(wanted(&plan, 1), [1]);
    }
}
