//! A module at work in a session: what it is given, and what comes out.

use crate::outbox::{BytesInFlight, RecordSender};
use crate::sessions::limits::SessionLimits;
use crate::sessions::post::{Desk, ServiceMessage};
use crate::sessions::tables::Readings;
use crate::tenant::SandboxInstance;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use weir_abi::BATCH_PACKETS;
use weir_abi::entry::WorkLimit;
use weir_bounds::EntryPoint;
use weir_datapath::account::DeferredCharges;
use weir_datapath::effects::Patches;
use weir_datapath::egress::{Copies, Egress, TxPacketSink};
use weir_datapath::moment::Moment;
use weir_datapath::plan::ChannelPlanCounters;
use weir_datapath::preprocess::Preprocessor;
use weir_datapath::queue::{BatchTicket, PacketQueue};
use weir_datapath::seat::{BatchDriver, Sandbox};
use weir_ledger::Usage;
use weir_sandbox::{Cycles, FuelSlice, LogLine, News, thread_time};
use weir_session::services::{Party, ServiceCall};
use weir_units::Nanos;
use {
    weir_admission::{Admitted, Calibration, Tier},
    weir_session::Records,
};

/// The longest packet that a module is shown: one of IP's greatest length, with what is in front of it. Longer ones are cut when they are captured. The
/// interface's own limit says nothing here: the system merges packets before anybody sees them (GRO), and datagrams are put together.
pub const PACKET_BYTES_MAX: u32 = (64 << 10) + 256;
/// Packets of one call at most.
const _: () = assert!(BATCH as usize == BATCH_PACKETS);
const BATCH: u32 = 64;

/// What a module did, for whoever wants to know. Counters only grow, but for the memory.
#[derive(Debug, Default)]
pub struct TaskCounters {
    /// Packets that it has seen.
    pub packets: AtomicU64,
    /// Their bytes, as captured.
    pub bytes: AtomicU64,
    /// Packets that it said are to be dropped, where its channel's packets go on.
    pub dropped: AtomicU64,
    /// Packets that went on without a change that it made, because their memory had changed meanwhile.
    pub unpatched: AtomicU64,
    /// Packets whose call was lost.
    pub lost: AtomicU64,
    /// Packets that could not be shown to it.
    pub unseen: AtomicU64,
    /// Calls that were lost.
    pub faults: AtomicU64,
    /// Strikes against it.
    pub strikes: AtomicU64,
    /// Records that it emitted and that were taken.
    pub records: AtomicU64,
    /// Records that were not taken because of its limits.
    pub refused: AtomicU64,
    /// Counts by its session's limits: records that were not taken, and the bytes of those that were.
    pub held: Mutex<Usage>,
    /// Records that the writer had no room for.
    pub unwritten: AtomicU64,
    /// Time in it, ns.
    pub used: AtomicU64,
    /// Its private memory now, with that of the packets that it keeps, bytes.
    pub memory: AtomicU64,
    /// 1 when it gets no more packets because of its limits, 2 when that is because its process has ended.
    pub ended: AtomicU64,
    /// Its last fault, in words.
    pub last_fault: Mutex<Option<String>>,
}

/// What came out of a module.
#[derive(Debug)]
pub struct BatchOutput {
    /// Its number on this node.
    pub module: u64,
    /// What it emitted.
    pub records: Records,
    /// What it said.
    pub log: Vec<LogLine>,
    /// What went wrong, in words.
    pub faults: Vec<String>,
    /// Nothing more comes: the writer ends its files, and says so here.
    pub end: Option<Sender<()>>,
    /// Counts it on its way.
    pub load: Option<BytesInFlight>,
}

/// How long a module keeps a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// One packet, or a batch where it takes batches; nothing where its calls can be suspended.
    pub packet: Option<PacketTime>,
    /// Any call, of a packet of [`PACKET_BYTES_MAX`]; where it can be suspended, from one place where it can be to the next.
    pub call: Nanos,
    /// The same goes for its stop, which else takes longer.
    pub stops_in_slices: bool,
}

