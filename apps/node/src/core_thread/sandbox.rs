//! The sandbox of a module: in this process, or in a process of its own.

use crate::core_thread::session_part::TableUpdates;
use std::io;
use std::sync::Arc;
use weir_datapath::driver::Sandbox;
use weir_datapath::driver::areas_of;
use weir_netio::{DescriptorRing, PacketWindow, WatchGuard};
use weir_sandbox::{
    Area, BackEnd, Call, CallStep, FuelSlice, Instance, InstanceCounters, LogLine, ModuleEvent, Patch,
    RemoteInstance, TablePublisher,
};
use weir_session::Records;
use weir_units::{Bytes, Nanos};

/// The sandbox of a module.
#[derive(Debug)]
pub(crate) enum SandboxInstance {
    /// In the node's process.
    InProcess(Box<Instance>),
    /// In a process of its own.
    Remote {
        /// The process.
        instance: Box<RemoteInstance>,
        /// Keeps the module's rights to the session's tables. A module in a process of its own publishes no table.
        _publisher: Arc<dyn TablePublisher>,
    },
}

impl Sandbox for SandboxInstance {
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()> {
        match self {
            Self::InProcess(instance) => Sandbox::map_descriptors(instance.as_mut(), ring),
            Self::Remote { instance, .. } => instance.map_descriptors(Area {
                fd: ring.fd(),
                offset: 0,
                len: usize::try_from(ring.len().0).unwrap_or(usize::MAX),
                is_fixed: false,
            }),
        }
    }

    fn map_window(
        &mut self,
        window: &Arc<PacketWindow>,
    ) -> Result<Option<WatchGuard>, weir_datapath::driver::BatchError> {
        match self {
            Self::InProcess(instance) => instance.map_window(window),
            // The window is mapped in the other process. Its memory cannot shrink, so this process needs no guard.
            Self::Remote { instance, .. } => {
                instance.map_packet_areas(&areas_of(window))?;
                Ok(None)
            }
        }
    }

    fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        match self {
            Self::InProcess(instance) => instance.begin(call, budget),
            Self::Remote { instance, .. } => instance.begin(call, budget),
        }
    }

    fn resume(&mut self, budget: FuelSlice) -> CallStep {
        match self {
            Self::InProcess(instance) => instance.resume(budget),
            Self::Remote { instance, .. } => instance.resume(budget),
        }
    }

    fn abort(&mut self) -> u64 {
        match self {
            Self::InProcess(instance) => instance.abort(),
            Self::Remote { instance, .. } => instance.abort(),
        }
    }

    fn is_suspended(&self) -> bool {
        match self {
            Self::InProcess(instance) => instance.is_suspended(),
            Self::Remote { instance, .. } => instance.is_suspended(),
        }
    }

    fn begin_block(&mut self) {
        match self {
            Self::InProcess(instance) => instance.begin_block(),
            Self::Remote { instance, .. } => instance.begin_block(),
        }
    }

    fn take_unserved(&mut self) -> u64 {
        match self {
            Self::InProcess(instance) => instance.take_unserved(),
            Self::Remote { instance, .. } => instance.take_unserved(),
        }
    }

    fn has_streams(&self) -> bool {
        match self {
            Self::InProcess(instance) => instance.has_streams(),
            Self::Remote { instance, .. } => instance.has_streams(),
        }
    }

    fn is_stopped(&self) -> bool {
        match self {
            Self::InProcess(instance) => instance.is_stopped(),
            Self::Remote { instance, .. } => instance.is_stopped(),
        }
    }
}

impl SandboxInstance {
    /// Returns the compiler of the code in which the module runs now.
    pub(crate) fn back_end(&self) -> BackEnd {
        match self {
            Self::InProcess(instance) => instance.back_end(),
            Self::Remote { instance, .. } => instance.back_end(),
        }
    }

    /// Returns the isolation of the sandbox process; empty in the node's process.
    pub(crate) fn isolation(&self) -> String {
        match self {
            Self::InProcess(_) => String::new(),
            Self::Remote { instance, .. } => instance.isolation().to_string(),
        }
    }

    /// Returns the time for which the core thread waited for the sandbox process since the last call.
    pub(crate) fn take_waited(&mut self) -> Nanos {
        match self {
            Self::InProcess(_) => Nanos(0),
            Self::Remote { instance, .. } => instance.take_waited(),
        }
    }

    /// Binds all threads of the sandbox process to a core. The module is idle, so it starts no threads meanwhile, and
    /// later threads inherit the binding.
    pub(crate) fn bind(&self, core: u16) -> io::Result<()> {
        let Self::Remote { instance, .. } = self else { return Ok(()) };
        let mut set = rustix::thread::CpuSet::new();
        set.set(usize::from(core));
        for thread in std::fs::read_dir(format!("/proc/{}/task", instance.process()))? {
            let number = thread?.file_name().to_str().and_then(|number| number.parse().ok());
            rustix::thread::sched_setaffinity(number.and_then(rustix::thread::Pid::from_raw), &set)?;
        }
        Ok(())
    }

