//! The run of a test in the sandbox: what the module does, as lines, and the trace of its calls for a native replay.

use crate::cmd::run::tables::Tables;
use crate::cmd::test::TestError;
use crate::cmd::test::case::TestCase;
use serde_json::json;
use std::path::PathBuf;
use weir_abi::entry::EntryPoint;
use weir_abi::host::HostFunction;
use weir_abi::{DESCRIPTOR_BYTES, code};
use weir_admission::{Admitted, EntryKind, Name};
use weir_author::native::{NativeScript, ScriptPacket};
use weir_datapath::driver::BatchDriver;
use weir_netio::{Block, Capture, CaptureInput, CaptureNext};
use weir_rows::{JsonRows, utc};
use weir_sandbox::{
    Cache, CompileLimits, Engine, EngineOptions, Instance, LoadedModule, LogLine, TraceStep, TracedCall,
    TracedHostCall,
};
use weir_session::{Record, RecordOrder};
use weir_units::hex;

/// Most bytes of the packets, and of what the module does with them.
const BYTES_MAX: usize = 256 << 20;

/// The run of a test in the sandbox.
#[derive(Debug)]
pub(super) struct SandboxRun {
    /// The effects of the module, a JSON object a line: rows as `weir run --format json` prints them, and others.
    pub(super) lines: Vec<String>,
    /// The calls, without packets.
    pub(super) steps: Vec<TraceStep>,
    /// The calls as a script for a native replay.
    pub(super) script: NativeScript,
    /// Packets of the capture.
    pub(super) packets: u64,
}

/// Starts an engine that traces.
///
/// # Errors
/// The engine does not start.
pub(super) fn tracing_engine() -> Result<Engine, TestError> {
    let options = EngineOptions {
        compile_in_child: Some(CompileLimits::default()),
        traces: true,
        ..EngineOptions::default()
    };
    // Without a cache, each test compiles the module.
    Engine::new(options, Cache::of_user().ok()).map_err(TestError::Load)
}

impl SandboxRun {
    /// Runs a module over the capture of a test.
    ///
    /// # Errors
    /// The capture or a table cannot be read, or the sandbox cannot be prepared.
    pub(super) fn run(
        engine: &Engine,
        program: &LoadedModule,
        case: &TestCase,
        is_replayed: bool,
    ) -> Result<Self, TestError> {
        let admitted = program.admitted();
        let mut tables = Tables::default();
        for (name, file) in &case.tables {
            tables.add(name.clone(), file)?;
        }
        tables.check([admitted].into_iter())?;
        let contents = contents_of(admitted, &case.tables)?;
        // Opening a pipe would wait for its writer.
        if !std::fs::metadata(&case.capture).map_err(TestError::file(&case.capture))?.is_file() {
            return Err(TestError::file(&case.capture)(std::io::Error::other("it is not a regular file")));
        }
        let mut capture = Capture::open(CaptureInput::File(case.capture.clone()))?;
        let instance = Instance::start_with(engine, program, tables.instance_context(admitted))
            .map_err(TestError::Load)?;
        let tick = admitted.tick_period().map(|period| period.0);
        let mut driver = BatchDriver::new(instance, capture.descriptors(), tick)?;
        let mut recorder = Recorder::new(program, &contents, is_replayed);
        recorder.take(&mut driver.instance, None);
        loop {
            let block = match capture.next_block()? {
                CaptureNext::Block(block) => block,
                // No other block is in use.
                CaptureNext::Full | CaptureNext::End => break,
            };
            driver.instance.begin_block();
            driver.map_block(&block)?;
            driver.instance.set_first_packet(block.first_packet());
            for batch in 0..block.batch_count() {
                driver.run(&block, batch, u64::MAX);
                recorder.take(&mut driver.instance, Some(&block));
                if recorder.bytes + recorder.script.len() > BYTES_MAX {
                    return Err(TestError::TooLong(case.capture.clone()));
                }
            }
        }
        while !driver.instance.is_stopped() {
            driver.instance.begin_block();
            driver.stop();
            recorder.take(&mut driver.instance, None);
        }
        let Recorder { lines, steps, script, .. } = recorder;
        let lines = lines.into_iter().map(|line| line.text).collect();
        Ok(Self { lines, steps, script, packets: capture.totals().packets })
    }
}

/// Returns the contents of a module's tables, by their index in the manifest.
fn contents_of(admitted: &Admitted, tables: &[(Name, PathBuf)]) -> Result<Vec<Option<Vec<u8>>>, TestError> {
    let content = |name: &Name| {
        let file = tables.iter().find(|(known, _)| known == name).map(|(_, file)| file);
        file.map(|file| std::fs::read(file).map_err(TestError::file(file))).transpose()
    };
    admitted.manifest().tables.iter().map(|table| content(&table.name)).collect()
}