/// How long a packet takes at most: a straight line over its captured bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTime {
    /// One without bytes.
    pub empty: Nanos,
    /// One of [`PACKET_BYTES_MAX`].
    pub longest: Nanos,
}

impl PacketTime {
    fn of(self, bytes: u32) -> u64 {
        let slope = self.longest.0.saturating_sub(self.empty.0);
        let bytes = u64::from(bytes.min(PACKET_BYTES_MAX));
        self.empty.0.saturating_add(slope.saturating_mul(bytes).div_ceil(PACKET_BYTES_MAX.into()))
    }

    /// Those of these packets, from the first one on, that take no longer than `left` together; one at least.
    fn fitting(self, ticket: &BatchTicket, left: Nanos) -> u64 {
        if self.longest.0.saturating_mul(BATCH.into()) <= left.0 {
            return ticket.mask;
        }
        let descriptors = ticket.block.descriptors().get(ticket.batch * BATCH_PACKETS..).unwrap_or_default();
        let (mut fits, mut rest, mut time) = (0, ticket.mask, 0_u64);
        while rest != 0 {
            let packet = descriptors.get(rest.trailing_zeros() as usize);
            time = time.saturating_add(self.of(packet.map_or(0, |packet| packet.cap_len)));
            if fits != 0 && time > left.0 {
                break;
            }
            fits |= rest & rest.wrapping_neg();
            rest &= rest.wrapping_sub(1);
        }
        fits
    }
}

impl Longest {
    /// By its bounds where it is proved, else by its limits.
    pub fn of(admitted: &Admitted) -> Self {
        let calibration = &admitted.assessment().terms().calibration;
        let time = |entry, bytes: u32| {
            let Some(bound) = admitted.analysis().entry(entry) else { return Nanos(0) };
            let most =
                if admitted.tier() == Tier::Proved { bound.usage.fuel } else { admitted.limits().of(entry) };
            calibration.time(most.at(bytes.into()))
        };
        let entries = || admitted.facts().entries.iter();
        let entry = entries().find(|entry| entry.packets() > 0).unwrap_or(EntryPoint::Packet);
        let packet = PacketTime { empty: time(entry, 0), longest: time(entry, PACKET_BYTES_MAX) };
        let is_between = |entry: &EntryPoint| {
            matches!(entry.definition().allowance, WorkLimit::EmptyPacket | WorkLimit::Tick)
        };
        let others = entries().filter(is_between).map(|entry| time(entry, PACKET_BYTES_MAX));
        let call = others.fold(packet.longest, Nanos::max);
        let stops_in_slices = time(EntryPoint::Stop, PACKET_BYTES_MAX) <= call;
        Self { packet: Some(packet), call, stops_in_slices }
    }

    /// Of a module whose calls can be suspended. A host function that is under way is brought to its end, so it may be two pieces.
    pub fn suspendable(admitted: &Admitted) -> Self {
        let calibration = &admitted.assessment().terms().calibration;
        let piece = calibration.time(admitted.limits().piece);
        Self { packet: None, call: Nanos(piece.0.saturating_mul(2)), stops_in_slices: true }
    }
}

/// How time becomes what a call may use.
#[derive(Clone, Debug)]
pub struct FuelRate {
    /// How long fuel takes on this node.
    pub calibration: Calibration,
    /// Nanoseconds of a cycle of the processor's counter.
    pub nanos_per_cycle: f64,
}

impl FuelRate {
    /// So much time from now on.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a time of less than a second"
    )]
    fn budget(&self, left: Nanos) -> FuelSlice {
        let cycles = (left.0 as f64 / self.nanos_per_cycle) as u64;
        let until = Cycles(Cycles::now().0.saturating_add(cycles));
        FuelSlice { fuel: self.calibration.fuel(left).max(1), until: Some(until) }
    }
}

/// A slice, from its beginning on.
struct Slice {
    begin: Instant,
    budget: Nanos,
    pace: Arc<FuelRate>,
}

impl Slice {
    fn left(&self) -> Nanos {
        Nanos(self.budget.0.saturating_sub(elapsed(self.begin).0))
    }

