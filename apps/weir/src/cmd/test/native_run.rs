//! The native replay of a test: compares what the module does natively with what it did in the sandbox.

use crate::cmd::test::TestError;
use crate::cmd::test::cut_packets::CutPackets;
use crate::cmd::test::sandbox_run::SandboxRun;
use std::time::Duration;
use weir_abi::code;
use weir_abi::entry::EntryPoint;
use weir_abi::host::{HostFunction, HostType};
use weir_admission::Admitted;
use weir_author::native::{NativeBuild, NativeEnd, Played, ReplayCall, ReplayStep, ReplaySteps};
use weir_rows::{JsonRows, utc};
use weir_sandbox::{TraceStep, TracedHostCall};
use weir_session::{Record, RecordOrder, Records};
use weir_units::hex;

/// Most bytes of a message's bytes that are shown.
const SHOWN_BYTES: usize = 64;

/// Replays the calls of a sandbox natively. Returns a description of the first difference or fault; `None` if there is none. With
/// `cut`, the packets are cut short, and the lines that run do not count for the coverage.
///
/// # Errors
/// The program cannot be run.
pub(super) fn replay(
    build: &NativeBuild,
    admitted: &Admitted,
    run: &SandboxRun,
    cut: Option<&CutPackets>,
    limit: Duration,
) -> Result<Option<String>, TestError> {
    let played = build.play(&run.script, limit, cut.is_none())?;
    Ok(Comparison::new(admitted, &run.steps, cut).compare(&played))
}

/// Compares the steps of a native replay with those of the sandbox.
struct Comparison<'a> {
    admitted: &'a Admitted,
    /// The sandbox's steps that have not been compared.
    steps: std::iter::Peekable<Box<dyn Iterator<Item = &'a TraceStep> + 'a>>,
    /// The present call and packet.
    entry: Option<EntryPoint>,
    packet: Option<u64>,
    /// The packets of the run, if they are cut short.
    cut: Option<&'a CutPackets>,
}

impl<'a> Comparison<'a> {
    fn new(admitted: &'a Admitted, steps: &'a [TraceStep], cut: Option<&'a CutPackets>) -> Self {
        // The player answers calls that read parameters itself.
        let reads_parameter = |step: &&TraceStep| {
            use HostFunction::{ParamBytes, ParamFloat, ParamInt};
            !matches!(step, TraceStep::HostCall(call) if matches!(call.function, ParamInt | ParamFloat | ParamBytes))
        };
        let steps: Box<dyn Iterator<Item = &'a TraceStep>> = Box::new(steps.iter().filter(reads_parameter));
        Self { admitted, steps: steps.peekable(), entry: None, packet: None, cut }
    }

    fn compare(mut self, played: &Played) -> Option<String> {
        for step in ReplaySteps::new(&played.output) {
            if let Some(difference) = self.compare_step(step) {
                return Some(format!("{}: {difference}", self.place()));
            }
        }
        match &played.end {
            NativeEnd::Done => None,
            NativeEnd::OtherWay => {
                Some(format!("{}: the module takes another way than in the sandbox", self.place()))
            }
            NativeEnd::Fault(report) => {
                Some(format!("{}: a fault\n{report}{}", self.place(), explained(report)))
            }
            NativeEnd::TimeOut(limit) => Some(format!(
                "{}: not done after {} s, the limit of --limit; is there an endless loop?",
                self.place(),
                limit.as_secs_f32()
            )),
        }
    }

    /// Returns the present packet or call.
    fn place(&self) -> String {
        match (self.entry, self.packet) {
            (Some(EntryPoint::Packet), Some(packet)) => {
                self.cut.map_or_else(|| format!("packet {packet}"), |cut| cut.name(packet))
            }
            (Some(entry), _) => entry.name().to_owned(),
            (None, _) => "before the first call".to_owned(),
        }
    }

    fn compare_step(&mut self, step: ReplayStep) -> Option<String> {
        match step {
            ReplayStep::Call(entry) => {
                (self.entry, self.packet) = (Some(entry), None);
                self.steps.next();
                None
            }
            ReplayStep::Packet(number) => {
                self.packet = Some(number);
                None
            }
            ReplayStep::HostCall(native) => {
                // The player stops before another step.
                let is_same = |step: &&TraceStep| matches!(step, TraceStep::HostCall(call) if call.function == native.function);
                match self.steps.next_if(is_same) {
                    Some(TraceStep::HostCall(sandbox)) => self.compare_call(&native, sandbox),
                    _ => None,
                }
            }
            ReplayStep::Reply(native, sandbox) => {
                self.steps.next();
                (native != sandbox)
                    .then(|| format!("weir_stream returns {native} natively, and {sandbox} in the sandbox"))
            }
            ReplayStep::End(native) => {
                let Some(TraceStep::End(sandbox)) = self.steps.next() else { return None };
                let sandbox = (*sandbox)?;
                if native == sandbox {
                    return None;
                }
                Some(match self.entry {
                    Some(EntryPoint::Packet) => {
                        self.packet = None;
                        format!(
                            "natively the packets {native:#x} of a batch are dropped, in the sandbox {sandbox:#x}"
                        )
                    }
                    _ => format!("returns {native} natively, and {sandbox} in the sandbox"),
                })
            }
            ReplayStep::Fault => None,
            ReplayStep::OtherWay(function) => {
                let native =
                    function.map_or("returns".to_owned(), |function| format!("calls `{}`", function.name()));
                let sandbox = match self.steps.peek() {
                    Some(TraceStep::HostCall(call)) => format!("calls `{}`", call.function.name()),
                    Some(TraceStep::StreamEvent(_)) => "gets an event of a TCP stream".to_owned(),
                    Some(TraceStep::End(Some(_)) | TraceStep::Call(_)) | None => "returns".to_owned(),
                    Some(TraceStep::End(None)) => "faults".to_owned(),
                };
                Some(format!("natively the module {native}, where in the sandbox it {sandbox}"))
            }
        }
    }