/// A line, with the packet that it belongs to.
struct Line {
    text: String,
    /// The number of the packet in the capture, from 1.
    packet: Option<u64>,
    /// True if the line stays when the module loses the packet.
    stays: bool,
}

/// Makes lines and the script of the steps of an instance.
struct Recorder<'a> {
    program: &'a LoadedModule,
    rows: Vec<JsonRows>,
    lines: Vec<Line>,
    steps: Vec<TraceStep>,
    script: NativeScript,
    /// The present call, and the number of lines before it.
    call: Option<TracedCall>,
    lines_before: usize,
    /// The number of incidents that have a line.
    incidents: usize,
    /// Packets of the block, for lines, or none.
    packet_buffer: Vec<u8>,
    /// True if the steps and the script are kept, for a native replay.
    is_replayed: bool,
    /// The bytes of lines and steps so far.
    bytes: usize,
}

impl<'a> Recorder<'a> {
    fn new(program: &'a LoadedModule, tables: &[Option<Vec<u8>>], is_replayed: bool) -> Self {
        let manifest = program.admitted().manifest();
        let rows = manifest.streams.iter().map(|stream| JsonRows::new(manifest.name.as_str(), stream, utc));
        Self {
            program,
            rows: rows.collect(),
            lines: Vec::new(),
            steps: Vec::new(),
            script: NativeScript::new(program.admitted(), tables),
            call: None,
            lines_before: 0,
            incidents: 0,
            packet_buffer: Vec::new(),
            is_replayed,
            bytes: 0,
        }
    }

    /// Takes the steps of an instance since the last time. `block` has the packets of its batches.
    fn take(&mut self, instance: &mut Instance, block: Option<&Block>) {
        let mut log = instance.take_log().into_iter();
        let steps = instance.take_trace();
        for (place, step) in steps.iter().enumerate() {
            match step {
                TraceStep::Call(call) => self.begin_call(call, block),
                TraceStep::HostCall(call) => {
                    if self.is_replayed {
                        self.script.answer(call.function, call.result, &call.output);
                        self.bytes +=
                            call.input.len() + call.tail.len() + call.output.len() + size_of::<TraceStep>();
                    }
                    let packet = self.packet_of(call, block);
                    if let Some(text) = self.effect(call, packet, &mut log) {
                        self.bytes += text.len() + size_of::<Line>();
                        self.lines.push(Line { text, packet, stays: call.function == HostFunction::Log });
                    }
                }
                TraceStep::StreamEvent(event) if self.is_replayed => {
                    self.script.stream_event(event.packet, event.reply, &event.event, &event.bytes);
                }
                TraceStep::StreamEvent(_) => {}
                TraceStep::End(result) => {
                    let rest = steps.get(place + 1..).unwrap_or_default();
                    self.end_call(*result, rest, instance, block);
                }
            }
        }
        if self.is_replayed {
            self.steps.extend(steps.into_iter().map(|step| match step {
                // The descriptors are in the script.
                TraceStep::Call(call) => TraceStep::Call(TracedCall { descriptors: Vec::new(), ..call }),
                step => step,
            }));
        }
        // The lines themselves have all that these have.
        instance.take_records(weir_session::Records::default());
        instance.take_frames(weir_session::Records::default());
        instance.take_patches();
    }

    fn begin_call(&mut self, call: &TracedCall, block: Option<&Block>) {
        (self.call, self.lines_before) = (Some(call.clone()), self.lines.len());
        if !self.is_replayed {
            return;
        }
        let (EntryPoint::Packet, Some(block)) = (call.entry, block) else {
            return self.script.call(call.entry, call.arguments, &[], &[]);
        };
        let mask = call.arguments[1];
        let indices: Vec<u32> = (0..u64::BITS).filter(|index| mask >> index & 1 == 1).collect();
        let copies: Vec<Vec<u8>> = indices
            .iter()
            .map(|index| {
                block.copy_packet((call.first + index) as usize, &mut self.packet_buffer);
                std::mem::take(&mut self.packet_buffer)
            })
            .collect();
        let packets: Vec<ScriptPacket<'_>> = indices
            .iter()
            .zip(&copies)
            .map(|(index, bytes)| ScriptPacket {
                index: *index,
                number: block.first_packet() + u64::from(call.first + index) + 1,
                bytes,
            })
            .collect();
        self.script.call(call.entry, call.arguments, &call.descriptors, &packets);
    }