    /// Tells the module which of its outputs are connected, one bit each.
    pub(crate) fn connect_outputs(&mut self, open: u8) {
        match self {
            Self::InProcess(instance) => instance.connect_outputs(open),
            Self::Remote { instance, .. } => instance.connect_outputs(open),
        }
    }

    /// Discards the module's patches from now on.
    pub(crate) fn ignore_patches(&mut self) {
        match self {
            Self::InProcess(instance) => instance.ignore_patches(),
            Self::Remote { instance, .. } => instance.ignore_patches(),
        }
    }

    /// Applies new versions of the readable tables. A module in a process of its own reads no table.
    pub(crate) fn refresh(&mut self, tables: &mut dyn TableUpdates) {
        if let Self::InProcess(instance) = self {
            tables.refresh(instance);
        }
    }

    /// Returns the event of low memory, if memory has become low since the last call.
    pub(crate) fn low_memory(&mut self) -> Option<ModuleEvent> {
        match self {
            Self::InProcess(instance) => instance.low_memory(),
            Self::Remote { instance, .. } => instance.low_memory(),
        }
    }

    /// Sets the message of the next event. A module in a process of its own neither calls nor serves services.
    pub(crate) fn set_message(&mut self, message: Vec<u8>) {
        if let Self::InProcess(instance) = self {
            instance.set_message(message);
        }
    }

    pub(crate) fn counters(&self) -> InstanceCounters {
        match self {
            Self::InProcess(instance) => instance.counters(),
            Self::Remote { instance, .. } => instance.counters(),
        }
    }

    /// Returns the state of the sandbox, as in [`TaskCounters::ended`](crate::core_thread::task::TaskCounters).
    pub(crate) fn end_state(&self) -> u64 {
        match self {
            Self::Remote { instance, .. } if instance.has_lost_process() => 2,
            _ => self.has_ended().into(),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::InProcess(instance) => instance.has_ended(),
            Self::Remote { instance, .. } => instance.has_ended(),
        }
    }

    /// Returns the module's private memory plus the memory of its kept packets.
    pub(crate) fn memory(&self) -> Bytes {
        match self {
            Self::InProcess(instance) => Bytes(instance.memory().0.saturating_add(instance.kept().0)),
            Self::Remote { instance, .. } => instance.memory(),
        }
    }

    /// Returns the messages of the module's faults, without the first `skipped`.
    pub(crate) fn faults(&self, skipped: usize) -> Vec<String> {
        match self {
            Self::InProcess(instance) => instance.fault_messages(skipped),
            Self::Remote { instance, .. } => instance.faults().iter().skip(skipped).cloned().collect(),
        }
    }

    pub(crate) fn take_records(&mut self) -> Option<Records> {
        match self {
            Self::InProcess(instance) => {
                instance.has_records().then(|| instance.take_records(Records::default()))
            }
            Self::Remote { instance, .. } => instance.has_records().then(|| instance.take_records()),
        }
    }

    pub(crate) fn take_frames(&mut self) -> Option<Records> {
        match self {
            Self::InProcess(instance) => {
                instance.has_frames().then(|| instance.take_frames(Records::default()))
            }
            Self::Remote { instance, .. } => instance.has_frames().then(|| instance.take_frames()),
        }
    }

    pub(crate) fn take_patches(&mut self) -> Vec<Patch> {
        match self {
            Self::InProcess(instance) => instance.take_patches(),
            Self::Remote { instance, .. } => instance.take_patches(),
        }
    }

    /// Returns the contents of the manifest's blocks of state.
    ///
    /// # Errors
    /// A call is suspended, or the module has ended.
    pub(crate) fn state(&mut self) -> io::Result<Vec<Vec<u8>>> {
        match self {
            Self::InProcess(instance) => instance.state(),
            Self::Remote { instance, .. } => instance.state(),
        }
    }

    /// Sets the contents of the manifest's blocks of state.
    ///
    /// # Errors
    /// As [`state`](Self::state), or the blocks have other sizes.
    pub(crate) fn set_state(&mut self, blocks: Vec<Vec<u8>>) -> io::Result<()> {
        match self {
            Self::InProcess(instance) => instance.set_state(&blocks),
            Self::Remote { instance, .. } => instance.set_state(blocks),
        }
    }

    pub(crate) fn take_log(&mut self) -> Vec<LogLine> {
        match self {
            Self::InProcess(instance) => instance.take_log(),
            Self::Remote { instance, .. } => instance.take_log(),
        }
    }
}