    /// A part of it for one call; none when it is over.
    fn part(&self) -> Option<FuelSlice> {
        let left = self.left();
        (left.0 > 0).then(|| self.pace.budget(left))
    }
}

/// How far a module has come with its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Nothing is left.
    All,
    /// Something is left to begin.
    More,
    /// Something has been begun, and is to go on.
    Suspended,
}

/// Where what comes for a module is put.
#[derive(Debug)]
pub struct Inbox {
    /// Packets.
    pub queue: Arc<PacketQueue>,
    /// What is done with them before the module sees them.
    pub intake: Option<Preprocessor>,
    /// Calls of others, and their answers.
    pub desk: Arc<Desk>,
}

/// Where a module's packets go on.
#[derive(Debug)]
struct ForwardState {
    way: Egress,
    /// What the module is at.
    ticket: Option<BatchTicket>,
    copies: Copies,
}

/// Where a module stands when there is more to do than time.
#[derive(Clone, Debug)]
pub struct ShedPriority {
    /// The priority of its session.
    pub priority: Arc<AtomicU8>,
    /// Where it is counted what it loses.
    pub channel: Arc<ChannelPlanCounters>,
}

/// A module at work.
#[derive(Debug)]
pub struct ModuleTask {
    /// Its number on this node.
    pub number: u64,
    seat: BatchDriver<SandboxInstance>,
    queue: Arc<PacketQueue>,
    intake: Option<Preprocessor>,
    standing: ShedPriority,
    tally: Arc<TaskCounters>,
    account: Arc<DeferredCharges>,
    outbox: RecordSender,
    longest: Longest,
    pace: Arc<FuelRate>,
    /// Taken out of the queue, and not shown to it, because there was no time.
    rest: Option<BatchTicket>,
    onward: Option<ForwardState>,
    /// Where each of its outputs leads.
    outlets: Vec<Option<TxPacketSink>>,
    /// Where they lead from its next call on, if that is somewhere else.
    outlets_to_come: Option<Vec<Option<TxPacketSink>>>,
    /// The tables that it reads.
    tables: Option<Readings>,
    /// What it has with the other modules of its session.
    limits: Option<Arc<SessionLimits>>,
    /// The block that it saw last.
    block: Option<(u64, u64)>,
    faults_told: usize,
    /// Emitted, and not yet handed on because nobody had room.
    kept: Records,
    /// Somebody looks after its ticks.
    pub(crate) has_alarm: bool,
    /// By what it calls others, and is called.
    desk: Arc<Desk>,
    /// A call of others that it serves.
    serving: Option<Serving>,
    /// Who pays for what it does now, and how much at most.
    payer: Option<(Party, Nanos)>,
    has_stopped: bool,
}

/// A call that is being served.
#[derive(Debug)]
struct Serving {
    call: u64,
    /// Calls of its own that the module had lost before.
    faults: u64,
}

impl ModuleTask {
    /// A module that takes what comes for it from here.
    #[expect(clippy::too_many_arguments, reason = "a module has so many ends")]
    pub fn new(
        number: u64,
        mut seat: BatchDriver<SandboxInstance>,
        inbox: Inbox,
        standing: ShedPriority,
        tally: Arc<TaskCounters>,
        account: Arc<DeferredCharges>,
        outbox: RecordSender,
        longest: Longest,
        pace: Arc<FuelRate>,
    ) -> Self {
        // Until it is said where its outputs lead.
        seat.instance.open_outputs(0);
        Self {
            number,
            seat,
            queue: inbox.queue,
            intake: inbox.intake,
            standing,
            tally,
            account,
            outbox,
            longest,
            pace,
            rest: None,
            onward: None,
            outlets: Vec::new(),
            outlets_to_come: None,
            tables: None,
            limits: None,
            block: None,
            faults_told: 0,
            kept: Records::default(),
            has_alarm: false,
            desk: inbox.desk,
            serving: None,
            payer: None,
            has_stopped: false,
        }
    }

