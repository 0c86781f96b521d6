//! The installation of modules: first each is made ready, which can fail, then it is settled on a core.

use crate::control::authority::Signed;
use crate::control::spec::ModuleSpec;
use crate::error::NodeError;
use crate::guest::{BatchOutput, Inbox, ModuleTask, ShedPriority, TaskCounters};
use crate::intake;
use crate::outbox::RecordSender;
use crate::runner::Runner;
use crate::sessions::change::leading;
use crate::sessions::node::{Node, SessionChannel, SessionModule, SessionState, Vp};
use crate::sessions::processors::share;
use crate::sessions::view;
use crate::sessions::workshop::Prepared;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use weir_admission::{Name, Tier};
use weir_datapath::account::DeferredCharges;
use weir_datapath::plan::Visibility;
use weir_datapath::preprocess::Preprocessor;
use weir_datapath::seat::{BatchDriver, BatchError};
use weir_netio::{DescriptorRing, PacketBuffers};
use weir_trust::credential::PrefixId;
use weir_units::{Bytes, Nanos};

/// Numbers and memory that the node gives one module.
pub(crate) struct Fresh {
    /// Its number on the node.
    guest: u64,
    /// The number of the selection that is shown to it alone.
    shown: u64,
    /// The limit on the memory of its waiting packets, if there is one.
    waiting: Option<Arc<PacketBuffers>>,
}

/// A module that is ready to run, and not yet on its core.
pub(crate) struct PreparedModule {
    number: u64,
    guest: ModuleTask,
    vp: Vp,
    outputs: Sender<BatchOutput>,
}

impl PreparedModule {
    /// Closes the files of a module that is not to run.
    pub(crate) fn discard(self) {
        crate::sessions::writer::close(&self.outputs, self.number);
    }
}

/// Settles a module on its core. Returns true if there was room.
pub(crate) type Settle = Box<dyn FnOnce(&mut Runner) -> bool + Send>;

/// Checks that a session has room for a module of this name beside the present ones. With `goes_on`, the channel forwards packets, so it takes one module.
fn check_beside(
    there: &SessionState,
    spec: &ModuleSpec,
    name: &Name,
    goes_on: bool,
) -> Result<(), NodeError> {
    let session = &there.spec.name;
    if there.modules.contains_key(name) {
        return Err(NodeError::ModuleExists { session: session.clone(), module: name.clone() });
    }
    there.check_room(session)?;
    let deciding = there.modules.iter().find(|(_, module)| module.spec.channel == spec.channel);
    match deciding.filter(|_| goes_on) {
        None => Ok(()),
        Some((module, _)) => {
            let (session, channel, module) = (session.clone(), spec.channel.clone(), module.clone());
            Err(NodeError::Decided { session, channel, module })
        }
    }
}

impl Node {
    /// Installs a module, if its session's owner still has the right to it.
    pub(crate) fn install(
        &mut self,
        session: &Name,
        prepared: Prepared,
        signed: Option<Signed>,
    ) -> Result<Name, NodeError> {
        let channel = self.sessions.get(session).and_then(|there| there.channels.get(&prepared.spec.channel));
        let fresh = self.fresh(channel.and_then(|channel| channel.spec.bounds.party));
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        if let (Some(owner), Some(signed)) = (&there.owner, &signed) {
            signed.hold(&owner.credential, &prepared.spec.module).map_err(Box::new)?;
        }
        if there.is_closing {
            return Err(NodeError::Closing(session.clone()));
        }
        // The session may have lost the rights by which the module was prepared.
        let is_as_before = prepared.binding.holds(&there.spec) && prepared.profile == there.spec.profile;
        if !prepared.tables.are_of(&there.memory) || !is_as_before {
            return Err(NodeError::Changed(session.clone()));
        }
        let checked =
            crate::control::spec::SessionSpec { modules: vec![prepared.spec.clone()], ..there.spec.clone() };
        checked.check(&self.sources.keys().cloned().collect::<Vec<_>>(), &self.workshop.profiles())?;
        let channel = there.channels.get(&prepared.spec.channel);
        let overrun = channel.map_or(Nanos(0), |channel| self.overrun_of(&prepared, channel));
        let (name, module, ready) = self.build(there, prepared, signed, fresh)?;
        let (vp, outputs) = (ready.vp.clone(), ready.outputs.clone());
        if let Err(error) = self.make_room(&vp, overrun) {
            ready.discard();
            return Err(error);
        }
        let core = self.cores.get(vp.core).ok_or_else(|| NodeError::Changed(session.clone()))?;
        let settle = self.open(there, &module, ready);
        let settled = core.ask(settle)?;
        if !settled {
            there.bell.remove(module.guest);
            module.desk.office().close(&module.desk);
            crate::sessions::writer::close(&outputs, module.guest);
            return Err(NodeError::Full(module.spec.cpu));
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.ended.forget(&name);
            session.modules.insert(name.clone(), module);
        }
        self.route_all(session)?;
        Ok(name)
    }