    fn compare_call(&self, native: &ReplayCall, sandbox: &TracedHostCall) -> Option<String> {
        let definition = native.function.definition();
        for ((parameter, native_argument), argument) in
            definition.parameters.iter().zip(&native.arguments).zip(&sandbox.arguments)
        {
            let is_same = match parameter.ty {
                HostType::U32 | HostType::I32 | HostType::Descriptor => {
                    low(*native_argument) == low(*argument)
                }
                HostType::U64 | HostType::I64 | HostType::F64 => native_argument == argument,
                HostType::Bytes | HostType::Buffer | HostType::CryptoRequest => true,
            };
            if !is_same {
                return Some(format!(
                    "`{}` gets {} = {native_argument} natively, and {argument} in the sandbox",
                    definition.name, parameter.name
                ));
            }
        }
        let is_done = sandbox.result.is_some_and(|result| low(result).cast_signed() == code::OK);
        if native.function == HostFunction::Emit {
            return if is_done { self.compare_rows(native, sandbox) } else { None };
        }
        // Of a message that is too long, and of bytes that are refused for their length, the sandbox reads less.
        let is_cut = native.function == HostFunction::Log
            || sandbox.result.is_none_or(|result| low(result).cast_signed() < 0);
        let len = if is_cut { sandbox.input.len() } else { native.input.len() };
        (native.input.get(..len) != Some(sandbox.input.as_slice())).then(|| {
            format!(
                "`{}` gets other bytes:\n  natively        {}\n  in the sandbox  {}",
                definition.name,
                shown(&native.input),
                shown(&sandbox.input)
            )
        })
    }

    /// Compares a record with that of the sandbox, whose row is normalised.
    fn compare_rows(&self, native: &ReplayCall, sandbox: &TracedHostCall) -> Option<String> {
        let manifest = self.admitted.manifest();
        let index = usize::try_from(*native.arguments.first()?).ok()?;
        let stream = manifest.streams.get(index)?;
        let number = u16::try_from(index).ok()?;
        let mut records = Records::default();
        records.begin(RecordOrder::tick(0), number, &native.input);
        stream.normalise(records.last_row());
        let fields = stream.fields.iter().filter(|field| field.ty.is_indirect());
        for (field, string) in fields.zip(&native.strings) {
            if !field.is_null(&native.input) {
                records.append_tail(field.offset, string);
            }
        }
        let native = records.iter().next()?;
        if (native.row, native.tail) == (sandbox.input.as_slice(), sandbox.tail.as_slice()) {
            return None;
        }
        let rows = JsonRows::new(manifest.name.as_str(), stream, utc);
        let text = |row, tail| {
            let mut text = Vec::new();
            rows.push(&mut text, &Record { order: RecordOrder::tick(0), stream: number, row, tail });
            String::from_utf8_lossy(&text).trim_end().to_owned()
        };
        Some(format!(
            "another row:\n  natively        {}\n  in the sandbox  {}",
            text(native.row, native.tail),
            text(&sandbox.input, &sandbox.tail)
        ))
    }
}

/// Returns what a report of AddressSanitizer means for a module, behind a line feed; nothing for other reports.
fn explained(report: &str) -> &'static str {
    if report.contains("use-after-poison") {
        "\nThe module reads memory that is not its own: bytes behind the captured ones of a packet (cap_len, payload_len), or a \
         packet of an earlier call, which it has not kept."
    } else if report.contains("SEGV") {
        "\nThe address is in no packet and in no memory of the module."
    } else {
        ""
    }
}

/// Returns bytes as hexadecimal digits, shortened.
fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES) {
        Some(begin) if bytes.len() > SHOWN_BYTES => format!("{}… ({} bytes)", hex(begin), bytes.len()),
        _ => hex(bytes),
    }
}

/// Returns the lower half of a register.
#[expect(clippy::cast_possible_truncation, reason = "the upper half has no meaning")]
const fn low(register: u64) -> u32 {
    register as u32
}