    /// What it sends goes these ways, by the outputs of its manifest; where there is none, it is told so.
    pub(crate) fn sending(mut self, outlets: Vec<Option<TxPacketSink>>) -> Self {
        self.open(outlets);
        self
    }

    /// What it sends goes these ways from its next call on.
    pub(crate) fn lead(&mut self, outlets: Vec<Option<TxPacketSink>>) {
        self.outlets_to_come = Some(outlets);
    }

    fn open(&mut self, outlets: Vec<Option<TxPacketSink>>) {
        let open = outlets.iter().take(8).enumerate().map(|(i, outlet)| u8::from(outlet.is_some()) << i);
        self.seat.instance.open_outputs(open.fold(0, |all, bit| all | bit));
        self.outlets = outlets;
    }

    /// It sees these tables, always the newest version when a call begins.
    pub(crate) fn reading(mut self, tables: Readings) -> Self {
        self.tables = Some(tables);
        self
    }

    /// No more of what it emits is taken than this allows, to it and to others.
    pub(crate) fn held_to(mut self, limits: Arc<SessionLimits>) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Shows it what is new: where its outputs lead, and in the tables that it reads. Between two calls of it.
    fn look_up(&mut self) {
        if let Some(outlets) = self.outlets_to_come.take() {
            self.open(outlets);
        }
        if let Some(tables) = &mut self.tables {
            self.seat.instance.refresh(tables);
        }
    }

    /// It decides which of its packets go on this way, where there is one, and how.
    pub(crate) fn sending_on(mut self, way: Option<Egress>) -> Self {
        if way.is_none() {
            // Nobody takes them.
            self.seat.instance.ignore_patches();
        }
        self.onward = way.map(|way| ForwardState { way, ticket: None, copies: Copies::default() });
        self
    }

    /// Its priority under overload.
    pub fn priority(&self) -> u8 {
        self.standing.priority.load(Ordering::Relaxed)
    }

    /// How full its queue is, in thousandths.
    pub fn filled(&self) -> u32 {
        self.queue.filled()
    }

    /// Gives up what waits for it: others have a higher priority.
    pub fn shed(&self) {
        let lost = self.queue.give_up_all();
        self.standing.channel.shed.fetch_add(lost, Ordering::Relaxed);
    }

    /// What others' threads spent for it since this was asked last.
    pub fn owed(&self) -> Nanos {
        self.account.collect()
    }

    /// Whether packets wait for it.
    pub fn has_packets(&self) -> bool {
        self.queue.waiting() > 0 || self.has_packets_in_hand()
    }

    /// Whether there are packets that have been taken out of its queue, and that it has not seen.
    fn has_packets_in_hand(&self) -> bool {
        self.rest.is_some() || self.intake.as_ref().is_some_and(Preprocessor::has_packets)
    }

    /// It loses the packets before this position that have been taken out of its queue, where its queue has no memory for them, and of a call that is suspended those that it has not seen to
    /// their end: others need their memory.
    pub fn let_go(&mut self, position: u64) {
        if self.queue.in_hand().is_none_or(|at| at >= position) {
            return;
        }
        let mut lost = self.intake.as_mut().map_or(0, |intake| intake.make_room(&self.queue));
        if let Some(rest) = self.rest.take() {
            self.rest = self.queue.own(&rest);
            lost += if self.rest.is_some() { 0 } else { u64::from(rest.packets()) };
        }
        if self.seat.has_begun_packets() {
            lost += self.seat.give_up();
            self.send_on();
        }
        self.standing.channel.lagged.fetch_add(lost, Ordering::Relaxed);
        self.queue.let_go();
    }

    /// Says how many packets it is not shown.
    fn lose_in_hand(&mut self) -> u64 {
        let rest = self.rest.take().map_or(0, |rest| rest.packets().into());
        rest + self.intake.as_mut().map_or(0, Preprocessor::let_go)
    }

