//! A module in its sandbox, as `weir run` runs it.

use crate::BenchError;
use crate::contest::Contestant;
use crate::module::Module;
use crate::packets::{Packets, Tick};
use std::sync::{Arc, Mutex, PoisonError};
use weir_abi::code;
use weir_sandbox::{Batch, Engine, Instance, Means, Patch, Pinned, Press, TableVersion};
use weir_session::Records;
use weir_units::{Bytes, Timestamp};

/// An instance that packets are mapped for, and what it has published.
#[derive(Debug)]
pub struct Sandboxed(Instance, Arc<Published>);

/// Takes what is published.
#[derive(Debug, Default)]
struct Published(Mutex<Vec<(u32, Vec<u8>)>>);

impl Press for Published {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((table, bytes.to_vec()));
        code::OK
    }
}

impl Sandboxed {
    /// Loads and starts a module, and maps the packets.
    ///
    /// # Errors
    /// Where it cannot be loaded, or does not start.
    pub fn start(engine: &Engine, module: &Module, packets: &Packets) -> Result<Self, BenchError> {
        let program = engine.load(module.admit()?)?;
        let mut tables = Vec::new();
        for (place, bytes) in &module.tables {
            let version = TableVersion::new(1, bytes).map_err(BenchError::Map)?;
            tables.resize(tables.len().max(place + 1), None);
            tables[*place] = Some(Arc::new(version));
        }
        let published: Arc<Published> = Arc::default();
        let press: Arc<dyn Press> = Arc::clone(&published) as _;
        let means = Means { tables, press: Some(press), ..Means::default() };
        let mut instance = Instance::start_with(engine, &program, means)?;
        let unmapped = |source| BenchError::File { path: packets.path().to_owned(), source };
        instance.map_descriptors(packets.descriptors()).map_err(unmapped)?;
        instance.map_packets(packets.capture()).map_err(unmapped)?;
        // They stay where they are, whoever keeps them.
        let pinned = || Pinned { hold: Box::new(()), pieces: 0..0, piece: Bytes(0), most: u32::MAX };
        instance.keep_by(Some(Box::new(move |_, _| Ok(pinned())))).map_err(unmapped)?;
        let this = Self(instance, published);
        match this.fault() {
            Some(fault) => Err(BenchError::Fault { module: module.name.clone(), fault }),
            None => Ok(this),
        }
    }
}

impl Contestant for Sandboxed {
    fn run(&mut self, batch: Batch) -> u64 {
        self.0.run(batch)
    }

    fn tick(&mut self, tick: Tick) {
        self.0.tick(tick.now, tick.periods, 0);
    }

    fn stop(&mut self, now: Timestamp) {
        self.0.stop(now);
    }

    fn begin_block(&mut self) {
        self.0.begin_block();
    }

    fn take_frames(&mut self, empty: Records) -> Records {
        self.0.take_frames(empty)
    }

    fn take_published(&mut self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.1.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_records(&mut self, empty: Records) -> Records {
        self.0.take_records(empty)
    }

    fn take_patches(&mut self) -> Vec<Patch> {
        self.0.take_patches()
    }

    fn fault(&self) -> Option<String> {
        self.0.incidents().first().map(|incident| format!("{incident:?}"))
    }
}
