//! A module in its sandbox: in this process, or in one of its own.

use crate::sessions::tables::Readings;
use std::io;
use std::sync::Arc;
use weir_datapath::seat::Sandbox;
use weir_netio::{DescriptorRing, PacketWindow, WatchGuard};
use weir_sandbox::{
    Area, Call, CallStep, FuelSlice, Instance, InstanceCounters, LogLine, News, Patch, RemoteInstance,
    TablePublisher,
};
use weir_session::Records;
use weir_units::{Bytes, Nanos};

/// A module in its sandbox.
#[derive(Debug)]
pub(crate) enum SandboxInstance {
    /// In this process.
    Here(Box<Instance>),
    /// In a process of its own.
    Apart {
        /// The process.
        ward: Box<RemoteInstance>,
        /// It publishes nothing; but a module has as much to do with its session's tables as others have, as long as it is there.
        _publisher: Arc<dyn TablePublisher>,
    },
}

impl Sandbox for SandboxInstance {
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()> {
        match self {
            Self::Here(instance) => Sandbox::map_descriptors(instance.as_mut(), ring),
            Self::Apart { ward, .. } => ward.map_descriptors(Area {
                fd: ring.fd(),
                offset: 0,
                len: usize::try_from(ring.len().0).unwrap_or(usize::MAX),
            }),
        }
    }

    fn face(
        &mut self,
        window: &Arc<PacketWindow>,
    ) -> Result<Option<WatchGuard>, weir_datapath::seat::BatchError> {
        match self {
            Self::Here(instance) => instance.face(window),
            // What is mapped there is nothing to this process, and it is memory that cannot shrink.
            Self::Apart { ward, .. } => {
                let len = usize::try_from(window.len().0).unwrap_or(usize::MAX);
                ward.map_packets(Area { fd: window.fd(), offset: window.file_offset(), len })?;
                Ok(None)
            }
        }
    }

    fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        match self {
            Self::Here(instance) => instance.begin(call, budget),
            Self::Apart { ward, .. } => ward.begin(call, budget),
        }
    }

    fn resume(&mut self, budget: FuelSlice) -> CallStep {
        match self {
            Self::Here(instance) => instance.resume(budget),
            Self::Apart { ward, .. } => ward.resume(budget),
        }
    }

    fn abandon(&mut self) -> u64 {
        match self {
            Self::Here(instance) => instance.abandon(),
            Self::Apart { ward, .. } => ward.abandon(),
        }
    }

    fn is_suspended(&self) -> bool {
        match self {
            Self::Here(instance) => instance.is_suspended(),
            Self::Apart { ward, .. } => ward.is_suspended(),
        }
    }

    fn begin_block(&mut self) {
        match self {
            Self::Here(instance) => instance.begin_block(),
            Self::Apart { ward, .. } => ward.begin_block(),
        }
    }

    fn take_unserved(&mut self) -> u64 {
        match self {
            Self::Here(instance) => instance.take_unserved(),
            Self::Apart { ward, .. } => ward.take_unserved(),
        }
    }
}

impl SandboxInstance {
    /// The walls around its process; nothing where it is in this one.
    pub(crate) fn isolation(&self) -> String {
        match self {
            Self::Here(_) => String::new(),
            Self::Apart { ward, .. } => ward.isolation().to_string(),
        }
    }

    /// How long others have worked for it, in a process of its own, since this was asked last.
    pub(crate) fn take_waited(&mut self) -> Nanos {
        match self {
            Self::Here(_) => Nanos(0),
            Self::Apart { ward, .. } => ward.take_waited(),
        }
    }

    /// Has it run where this thread does: on this core, with all its threads. It rests now, so there come no more of them meanwhile; those that it starts later
    /// run where these do.
    pub(crate) fn bind(&self, core: u16) -> io::Result<()> {
        let Self::Apart { ward, .. } = self else { return Ok(()) };
        let mut set = rustix::thread::CpuSet::new();
        set.set(usize::from(core));
        for thread in std::fs::read_dir(format!("/proc/{}/task", ward.process()))? {
            let number = thread?.file_name().to_str().and_then(|number| number.parse().ok());
            rustix::thread::sched_setaffinity(number.and_then(rustix::thread::Pid::from_raw), &set)?;
        }
        Ok(())
    }

    pub(crate) fn open_outputs(&mut self, open: u8) {
        match self {
            Self::Here(instance) => instance.open_outputs(open),
            Self::Apart { ward, .. } => ward.open_outputs(open),
        }
    }

    pub(crate) fn ignore_patches(&mut self) {
        match self {
            Self::Here(instance) => instance.ignore_patches(),
            Self::Apart { ward, .. } => ward.ignore_patches(),
        }
    }

    /// Shows it what is new in the tables that it reads. Who has a process of its own reads none.
    pub(crate) fn refresh(&mut self, tables: &mut Readings) {
        if let Self::Here(instance) = self {
            tables.refresh(instance);
        }
    }

    pub(crate) fn low_memory(&mut self) -> Option<News> {
        match self {
            Self::Here(instance) => instance.low_memory(),
            Self::Apart { ward, .. } => ward.low_memory(),
        }
    }

    /// The message of what it is told next. Who has a process of its own calls no services, and serves none.
    pub(crate) fn set_message(&mut self, message: Vec<u8>) {
        if let Self::Here(instance) = self {
            instance.set_message(message);
        }
    }

    pub(crate) fn counters(&self) -> InstanceCounters {
        match self {
            Self::Here(instance) => instance.counters(),
            Self::Apart { ward, .. } => ward.counters(),
        }
    }

    /// As the [tally](crate::guest::TaskCounters) has it.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Apart { ward, .. } if ward.is_gone() => 2,
            _ => self.has_ended().into(),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Here(instance) => instance.has_ended(),
            Self::Apart { ward, .. } => ward.has_ended(),
        }
    }

    /// Its private memory, with that of the packets that it keeps.
    pub(crate) fn memory(&self) -> Bytes {
        match self {
            Self::Here(instance) => Bytes(instance.memory().0.saturating_add(instance.kept().0)),
            Self::Apart { ward, .. } => ward.memory(),
        }
    }

    /// What went wrong, in words, after the first so many faults.
    pub(crate) fn faults(&self, after: usize) -> Vec<String> {
        match self {
            Self::Here(instance) => {
                instance.incidents().iter().skip(after).map(|incident| incident.fault.to_string()).collect()
            }
            Self::Apart { ward, .. } => ward.faults().iter().skip(after).cloned().collect(),
        }
    }

    pub(crate) fn take_records(&mut self) -> Option<Records> {
        match self {
            Self::Here(instance) => instance.has_records().then(|| instance.take_records(Records::default())),
            Self::Apart { ward, .. } => ward.has_records().then(|| ward.take_records()),
        }
    }

    pub(crate) fn take_frames(&mut self) -> Option<Records> {
        match self {
            Self::Here(instance) => instance.has_frames().then(|| instance.take_frames(Records::default())),
            Self::Apart { ward, .. } => ward.has_frames().then(|| ward.take_frames()),
        }
    }

    pub(crate) fn take_patches(&mut self) -> Vec<Patch> {
        match self {
            Self::Here(instance) => instance.take_patches(),
            Self::Apart { ward, .. } => ward.take_patches(),
        }
    }

    pub(crate) fn take_log(&mut self) -> Vec<LogLine> {
        match self {
            Self::Here(instance) => instance.take_log(),
            Self::Apart { ward, .. } => ward.take_log(),
        }
    }
}