    /// Has it work on what waits for it until the budget is used up, or nothing waits. The last call may take longer, by [`Longest::call`].
    pub fn serve(&mut self, budget: Nanos) -> Served {
        let slice = self.slice(budget);
        let mut is_done = true;
        while let Some(ticket) = self.next(&slice) {
            self.look_up();
            let (block, batch) = (&ticket.block, ticket.block.batch(ticket.batch));
            if self.seat.face(block).is_err() {
                // The node is out of address space: it cannot see these, and may see later ones.
                self.tally.unseen.fetch_add(ticket.packets().into(), Ordering::Relaxed);
                continue;
            }
            // Blocks of two memories can have the same number.
            let number = (block.window().id(), block.number());
            if self.block.replace(number) != Some(number) {
                self.seat.instance.begin_block();
            }
            let seen = block.descriptors().iter().skip(batch.first).take(batch.count).enumerate();
            let bytes =
                seen.filter(|(i, _)| ticket.mask >> i & 1 == 1).map(|(_, d)| u64::from(d.cap_len)).sum();
            self.tally.bytes.fetch_add(bytes, Ordering::Relaxed);
            is_done = self.seat.begin(block, ticket.batch, ticket.mask, &|| slice.part());
            if let Some(onward) = &mut self.onward {
                onward.ticket = Some(ticket);
            }
            if is_done {
                self.send_on();
            }
            if !is_done || slice.left().0 == 0 || self.seat.instance.has_ended() {
                break;
            }
        }
        self.served(is_done, &slice)
    }

    /// Goes on with what was suspended.
    pub fn resume(&mut self, budget: Nanos) -> Served {
        let slice = self.slice(budget);
        let is_done = self.seat.go_on(&|| slice.part());
        if is_done {
            self.send_on();
        }
        self.served(is_done, &slice)
    }

    /// Time goes on.
    pub fn tick(&mut self, at: Moment, budget: Nanos) -> Served {
        let slice = self.slice(budget);
        self.look_up();
        // Here ticks come as time goes on, not as packets want it: each has an allowance of its own.
        self.seat.instance.begin_block();
        let is_done = self.seat.begin_pass(at, &|| slice.part());
        self.served(is_done, &slice)
    }

    /// Tells the module what else is new.
    pub fn hear(&mut self, budget: Nanos) -> Served {
        let slice = self.slice(budget);
        self.look_up();
        let news = match self.seat.instance.low_memory() {
            Some(news) => news,
            None => match self.desk.next() {
                None => return self.served(true, &slice),
                Some(ServiceMessage::Answer(answer)) => {
                    let news = News::Answer { ticket: answer.ticket, status: answer.status.code() };
                    self.seat.instance.set_message(answer.message);
                    news
                }
                Some(ServiceMessage::Serve(request)) => {
                    let ServiceCall { call, service, message, paid } = request;
                    self.serving = Some(Serving { call, faults: self.seat.instance.counters().faults });
                    self.payer = paid;
                    self.seat.instance.set_message(message);
                    News::Serve { call, service }
                }
            },
        };
        let is_done = self.seat.begin_news(news, &|| slice.part());
        self.served(is_done, &slice)
    }

    /// Whether there is something to hear.
    pub fn has_news(&self) -> bool {
        self.desk.has_mail()
    }