    fn make_room(&self, vp: &Vp, overrun: Nanos) -> Result<(), NodeError> {
        let Some(core) = self.cores.get(vp.core) else { return Ok(()) };
        let (id, share, number) = (vp.id, share(&vp.spec), core.number());
        let room = core.ask(move |runner| runner.make_room(id, share, overrun))?;
        room.map_err(|refusal| NodeError::Cpu { name: vp.spec.name.clone(), core: number, refusal })
    }

    /// Numbers and memory for the next module. `party` is that of its channel.
    pub(crate) fn fresh(&mut self, party: Option<PrefixId>) -> Fresh {
        let waiting = self.packet_room(party);
        self.next_guest += 1;
        self.next_selection += 1;
        Fresh { guest: self.next_guest, shown: self.next_selection, waiting }
    }

    /// The longest time by which a module on this channel exceeds a budget: in a call or in the intake of a packet, never in both.
    pub(crate) fn overrun_of(&self, prepared: &Prepared, channel: &SessionChannel) -> Nanos {
        let taking_in = intake::longest_for(&channel.spec, channel.screens.len());
        let taking_in = taking_in.map_or(Nanos(0), |fuel| self.workshop.pace.calibration.time(fuel));
        prepared.longest.call.max(taking_in)
    }

    /// Makes a module ready to run in a session, which need not be on the node yet.
    pub(crate) fn build(
        &self,
        there: &SessionState,
        prepared: Prepared,
        signed: Option<Signed>,
        fresh: Fresh,
    ) -> Result<(Name, SessionModule, PreparedModule), NodeError> {
        let session = &there.spec.name;
        let changed = || NodeError::Changed(session.clone());
        let channel = there.channels.get(&prepared.spec.channel).ok_or_else(changed)?;
        let Prepared { spec, name, admitted, tenant, longest, desk, mut tables, binding, .. } = prepared;
        let vp = there.vps.get(&spec.cpu).ok_or_else(changed)?.clone();
        let way = self.way(there, &channel.spec);
        check_beside(there, &spec, &name, way.is_some())?;
        if vp.spec.reservation().is_none() && admitted.tier() != Tier::Proved {
            let (module, tier, cpu) = (spec.module.clone(), admitted.tier(), spec.cpu.clone());
            return Err(NodeError::BestEffort { module, tier, cpu });
        }
        let failed = |source| NodeError::of_selection(&spec.channel, source);
        let room = there.reassembly(&channel.spec)?;
        // On a channel with a view each module has tables of its own.
        let wanted = if channel.screens.is_empty() { Bytes(0) } else { channel.tables.bytes() };
        let taken = view::tables(session, &spec.channel, &there.memory, wanted)?;
        let waiting = fresh.waiting.as_ref();
        let intake = intake::of_channel(channel, room, taken, waiting).map_err(failed)?;
        let ring = self.ring_of(channel, intake.as_ref()).ok_or_else(changed)?;
        let transformed = intake.as_ref().and_then(Preprocessor::transformed);
        let tick = admitted.tick().map(|period| period.0);
        let queue = Arc::new(channel.spec.new_queue().with(self.overflow(there, channel, waiting)?));
        let (tally, account): (Arc<TaskCounters>, Arc<DeferredCharges>) = Default::default();
        let standing =
            ShedPriority { priority: Arc::clone(&there.priority), channel: Arc::clone(&channel.tally) };
        let outputs = self.writer.outputs().ok_or_else(changed)?;
        let core = self.cores.get(vp.core).ok_or_else(changed)?;
        tenant.bind(core.number()).map_err(BatchError::from)?;
        let isolation = tenant.isolation();
        let seat = BatchDriver::new(tenant, &ring, tick)?;
        let guest = fresh.guest;
        let manifest = admitted.manifest();
        let written = self.writer.open(
            guest,
            (session, &there.limits),
            &name,
            manifest,
            &self.records,
            Arc::clone(&account),
        )?;
        let module = SessionModule {
            guest,
            title: format!("{} {}", manifest.name, manifest.version),
            tier: admitted.tier(),
            isolation,
            streams: manifest.streams.iter().map(|stream| stream.name.clone()).collect(),
            services: manifest.services.clone(),
            calls: manifest.calls.clone(),
            outputs: manifest.outputs.iter().map(|output| output.name.clone()).collect(),
            tables: binding,
            queue: Arc::clone(&queue),
            shown: transformed.map(|transformed: Arc<AtomicU64>| (fresh.shown, transformed)),
            tally: Arc::clone(&tally),
            account: Arc::clone(&account),
            written,
            spec: spec.clone(),
            signed,
            desk: Arc::clone(&desk),
        };
        let ways: Vec<_> =
            there.outputs.iter().map(|(name, output)| (name.clone(), output.outlet.clone())).collect();
        let outlets = leading(&module.outputs, &ways);
        tables.move_in(guest, &format!("{session}/{name}"), &core.waker());
        let pace = Arc::clone(&self.workshop.pace);
        let inbox = Inbox { queue, intake, desk };
        let outbox = RecordSender::new(outputs.clone());
        let guest = ModuleTask::new(guest, seat, inbox, standing, tally, account, outbox, longest, pace)
            .sending_on(way)
            .sending(outlets)
            .reading(tables)
            .held_to(Arc::clone(&there.limits));
        Ok((name, module, PreparedModule { number: fresh.guest, guest, vp, outputs }))
    }

