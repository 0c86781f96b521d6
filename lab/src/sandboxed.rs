//! A module in its sandbox, as `weir run` runs it.

use crate::contest::{Contestant, PassResult};
use crate::error::{Doing, LabError};
use crate::module::Module;
use crate::packets::{Packets, Tick};
use std::sync::{Arc, Mutex, PoisonError};
use weir_abi::{DESCRIPTOR_BYTES, DESCRIPTORS_BASE, code};
use weir_sandbox::{BatchInput, Engine, Instance, InstanceContext, Pinned, TablePublisher, TableVersion};
use weir_session::Records;
use weir_units::{Bytes, Timestamp};

/// An instance with mapped packets, and its published tables.
#[derive(Debug)]
pub struct Sandboxed {
    instance: Instance,
    published: Arc<Published>,
    /// The distance of descriptors.
    descriptor_bytes: usize,
}

/// Receives published tables.
#[derive(Debug, Default)]
struct Published(Mutex<Vec<(u32, Vec<u8>)>>);

impl TablePublisher for Published {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((table, bytes.to_vec()));
        code::OK
    }
}

impl Sandboxed {
    /// Loads and starts a module, and maps the packets.
    pub fn start(engine: &Engine, module: &Module, packets: &Packets) -> Result<Self, LabError> {
        let program = engine.load(module.admit()?)?;
        let mut tables = Vec::new();
        for (place, bytes) in &module.tables {
            let version = TableVersion::new(1, bytes).doing("a table")?;
            tables.resize(tables.len().max(place + 1), None);
            tables[*place] = Some(Arc::new(version));
        }
        let published: Arc<Published> = Arc::default();
        let press: Arc<dyn TablePublisher> = Arc::clone(&published) as _;
        let means = InstanceContext { tables, press: Some(press), ..InstanceContext::default() };
        let mut instance = Instance::start_with(engine, &program, means)?;
        let unmapped = |error| LabError::failed(packets.path().display(), error);
        instance.map_descriptors(packets.descriptors()).map_err(unmapped)?;
        instance.map_packets(packets.capture()).map_err(unmapped)?;
        // Kept packets stay in the capture.
        let pinned = || Pinned { hold: Box::new(()), pieces: 0..0, piece: Bytes(0), most: u32::MAX };
        instance.keep_by(Some(Box::new(move |_, _| Ok(pinned())))).map_err(unmapped)?;
        let this = Self { instance, published, descriptor_bytes: DESCRIPTOR_BYTES };
        match this.fault() {
            Some(fault) => Err(LabError::failed(&module.name, fault)),
            None => Ok(this),
        }
    }

    /// The same with descriptors at multiples of another size.
    pub fn with_descriptors_of(self, descriptor_bytes: usize) -> Self {
        Self { descriptor_bytes, ..self }
    }
}

impl Contestant for Sandboxed {
    fn run(&mut self, batch: BatchInput) -> u64 {
        let place =
            (batch.descriptors - DESCRIPTORS_BASE) as usize / DESCRIPTOR_BYTES * self.descriptor_bytes;
        let descriptors = DESCRIPTORS_BASE + u32::try_from(place).unwrap_or(u32::MAX);
        self.instance.run(BatchInput { descriptors, ..batch })
    }

    fn tick(&mut self, tick: Tick) {
        self.instance.tick(tick.now, tick.periods, 0);
    }

    fn stop(&mut self, now: Timestamp) {
        self.instance.stop(now);
    }

    fn begin_block(&mut self) {
        self.instance.begin_block();
    }

    fn take(&mut self, empty: Records) -> PassResult {
        PassResult {
            records: self.instance.take_records(empty),
            frames: self.instance.take_frames(Records::default()),
            patches: self.instance.take_patches(),
            published: std::mem::take(&mut self.published.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn fault(&self) -> Option<String> {
        self.instance.incidents().first().map(|incident| format!("{incident:?}"))
    }
}