    /// When the next of its calls of a service is late.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.desk.next_deadline()
    }

    /// How long its core's thread has waited for a process of its own since this was asked last: time that it has had, and the thread has not.
    pub fn take_waited(&mut self) -> Nanos {
        self.seat.instance.take_waited()
    }

    /// It has had so much processor time. Says how much of that is paid by others, who are told.
    pub fn bill(&mut self, used: Nanos) -> Nanos {
        let Some((payer, most)) = &mut self.payer else { return Nanos(0) };
        let paid = used.min(*most);
        most.0 -= paid.0;
        if paid.0 > 0 {
            self.desk.office().debit(*payer, paid);
        }
        if self.serving.is_none() {
            self.payer = None;
        }
        paid
    }

    /// Has those packets go on that the module is done with and has not dropped. One that it has not seen to its end does not go on: what makes it
    /// fail must not be what lets a packet through.
    fn send_on(&mut self) {
        let Some(onward) = &mut self.onward else { return };
        let Some(ticket) = onward.ticket.take() else { return };
        let verdict = self.seat.verdict();
        let patches = self.seat.instance.take_patches();
        let mut patches = Patches::new(patches.iter());
        let dropped = (verdict.dropped & ticket.mask & !verdict.unserved).count_ones();
        self.tally.dropped.fetch_add(dropped.into(), Ordering::Relaxed);
        let mask = ticket.mask & !verdict.dropped & !verdict.unserved;
        let way = std::slice::from_ref(&onward.way);
        let unmade = onward.copies.pass(way, &ticket.block, ticket.batch, mask, &mut patches);
        self.tally.unpatched.fetch_add(unmade, Ordering::Relaxed);
    }

    /// The next packets, after what is done with them before.
    fn next(&mut self, slice: &Slice) -> Option<BatchTicket> {
        let mut ticket = match (self.rest.take(), &mut self.intake) {
            (Some(rest), _) => rest,
            (None, Some(intake)) => intake.next(&self.queue, BATCH, &|| slice.left())?,
            (None, None) => self.queue.take(BATCH)?,
        };
        if let Some(time) = self.longest.packet {
            let now = time.fitting(&ticket, slice.left());
            let later = ticket.mask & !now;
            self.rest = (later != 0).then(|| BatchTicket { mask: later, ..ticket.clone() });
            ticket.mask = now;
        }
        Some(ticket)
    }

    fn slice(&self, budget: Nanos) -> Slice {
        Slice { begin: Instant::now(), budget, pace: Arc::clone(&self.pace) }
    }

    fn served(&mut self, is_done: bool, slice: &Slice) -> Served {
        if is_done && let Some(serving) = self.serving.take() {
            let has_ended = self.seat.instance.has_ended();
            if has_ended || self.seat.instance.counters().faults > serving.faults {
                self.desk.fail(serving.call);
            }
        }
        if !is_done {
            // What it has emitted cannot be taken while it is suspended.
            self.count(elapsed(slice.begin));
            return Served::Suspended;
        }
        if !self.has_packets_in_hand() {
            self.queue.let_go();
        }
        self.hand_on(elapsed(slice.begin));
        if self.has_packets() { Served::More } else { Served::All }
    }

    /// The time of its next tick by the monotonic clock, if it gets one.
    pub fn next_tick(&mut self, at: Moment) -> Option<Nanos> {
        self.seat.next_tick(at)
    }

    /// It gets nothing any more: what was under way is given up.
    pub fn give_up(&mut self) {
        let unseen = self.seat.give_up();
        self.tally.unseen.fetch_add(unseen, Ordering::Relaxed);
        self.send_on();
        let lost = self.lose_in_hand();
        self.standing.channel.closed.fetch_add(lost, Ordering::Relaxed);
        self.queue.let_go();
        (self.serving, self.payer) = (None, None);
    }

    /// Whether it can stop on its core: nobody is kept from it for longer by that than by any of its calls.
    pub fn stops_in_slices(&self) -> bool {
        self.longest.stops_in_slices
    }

    /// It stops.
    pub fn stop(&mut self, budget: Nanos) -> Served {
        let slice = self.slice(budget);
        self.has_stopped = true;
        let is_done = self.seat.begin_stop(&|| slice.part());
        self.served(is_done, &slice)
    }

    /// It is gone. What it said at its end is handed on, if there is room within a second. One that could not stop on its core stops here; that is billed
    /// all the same.
    pub fn leave(mut self) {
        let begin = thread_time();
        self.give_up();
        if !self.has_stopped {
            self.seat.stop();
            let used = Nanos(thread_time().0.saturating_sub(begin.0));
            self.account.charge(used);
            self.hand_on(used);
        }
        for _ in 0..100 {
            if self.kept.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            self.hand_on(Nanos(0));
        }
        self.tally.unwritten.fetch_add(self.kept.iter().count() as u64, Ordering::Relaxed);
    }

    /// Gives what came out to the writer, and counts.
    fn hand_on(&mut self, used: Nanos) {
        let instance = &mut self.seat.instance;
        match instance.take_records() {
            Some(emitted) if self.kept.is_empty() => {
                self.kept = emitted;
                // Before anybody else has anything to do with them.
                if let Some(limits) = &self.limits {
                    let held = limits.hold(&mut self.kept);
                    self.tally.held.lock().unwrap_or_else(PoisonError::into_inner).merge(&held);
                }
            }
            // The writer is behind, and has not even taken what came before.
            Some(emitted) => _ = self.tally.unwritten.fetch_add(emitted.len() as u64, Ordering::Relaxed),
            None => {}
        }
        for frame in instance.take_frames().iter().flat_map(Records::iter) {
            if let Some(Some(outlet)) = self.outlets.get(usize::from(frame.stream)) {
                // What does not go is counted there.
                _ = outlet.offer_made(frame.row);
            }
        }
        let log = instance.take_log();
        let faults = instance.faults(self.faults_told);
        self.faults_told += faults.len();
        if let Some(last) = faults.last() {
            *self.tally.last_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(last.clone());
        }
        if !self.kept.is_empty() || !log.is_empty() || !faults.is_empty() {
            let records = std::mem::take(&mut self.kept);
            let count = records.iter().count() as u64;
            let output = BatchOutput { module: self.number, records, log, faults, end: None, load: None };
            match self.outbox.offer(output) {
                Ok(()) => _ = self.tally.records.fetch_add(count, Ordering::Relaxed),
                Err(output) => self.kept = output.records,
            }
        }
        self.count(used);
    }

    fn count(&self, used: Nanos) {
        let (tally, instance) = (&self.tally, &self.seat.instance);
        let counters = instance.counters();
        let set = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        set(&tally.packets, counters.packets);
        set(&tally.lost, counters.lost);
        set(&tally.faults, counters.faults);
        set(&tally.strikes, counters.strikes);
        set(&tally.refused, counters.records_dropped);
        set(&tally.memory, instance.memory().0);
        set(&tally.ended, instance.end());
        tally.used.fetch_add(used.0, Ordering::Relaxed);
    }
}