    /// The ring with the descriptors of a module's packets.
    fn ring_of(&self, channel: &SessionChannel, intake: Option<&Preprocessor>) -> Option<DescriptorRing> {
        match (intake.and_then(Preprocessor::descriptors), &channel.sight) {
            (Some(ring), _) => Some(ring.clone()),
            (None, Visibility::All(_)) => {
                self.sources.get(&channel.spec.interface).map(|source| source.descriptors().clone())
            }
            (None, Visibility::Selected(selection)) => {
                Some(selection.lock().unwrap_or_else(PoisonError::into_inner).descriptors().clone())
            }
            // No module maps that memory.
            (None, Visibility::Made(_)) => None,
        }
    }

    /// Opens a module to messages and the session's bell. Returns the job that settles it on its core.
    pub(crate) fn open(&self, there: &SessionState, module: &SessionModule, ready: PreparedModule) -> Settle {
        let PreparedModule { guest, vp, .. } = ready;
        self.writer.hold_to(&there.spec.name, &there.limits);
        let waker = self.cores.get(vp.core).map(crate::runner::CoreThread::waker).unwrap_or_default();
        let offers = there.spec.offered(&module.services);
        let (desk, session) = (&module.desk, &there.spec.name);
        desk.office().open(desk, module.guest, waker.clone(), session, &there.memory, offers.clone());
        // The services that it may call can have changed since it was prepared, too.
        desk.change(module.calls.iter().map(|name| there.spec.used(name)).collect(), offers);
        there.bell.add(module.guest, waker);
        let id = vp.id;
        Box::new(move |runner: &mut Runner| runner.settle(id, guest).is_ok())
    }
}
