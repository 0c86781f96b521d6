//! The exact fuel use of a module's calls, for the search of [`crate::worst_case`].

use crate::crafted::CraftedPacket;
use crate::error::LabError;
use crate::module::Module;
use crate::native;
use crate::packets::in_memory;
use crate::sandboxed;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use weir_abi::{ARENA_BASE, BATCH_BYTES, BATCH_PACKETS, DESCRIPTORS_BASE, Descriptor};
use weir_sandbox::{Area, BackEnd, BatchInput, CheckMode, Engine, Instance, LoadedModule};
use weir_session::Records;
use weir_units::{Nanos, Timestamp};

/// The memory for a batch of the longest packets that a search tries, in bytes.
const ARENA_BYTES: usize = BATCH_PACKETS << 17;
/// The fuel limit of a call, which no call reaches.
const FUEL_MAX: u64 = 1 << 50;
/// The packet time at the start, in ns. It is large, because time can go backwards.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// An engine that counts fuel exactly, in the code of one back end.
#[derive(Debug)]
pub struct FuelCounter {
    engine: Engine,
    back_end: BackEnd,
}

/// A module compiled for exact counting.
pub struct CountedModule<'a> {
    engine: &'a Engine,
    program: LoadedModule,
    name: String,
}

/// An instance of a [`CountedModule`], called for one packet at a time.
#[derive(Debug)]
pub struct PacketFuelMeter {
    instance: Instance,
    name: String,
    arena: File,
    descriptors: File,
    /// The packet time in nanoseconds.
    now: u64,
    /// The period of ticks, and the time of the next one, in nanoseconds.
    tick: Option<(u64, u64)>,
    /// The number of the next packet.
    number: u64,
    /// The bytes of the batch's packets.
    packet_bytes: Vec<u8>,
    /// The descriptors of the batch.
    batch_descriptors: Vec<Descriptor>,
    /// A buffer for records, which are discarded.
    records: Records,
}

impl FuelCounter {
    /// Starts the engine of a back end.
    pub fn new(back_end: BackEnd) -> Result<Self, LabError> {
        let engine = sandboxed::start_engine(back_end, CheckMode::Exact(FUEL_MAX))?;
        Ok(Self { engine, back_end })
    }

    /// The back end in whose code modules run.
    pub fn back_end(&self) -> BackEnd {
        self.back_end
    }

    /// The reason why no module runs in the code of this back end; `None` if modules can.
    pub fn why_not_supported(&self) -> Option<&str> {
        match self.back_end {
            BackEnd::Cranelift => None,
            BackEnd::Llvm => self.engine.why_not_llvm(),
        }
    }

    /// Compiles a module. Returns the reason instead if it has no verified code of LLVM, and the engine needs it.
    ///
    /// # Errors
    /// The module is not admitted, or Cranelift cannot compile it.
    pub fn load(&self, module: &Module) -> Result<Result<CountedModule<'_>, String>, LabError> {
        let program = self.engine.load(module.admit()?)?;
        if program.back_end() != self.back_end {
            return Ok(Err(program.why_not_llvm().unwrap_or_default().to_owned()));
        }
        Ok(Ok(CountedModule { engine: &self.engine, program, name: module.name.clone() }))
    }
}

impl CountedModule<'_> {
    /// Starts an instance, whose memory is as after `weir_start`.
    pub fn start(&self) -> Result<PacketFuelMeter, LabError> {
        let mut instance = Instance::start(self.engine, &self.program)?;
        let folder = std::env::temp_dir();
        let failed = || LabError::file(&folder);
        let file = |len: usize| {
            let file = in_memory().map_err(failed())?;
            file.set_len(u64::try_from(len).unwrap_or(0)).map_err(failed())?;
            Ok::<_, LabError>(file)
        };
        let (arena, descriptors) = (file(ARENA_BYTES)?, file(BATCH_BYTES)?);
        let area = |file, len| Area { fd: file, offset: 0, len, is_fixed: false };
        instance.map_descriptors(area(descriptors.as_fd(), BATCH_BYTES)).map_err(failed())?;
        instance.map_packets(area(arena.as_fd(), ARENA_BYTES)).map_err(failed())?;
        instance.ignore_patches();
        let period = self.program.admitted().tick_period().filter(|period| *period > Nanos(0));
        let fuel_meter = PacketFuelMeter {
            instance,
            name: self.name.clone(),
            arena,
            descriptors,
            now: BEGIN_NS,
            tick: period.map(|Nanos(period)| (period, BEGIN_NS)),
            number: 0,
            packet_bytes: Vec::new(),
            batch_descriptors: Vec::new(),
            records: Records::default(),
        };
        fuel_meter.check_alive().map(|()| fuel_meter)
    }
}

impl PacketFuelMeter {
    /// Runs a batch of packets, each in a separate call, and writes the fuel of each call into `fuel`. If a call has a
    /// fault, its fuel up to the fault counts.
    pub fn measure(&mut self, packets: &[CraftedPacket], fuel: &mut Vec<u64>) -> Result<(), LabError> {
        self.packet_bytes.clear();
        self.batch_descriptors.clear();
        for packet in packets {
            self.now = self.now.saturating_add_signed(packet.gap_ns);
            let at = ARENA_BASE.saturating_add(u32::try_from(self.packet_bytes.len()).unwrap_or(u32::MAX));
            self.batch_descriptors.push(packet.descriptor(self.now, at, self.number));
            self.number += 1;
            self.packet_bytes.extend_from_slice(&packet.bytes);
        }
        let folder = std::env::temp_dir();
        self.arena.write_all_at(&self.packet_bytes, 0).map_err(LabError::file(&folder))?;
        self.descriptors
            .write_all_at(native::bytes_of(&self.batch_descriptors), 0)
            .map_err(LabError::file(&folder))?;
        fuel.clear();
        for index in 0..u32::try_from(packets.len()).unwrap_or(0) {
            self.instance.run(BatchInput { descriptors: DESCRIPTORS_BASE, mask: 1 << index, first: 0 });
            fuel.push(self.instance.fuel_used().unwrap_or(0));
        }
        self.records.clear();
        self.records = self.instance.take_records(std::mem::take(&mut self.records));
        self.tick_if_due();
        self.check_alive()
    }

    /// Calls `weir_tick` if packet time has reached the next tick. The fuel of ticks is not measured.
    fn tick_if_due(&mut self) {
        let Some((period, next)) = &mut self.tick else { return };
        if self.now >= *next {
            let periods = (self.now - *next) / *period + 1;
            *next += periods * *period;
            self.instance.tick(Timestamp(*next - *period), periods, 0);
            self.instance.begin_block();
        }
    }

    /// Fails if the module has ended.
    fn check_alive(&self) -> Result<(), LabError> {
        if !self.instance.has_ended() {
            return Ok(());
        }
        let fault =
            self.instance.incidents().last().map_or_else(String::new, |incident| format!("{incident:?}"));
        Err(LabError::failed(&self.name, fault))
    }
}
