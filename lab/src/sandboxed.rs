//! A module in its sandbox, as `weir run` runs it.

use crate::BenchError;
use crate::contest::Contestant;
use crate::module::Module;
use crate::packets::{Packets, Tick};
use weir_sandbox::{Batch, Engine, Instance, Patch};
use weir_session::Records;
use weir_units::Timestamp;

/// An instance that packets are mapped for.
#[derive(Debug)]
pub struct Sandboxed(Instance);

impl Sandboxed {
    /// Loads and starts a module, and maps the packets.
    ///
    /// # Errors
    /// Where it cannot be loaded, or does not start.
    pub fn start(engine: &Engine, module: &Module, packets: &Packets) -> Result<Self, BenchError> {
        let program = engine.load(module.admit()?)?;
        let mut instance = Instance::start(engine, &program)?;
        let unmapped = |source| BenchError::File { path: packets.path().to_owned(), source };
        instance.map_descriptors(packets.descriptors()).map_err(unmapped)?;
        instance.map_packets(packets.capture()).map_err(unmapped)?;
        let this = Self(instance);
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
