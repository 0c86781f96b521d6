//! The runs of the kernels in the code of each back end.

use super::CalibrateError;
use super::kernels::Kernel;
use weir_bounds::EntryPoint;
use weir_datapath::driver::BatchDriver;
use weir_netio::{Block, Capture, CaptureInput, CaptureNext};
use weir_node::sessions::tables::publisher_without_readers;
use weir_sandbox::{BatchInput, Engine, EngineOptions, Instance, InstanceContext, LlvmUse, thread_time};
use weir_units::{Nanos, Timestamp};
use {weir_admission::Admitted, weir_session::Records};

/// The input of the kernels: one packet in an arena, so that a kernel can keep the packet.
pub struct KernelInput {
    capture: Capture,
    block: Block,
}

impl KernelInput {
    /// Creates the packet.
    pub fn create() -> Result<Self, CalibrateError> {
        let mut bytes = Vec::new();
        // A pcap file with one Ethernet frame of 60 zero bytes.
        bytes.extend([0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0]);
        [1, 0, 60, 60].iter().for_each(|field: &u32| bytes.extend(field.to_le_bytes()));
        bytes.resize(bytes.len() + 60, 0);
        let as_stream = weir_netio::CaptureOptions { stream: true, ..weir_netio::CaptureOptions::default() };
        let mut capture = Capture::open_with(CaptureInput::Bytes(bytes), as_stream)?;
        match capture.next_block() {
            Ok(CaptureNext::Block(block)) => Ok(Self { capture, block }),
            _ => Err(CalibrateError::NoPacket),
        }
    }
}

/// A kernel in the code of one back end: the sandbox that runs it, and its measurements.
pub struct KernelRun {
    kernel: &'static Kernel,
    /// The sandbox.
    pub driver: BatchDriver,
    /// The packet, for a kernel whose entry point gets packets.
    batch: BatchInput,
    /// The fuel of one call.
    pub fuel: u64,
    /// The rate of each round, in ns for 1000 units of fuel.
    rates: Vec<u64>,
    /// The reason why the kernel does not run in LLVM's code; `None` if it does.
    why_not_llvm: Option<String>,
}

/// A kernel in the code of each back end.
pub struct KernelRuns {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The run in Cranelift's code.
    pub cranelift: KernelRun,
    /// The run in verified code of LLVM, or the reason why there is none; `None` if no module runs in such code here.
    pub llvm: Option<Result<KernelRun, String>>,
}

/// The engines of the back ends.
pub struct BackEndEngines {
    /// The engine for Cranelift's code.
    pub cranelift: Engine,
    /// The engine for verified code of LLVM, or the reason why there is none on this machine.
    pub llvm: Result<Engine, String>,
}

impl BackEndEngines {
    /// Creates the engines.
    pub fn create(options: EngineOptions) -> Result<Self, CalibrateError> {
        let cranelift = Engine::new(EngineOptions { llvm: LlvmUse::Never, ..options }, None)?;
        let llvm = Engine::new(EngineOptions { llvm: LlvmUse::AtLoad, ..options }, None)?;
        let why_not_llvm = llvm.why_not_llvm().map(str::to_owned);
        Ok(Self { cranelift, llvm: why_not_llvm.map_or(Ok(llvm), Err) })
    }
}

impl KernelRuns {
    /// Starts a kernel in the code of each back end.
    pub fn start(
        engines: &BackEndEngines,
        input: &KernelInput,
        kernel: &'static Kernel,
    ) -> Result<Self, CalibrateError> {
        let cranelift = KernelRun::start(&engines.cranelift, input, kernel)?;
        let llvm = match &engines.llvm {
            Ok(engine) => {
                let mut run = KernelRun::start(engine, input, kernel)?;
                Some(run.why_not_llvm.take().map_or(Ok(run), Err))
            }
            Err(_) => None,
        };
        Ok(Self { kernel, cranelift, llvm })
    }

    /// Returns the run in verified code of LLVM, if there is one.
    pub fn in_llvm(&mut self) -> Option<&mut KernelRun> {
        self.llvm.as_mut()?.as_mut().ok()
    }

    /// Calls the kernel in the code of each back end, one after the other. Stores the rates if `is_counted`.
    pub fn measure(&mut self, is_counted: bool) -> Result<(), CalibrateError> {
        self.cranelift.measure(is_counted)?;
        self.in_llvm().map_or(Ok(()), |run| run.measure(is_counted))
    }
}

impl KernelRun {
    fn start(engine: &Engine, input: &KernelInput, kernel: &'static Kernel) -> Result<Self, CalibrateError> {
        let failed = |why: String| CalibrateError::Kernel { name: kernel.name, why };
        let bytes = wat::parse_str(kernel.text()).map_err(|error| failed(error.to_string()))?;
        let admitted = Admitted::admit(bytes, &[]).map_err(|refusal| failed(refusal.to_string()))?;
        let entry = admitted.analysis().entry(kernel.entry);
        let fuel = entry.map(|entry| entry.usage.fuel).filter(|fuel| fuel.is_bounded() && fuel.constant > 0);
        let fuel = fuel.ok_or_else(|| failed("it has no bound".to_owned()))?.constant;
        let publisher =
            publisher_without_readers(admitted.manifest()).map_err(|error| failed(error.to_string()))?;
        let context = InstanceContext { publisher: Some(publisher), ..InstanceContext::default() };
        let module = engine.load(admitted)?;
        let why_not_llvm = module.why_not_llvm().map(str::to_owned);
        let instance = Instance::start_with(engine, &module, context)?;
        let mut driver = BatchDriver::new(instance, input.capture.descriptors(), None)?;
        driver.map_block(&input.block)?;
        let descriptors = input.block.batch(0).guest_address;
        Ok(Self {
            kernel,
            driver,
            batch: BatchInput { descriptors, mask: 1, first: 0 },
            fuel,
            rates: Vec::new(),
            why_not_llvm,
        })
    }

    /// Calls the kernel once, and returns the CPU time that the call took.
    pub fn call(&mut self) -> Result<Nanos, CalibrateError> {
        let instance = &mut self.driver.instance;
        instance.begin_block();
        let begin = thread_time();
        match self.kernel.entry {
            EntryPoint::Packet => _ = instance.run(self.batch),
            _ => instance.tick(Timestamp(0), 1, 0),
        }
        let cpu_time = Nanos(thread_time().0.saturating_sub(begin.0));
        drop(instance.take_records(Records::default()));
        drop(instance.take_frames(Records::default()));
        match instance.incidents().first() {
            Some(incident) => {
                Err(CalibrateError::Kernel { name: self.kernel.name, why: incident.fault.to_string() })
            }
            None => Ok(cpu_time),
        }
    }

    /// Calls the kernel once. Stores the rate, in ns for 1000 units of fuel, if `is_counted`.
    fn measure(&mut self, is_counted: bool) -> Result<(), CalibrateError> {
        let cpu_time = self.call()?;
        if is_counted {
            // Rounded to nearest, at least 1.
            let rate = (cpu_time.0.saturating_mul(1000) + self.fuel / 2) / self.fuel;
            self.rates.push(rate.max(1));
        }
        Ok(())
    }

    /// Returns minimum, median and maximum of the rates, in ns for 1000 units of fuel.
    pub fn rate_spread(&mut self) -> [u64; 3] {
        spread(&mut self.rates)
    }
}

/// Returns the minimum, median and maximum of measured values, and sorts them.
pub fn spread(values: &mut [u64]) -> [u64; 3] {
    values.sort_unstable();
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}