    /// Returns the number of the packet for which the module makes a call of a host function.
    fn packet_of(&self, host_call: &TracedHostCall, block: Option<&Block>) -> Option<u64> {
        let (call, block) = (self.call.as_ref()?, block?);
        if call.entry != EntryPoint::Packet {
            return None;
        }
        let definition = host_call.function.definition();
        let index = if host_call.function == HostFunction::Patch {
            let distance = host_call.arguments[0].wrapping_sub(call.arguments[0]);
            distance / DESCRIPTOR_BYTES as u64
        } else if definition.gets_packet_mask {
            let rest = host_call.arguments.get(definition.parameters.len())?;
            rest.trailing_zeros().into()
        } else {
            // The line belongs to the packet of the line before.
            return self.lines.get(self.lines_before..)?.last()?.packet;
        };
        (index < 64).then(|| block.first_packet() + u64::from(call.first) + index + 1)
    }

    /// Returns the line of an effect; `None` for a call without one.
    fn effect(
        &self,
        call: &TracedHostCall,
        packet: Option<u64>,
        log: &mut impl Iterator<Item = LogLine>,
    ) -> Option<String> {
        let is_done = call
            .result
            .is_some_and(|result| result & u64::from(u32::MAX) == u64::from(code::OK.cast_unsigned()));
        if !is_done {
            return None;
        }
        let manifest = self.program.admitted().manifest();
        let [first, second, ..] = call.arguments;
        let index = usize::try_from(first).unwrap_or(usize::MAX);
        let value = match call.function {
            HostFunction::Emit => {
                let stream = u16::try_from(first).ok()?;
                let record =
                    Record { order: RecordOrder::tick(0), stream, row: &call.input, tail: &call.tail };
                let mut text = Vec::new();
                self.rows.get(index)?.push(&mut text, &record);
                return Some(String::from_utf8_lossy(&text).trim_end().to_owned());
            }
            HostFunction::Patch => json!({ "patch": packet, "offset": second, "bytes": hex(&call.input) }),
            HostFunction::Send => {
                json!({ "send": manifest.outputs.get(index)?.name.as_str(), "frame": hex(&call.input) })
            }
            HostFunction::Publish => {
                json!({ "publish": manifest.tables.get(index)?.name.as_str(), "bytes": hex(&call.input) })
            }
            HostFunction::Log => {
                let line = log.next()?;
                let level = ["error", "warning", "info"].get(usize::from(line.level)).unwrap_or(&"info");
                json!({ "log": level, "text": line.text })
            }
            _ => return None,
        };
        Some(crate::json::line_text(&value))
    }

    /// Ends a call. `rest` are the steps after it.
    fn end_call(
        &mut self,
        result: Option<i64>,
        rest: &[TraceStep],
        instance: &Instance,
        block: Option<&Block>,
    ) {
        if self.is_replayed {
            self.script.end_call(result.is_some());
        }
        let Some(call) = self.call.take() else { return };
        let number = |index: u32| block.map(|block| block.first_packet() + u64::from(index) + 1);
        match result {
            Some(drops) if call.entry == EntryPoint::Packet => {
                for index in (0..u64::BITS).filter(|index| drops >> index & 1 == 1) {
                    let packet = number(call.first + index);
                    let text = crate::json::line_text(&json!({ "drop": packet }));
                    self.lines.push(Line { text, packet, stays: true });
                }
                if let Some(lines) = self.lines.get_mut(self.lines_before..) {
                    lines.sort_by_key(|line| line.packet);
                }
            }
            Some(_) => {}
            None => {
                let incident = instance.incidents().get(self.incidents);
                self.incidents += 1;
                let packet = lost_packet(&call, rest).and_then(|index| number(call.first + index));
                // A batch function loses all of its packets.
                let loses_all = self.program.admitted().info().entry() == EntryKind::Batch;
                let before = self.lines_before;
                let mut index = 0;
                self.lines.retain(|line| {
                    index += 1;
                    index <= before || line.stays || (line.packet != packet && !loses_all)
                });
                // The instance describes the first faults only.
                let fault =
                    incident.map_or("a further fault".to_owned(), |incident| incident.fault.to_string());
                let line = incident.and_then(|incident| self.program.source_line(&incident.fault));
                let line = line.map(|line| format!("{}:{}", line.file, line.line));
                let text = crate::json::line_text(&json!({ "fault": fault, "packet": packet, "line": line }));
                self.lines.push(Line { text, packet, stays: true });
            }
        }
    }
}

/// Returns the index in its batch of the packet that a call has lost by a fault; `None` for a call without packets. The next
/// call for the batch has the packets after the lost one.
fn lost_packet(call: &TracedCall, rest: &[TraceStep]) -> Option<u32> {
    if call.entry != EntryPoint::Packet {
        return None;
    }
    let next = rest.iter().find_map(|step| match step {
        TraceStep::Call(next) if next.entry == EntryPoint::Packet && next.first == call.first => {
            Some(next.arguments[1] & call.arguments[1])
        }
        _ => None,
    });
    let before = match next.unwrap_or(0) {
        0 => call.arguments[1],
        left => call.arguments[1] & ((left & left.wrapping_neg()) - 1),
    };
    before.checked_ilog2()
}
