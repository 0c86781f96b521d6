//! The output of a native replay: what the module did.

use weir_abi::entry::{ENTRY_POINTS, EntryPoint};
use weir_abi::host::{HOST_FUNCTIONS, HostFunction, HostType};

/// A step of a module in a native replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayStep {
    /// A call begins.
    Call(EntryPoint),
    /// A packet of a batch begins: its number in the capture, from 1.
    Packet(u64),
    /// The module calls a host function.
    HostCall(ReplayCall),
    /// The module has replied to an event of a TCP stream: its own reply, and its reply in the sandbox.
    Reply(i32, i32),
    /// The call returns with this result, or with the mask of packets to drop.
    End(i64),
    /// In the sandbox the call ended with a fault at this point.
    Fault,
    /// The module does something else than in the sandbox: it calls this host function, or with `None`, returns.
    OtherWay(Option<HostFunction>),
}

/// A call of a host function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayCall {
    /// The function.
    pub function: HostFunction,
    /// The arguments in order. Addresses are 0, but those of descriptors.
    pub arguments: Vec<u64>,
    /// The bytes that the function reads. For a record, the row as the module has it.
    pub input: Vec<u8>,
    /// The strings of a record, in the order of its fields that have strings. Strings of fields without a value are empty.
    pub strings: Vec<Vec<u8>>,
}

/// Reads the steps of an output. An output that ends within a step ends before it: the module may have crashed.
#[derive(Clone, Debug)]
pub struct ReplaySteps<'a>(&'a [u8]);

impl<'a> ReplaySteps<'a> {
    /// Reads an output.
    pub fn new(output: &'a [u8]) -> Self {
        Self(output)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_le_bytes)
    }

    fn block(&mut self) -> Option<Vec<u8>> {
        let len = self.u32()? as usize;
        let (block, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(block.to_vec())
    }

    fn function(&mut self) -> Option<HostFunction> {
        let [number] = self.take()?;
        HOST_FUNCTIONS.get(usize::from(number)).map(|known| known.function)
    }

    fn host_call(&mut self) -> Option<ReplayCall> {
        let function = self.function()?;
        let mut call = ReplayCall { function, arguments: Vec::new(), input: Vec::new(), strings: Vec::new() };
        for parameter in function.definition().parameters {
            let argument = match parameter.ty {
                HostType::U32 | HostType::I32 | HostType::U64 | HostType::I64 | HostType::F64 => {
                    self.u64()?
                }
                HostType::Descriptor => self.u64()?,
                HostType::Bytes => {
                    call.input = self.block()?;
                    0
                }
                HostType::Buffer | HostType::CryptoRequest => 0,
            };
            call.arguments.push(argument);
        }
        if function == HostFunction::Emit {
            for _ in 0..self.u32()? {
                call.strings.push(self.block()?);
            }
        }
        Some(call)
    }
}

impl Iterator for ReplaySteps<'_> {
    type Item = ReplayStep;

    fn next(&mut self) -> Option<ReplayStep> {
        let [letter] = self.take()?;
        match letter {
            b'c' => {
                let [entry] = self.take()?;
                ENTRY_POINTS.get(usize::from(entry)).map(|known| ReplayStep::Call(known.entry))
            }
            b'p' => self.u64().map(ReplayStep::Packet),
            b'h' => self.host_call().map(ReplayStep::HostCall),
            b'r' => Some(ReplayStep::Reply(self.i32()?, self.i32()?)),
            b'x' => self.u64().map(|result| ReplayStep::End(result.cast_signed())),
            b'f' => Some(ReplayStep::Fault),
            b'd' => {
                let [number] = self.take()?;
                let function = HOST_FUNCTIONS.get(usize::from(number)).map(|known| known.function);
                Some(ReplayStep::OtherWay(function))
            }
            _ => None,
        }
    }
}
