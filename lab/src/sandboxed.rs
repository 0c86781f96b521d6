//! A build of a module in its sandbox, as `weir run` runs it, for comparison with native builds.

use crate::comparison::{ModuleBuild, PassResult};
use crate::error::{Context, LabError};
use crate::module::Module;
use crate::packets::{Packets, Tick};
use std::sync::{Arc, Mutex, PoisonError};
use weir_abi::code;
use weir_sandbox::{
    BackEnd, BatchInput, CheckMode, Engine, EngineOptions, Instance, InstanceContext, LlvmUse, Pinned,
    TablePublisher, TableVersion,
};
use weir_session::Records;
use weir_units::{Bytes, Timestamp};

/// Both back ends.
pub const BACK_ENDS: [BackEnd; 2] = [BackEnd::Cranelift, BackEnd::Llvm];

/// The use of LLVM by an engine whose modules run in the code of a back end.
pub fn llvm_use(back_end: BackEnd) -> LlvmUse {
    match back_end {
        BackEnd::Cranelift => LlvmUse::Never,
        BackEnd::Llvm => LlvmUse::AtLoad,
    }
}

/// Starts an engine without a cache, whose modules run in the code of a back end. A module without verified code of LLVM runs
/// in that of Cranelift.
pub fn start_engine(back_end: BackEnd, check_mode: CheckMode) -> Result<Engine, LabError> {
    let options = EngineOptions { check_mode, llvm: llvm_use(back_end), ..EngineOptions::default() };
    Ok(Engine::new(options, None)?)
}

/// An instance with mapped packets, and the tables that it published.
#[derive(Debug)]
pub struct Sandboxed {
    instance: Instance,
    published: Arc<Published>,
    /// The reason why the module does not run in verified code of LLVM, if it does not.
    why_not_llvm: Option<String>,
}

/// The tables that the module has published since they were last taken: index in the manifest, and contents.
#[derive(Debug, Default)]
struct Published(Mutex<Vec<(u32, Vec<u8>)>>);

impl TablePublisher for Published {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((table, bytes.to_vec()));
        code::OK
    }
}

impl Sandboxed {
    /// Loads and starts a module, and maps the packets into its memory.
    pub fn start(engine: &Engine, module: &Module, packets: &Packets) -> Result<Self, LabError> {
        let program = engine.load(module.admit()?)?;
        let mut tables = Vec::new();
        for (index, bytes) in &module.tables {
            let version = TableVersion::new(1, bytes).context("a table")?;
            tables.resize(tables.len().max(index + 1), None);
            tables[*index] = Some(Arc::new(version));
        }
        let published: Arc<Published> = Arc::default();
        let publisher: Arc<dyn TablePublisher> = Arc::clone(&published) as _;
        let context = InstanceContext { tables, publisher: Some(publisher), ..InstanceContext::default() };
        let mut instance = Instance::start_with(engine, &program, context)?;
        let mapping_failed = |error| LabError::failed(packets.path().display(), error);
        instance.map_descriptors(packets.descriptors()).map_err(mapping_failed)?;
        instance.map_packets(packets.capture()).map_err(mapping_failed)?;
        // Kept packets need no memory of their own, because the capture stays mapped.
        let pinned =
            || Pinned { guard: Box::new(()), pieces: 0..0, piece_size: Bytes(0), pieces_max: u32::MAX };
        instance.set_packet_pinner(Some(Box::new(move |_, _| Ok(pinned())))).map_err(mapping_failed)?;
        let why_not_llvm = program.why_not_llvm().map(str::to_owned);
        let this = Self { instance, published, why_not_llvm };
        match this.fault() {
            Some(fault) => Err(LabError::failed(&module.name, fault)),
            None => Ok(this),
        }
    }
}

impl Sandboxed {
    /// Returns the instance, which must run in verified code of LLVM.
    ///
    /// # Errors
    /// The module runs in Cranelift's code.
    pub fn in_verified_code(self) -> Result<Self, LabError> {
        match self.why_not_llvm {
            None => Ok(self),
            Some(why) => Err(LabError::failed("verified code", why)),
        }
    }
}

impl ModuleBuild for Sandboxed {
    fn run(&mut self, batch: BatchInput) -> u64 {
        self.instance.run(batch)
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

    fn take_output(&mut self, empty: Records) -> PassResult {
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