fn elapsed(since: Instant) -> Nanos {
    Nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netio::{Capture, CaptureInput, CaptureNext};

    /// A ticket for packets of these lengths.
    fn ticket(lengths: &[u32]) -> BatchTicket {
        let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\x04\0\x01\0\0\0".to_vec();
        for len in lengths {
            [0, 0, *len, *len].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
            bytes.resize(bytes.len() + *len as usize, 0);
        }
        let CaptureNext::Block(block) =
            Capture::open(CaptureInput::Bytes(bytes)).unwrap().next_block().unwrap()
        else {
            panic!("there is a block")
        };
        let mask = block.batch(0).mask;
        BatchTicket { block: Arc::new(block), batch: 0, mask, position: 0, is_own: false }
    }

    #[test]
    fn a_call_has_as_many_packets_as_fit_by_their_own_lengths() {
        // 100 ns, and 1 ns for each 64 bytes or so.
        let time = PacketTime { empty: Nanos(100), longest: Nanos(1128) };
        assert_eq!(
            (time.of(0), time.of(640), time.of(PACKET_BYTES_MAX), time.of(u32::MAX)),
            (100, 110, 1128, 1128)
        );
        let mut lengths = vec![60; 64];
        (lengths[2], lengths[3]) = (65_000, 65_000);
        let ticket = ticket(&lengths);
        assert_eq!(time.fitting(&ticket, Nanos(u64::MAX)), ticket.mask);
        // Two short ones and a long one; the short ones alone; and one, where there is no time for any.
        assert_eq!(time.fitting(&ticket, Nanos(1500)), 0b111);
        assert_eq!(time.fitting(&ticket, Nanos(1200)), 0b11);
        assert_eq!(time.fitting(&ticket, Nanos(0)), 0b1);
        let later = BatchTicket { mask: ticket.mask & !0b11, ..ticket };
        assert_eq!(time.fitting(&later, Nanos(10)), 0b100);
    }
}
