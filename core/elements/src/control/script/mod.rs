//! `Script` and `DriverManager`: small programs that call handlers.

mod expand;
mod functions;
mod instruction;
mod machine;
mod numbers;
mod signals;

use instruction::{ScriptEnd, ScriptProgram};
use machine::{ScriptCall, ScriptMachine};
pub use numbers::general;
use weir_graph::arguments::text::{shift_word, split_words};
use weir_graph::arguments::{ArgumentErrors, RawArgument};
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, HandlerDefinition, OrderDependence, Reason, TextOutput,
};

/// The manual of the language.
macro_rules! manual {
    ($first:literal) => {
        concat!(
            $first,
            "\n\nEach argument is an instruction. They are executed one after the other.\n\n",
            "Instructions with texts; with a `q` behind the name, a layer of quotes is removed from the text:\n",
            "  set VAR TEXT       sets a variable\n",
            "  init VAR TEXT      sets a variable once, when the graph starts\n",
            "  export VAR [TEXT]  as init, and the variable can be read as a handler\n",
            "  print [>FILE | >>FILE] [TEXT | HANDLER]   writes a line to standard output, or to a file that `>` makes anew. \
A text that begins with a letter is a handler\n",
            "  printn ...         as print, without the end of the line\n",
            "  save HANDLER [FILE], append HANDLER [FILE]   as print to a file\n",
            "  read HANDLER       writes the name and the value of a handler to standard error\n",
            "  write HANDLER [VALUE]   calls a write handler; then `$?` is 0, or -1 if it failed\n",
            "  return [VALUE]     ends the script with a value\n",
            "  error [MESSAGE]    ends the script with an error\n\n",
            "Instructions that wait:\n",
            "  pause [N]          waits for N calls of the handler step. Also: wait, wait_step, wait_stop\n",
            "  wait TIME          waits for a time, or a step. Also: wait_time, wait_for\n\n",
            "Instructions that jump:\n",
            "  label LABEL\n",
            "  goto LABEL [CONDITION]   also to loop, end, exit, stop and error\n",
            "  loop               begins again\n",
            "  end, exit          end the script. In TYPE PACKET, end sends the packet to output 0, exit discards it\n",
            "  stop               ends the script, and stops the driver\n\n",
            "In texts, `$x` and `${x}` are the values of variables, and `$(HANDLER ARGUMENT)` is that of a handler, without an \
element one of the script itself: `$(add $x 1)`. `$args`, `$1`, `$2`, `$#` are the arguments of the call, `$0` is the \
name of the called handler, `$write` is true in a write handler, `$input` is the input of the packet, `$$` is the process.\n\n",
            "A script that executes 100000 instructions or makes 4 MiB of text without a wait is disabled, with an error. A \
value has at most 64 KiB, a script at most 1024 variables.\n\n",
            "Arguments:\n",
            "  TYPE  ACTIVE: starts with the graph. PASSIVE: is started by the handler run. PACKET: runs for each packet, and \
returns the output. PROXY: runs for any handler. DRIVER: runs when the driver is to stop. SIGNAL NAME...: \
runs when the program gets one of these signals of the system, such as HUP; it waits for the next one when it has ended, \
but not after exit. Default: PACKET with ports, else ACTIVE\n\n",
            "Handlers:\n",
            "  run, step, goto    start the script, pass its wait, go to a label\n",
            "  get, set, shift    the value of a variable; sets it; removes its first word and returns it\n",
            "  add sub mul div idiv min max mod rem neg abs eq ne lt le gt ge not and or nand nor if in first sprintf random \
length unquote readable writable now htons htonl ntohs ntohl cat catq kill   functions of a text. cat and catq read a file, `kill SIGNAL PROCESS...` sends a signal; only the script \
itself can call these three"
        )
    };
}

/// The class of scripts.
pub static SCRIPT: ElementClass = ElementClass {
    name: "Script",
    ports: "-/-",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E7,
    effects: Effects::CONTROL
        .and(Effects::TERMINAL)
        .and(Effects::FILES)
        .and(Effects::CLOCK)
        .and(Effects::RANDOM)
        .and(Effects::SHARED),
    order: OrderDependence::Ordered,
    manual: manual!("runs a small program that calls handlers\n\nScript(INSTRUCTION, ... [, keyword TYPE])"),
    build: |cx| build(cx, None),
};

/// The class of scripts that decide when the driver stops.
pub static DRIVER_MANAGER: ElementClass = ElementClass {
    name: "DriverManager",
    ports: "0/0",
    manual: manual!(
        "decides when the driver stops\n\nDriverManager(INSTRUCTION, ...)\n\nA Script of TYPE DRIVER. When an element \
asks the driver to stop, the script takes a step instead. The driver stops when the script ends, or stops itself. There \
is at most one in a graph."
    ),
    build: |cx| build(cx, Some(ScriptType::Driver)),
    ..SCRIPT
};

/// The cause of a script's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptType {
    Active,
    Passive,
    Packet,
    Proxy,
    Driver,
    Signal,
}

fn build(cx: &mut BuildContext<'_>, default: Option<ScriptType>) -> Result<BuiltElement, ArgumentErrors> {
    let ports = cx.ports();
    let (inputs, outputs) = (ports.sources.len(), ports.targets.len());
    let mut args = cx.arguments();
    let words: Option<RawArgument> = args.keyword("TYPE").optional();
    let (word, numbers) = match &words {
        Some(RawArgument(words)) => {
            let (word, numbers) = shift_word(words);
            (Some(word), numbers)
        }
        None => (None, ""),
    };
    let mut signals = Vec::new();
    let by_ports = if inputs + outputs > 0 { ScriptType::Packet } else { ScriptType::Active };
    let kind = match word {
        None => default.unwrap_or(by_ports),
        Some("ACTIVE") => ScriptType::Active,
        Some("PASSIVE") => ScriptType::Passive,
        Some("PACKET" | "PUSH") => ScriptType::Packet,
        Some("PROXY") => ScriptType::Proxy,
        Some("DRIVER") => ScriptType::Driver,
        Some("SIGNAL") if !numbers.is_empty() => {
            for word in split_words(numbers) {
                match signals::handled_signal(word) {
                    Ok(number) => signals.push(number),
                    Err(reason) => args.error("TYPE", reason),
                }
            }
            ScriptType::Signal
        }
        Some(_) => {
            args.error(
                "TYPE",
                "expected ACTIVE, PASSIVE, PACKET, PROXY, DRIVER, or SIGNAL with names of signals",
            );
            by_ports
        }
    };
    if kind != ScriptType::Signal && !numbers.is_empty() {
        args.error("TYPE", "expected one word");
    }
    if kind == ScriptType::Packet && inputs == 0 {
        args.error("TYPE", "a script of type PACKET has inputs");
    } else if kind != ScriptType::Packet && inputs + outputs > 0 {
        args.error("TYPE", "only a script of type PACKET has ports");
    }
    let program = ScriptProgram::read(&args.rest(), kind == ScriptType::Driver);
    let program = program.unwrap_or_else(|reasons| {
        reasons.into_iter().for_each(|reason| args.error("", reason));
        ScriptProgram::default()
    });
    args.end()?;
    Ok(BuiltElement::emitting(Script { machine: ScriptMachine::new(kind, program), signals }))
}

struct Script {
    machine: ScriptMachine,
    /// The signals of the system for which it waits.
    signals: Vec<i32>,
}

const fn handler(name: &'static str, reads: bool, writes: bool) -> HandlerDefinition {
    HandlerDefinition { name, reads, writes, measure: None, description: "see the manual" }
}

/// The handlers that each script has.
static HANDLERS: &[HandlerDefinition] = &{
    let mut all = [handler("run", true, true); 42];
    let first = [
        handler("run", true, true),
        handler("step", false, true),
        handler("goto", false, true),
        handler("get", true, false),
        handler("set", false, true),
        handler("shift", true, false),
    ];
    let mut index = 0;
    while index < first.len() {
        all[index] = first[index];
        index += 1;
    }
    let mut function = 0;
    while function < functions::FUNCTIONS.len() {
        all[index] = handler(functions::FUNCTIONS[function], true, false);
        index += 1;
        function += 1;
    }
    assert!(index == all.len());
    all
};

impl Script {
    fn wait_for_signals(&self, cx: &mut ElementContext<'_>) {
        for number in &self.signals {
            cx.services.wait_for_signal(*number, cx.element());
        }
    }

    /// Writes the errors of a run to standard error. A script that has ended waits for its signals again.
    fn report(&mut self, cx: &mut ElementContext<'_>) {
        if self.machine.take_end().is_some_and(|end| end != ScriptEnd::Exit) {
            self.wait_for_signals(cx);
        }
        let errors = self.machine.take_errors();
        if errors.is_empty() {
            return;
        }
        let name = cx.read_own_name();
        let lines: String = errors.iter().map(|error| format!("  {error}\n")).collect();
        let text = format!("While executing '{name}':\n{lines}");
        cx.services.system.write_text(TextOutput::Error, &text);
    }

    /// Returns the value of a run that a handler started.
    fn result(
        &mut self,
        value: Result<String, Reason>,
        cx: &mut ElementContext<'_>,
    ) -> Result<String, Reason> {
        if value.is_err() {
            if self.machine.take_end().is_some() {
                self.wait_for_signals(cx);
            }
            let errors = self.machine.take_errors();
            return Err(if errors.is_empty() {
                "the script ended with an error".to_owned()
            } else {
                errors.join("; ")
            });
        }
        self.report(cx);
        value
    }

    /// Runs the script for a packet, and returns the output.
    fn run_for(&mut self, input: usize, cx: &mut ElementContext<'_>) -> Option<usize> {
        self.machine.set_input(input);
        let value = self.machine.run_from_start(ScriptCall::default(), cx);
        self.report(cx);
        crate::values::read::<u32>(&value.unwrap_or_default()).ok().map(|output| output as usize)
    }
}

impl Element for Script {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if self.machine.kind == ScriptType::Driver && !cx.services.manage_stops(cx.element()) {
            return Err("there is another script that decides when the driver stops".to_owned());
        }
        self.wait_for_signals(cx);
        self.machine.begin(cx);
        let errors = self.machine.take_errors();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n  ")) }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        _ = self.machine.step(1, false, ScriptCall::default(), cx);
        self.report(cx);
    }

    fn handlers(&self) -> &'static [HandlerDefinition] {
        HANDLERS
    }

    fn exported_handlers(&self) -> &[String] {
        self.machine.exports()
    }

    fn read_handler(
        &mut self,
        name: &str,
        argument: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        if let Some(value) = self.machine.own_value(name, argument, cx) {
            return Some(value);
        }
        if name != "run"
            && (self.machine.kind != ScriptType::Proxy || !HANDLERS.iter().all(|it| it.name != name))
        {
            return None;
        }
        let call = ScriptCall { handler: name.to_owned(), arguments: argument.to_owned(), is_write: false };
        let value = self.machine.run_from_start(call, cx);
        Some(self.result(value, cx))
    }

    fn write_handler(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        let call = ScriptCall { handler: name.to_owned(), arguments: value.to_owned(), is_write: true };
        let result = match name {
            "set" => return Some(self.machine.set_by_handler(value).map(|()| String::new())),
            "step" if value.starts_with("signal ") && self.machine.kind == ScriptType::Signal => {
                let value = self.machine.run_from_start(ScriptCall::default(), cx);
                self.report(cx);
                return Some(value);
            }
            "step" if value == "router" => self.machine.step(1, true, ScriptCall::default(), cx),
            "step" => match if value.is_empty() { Ok(1) } else { crate::values::read::<u32>(value) } {
                Ok(steps) => self.machine.step(steps, false, ScriptCall::default(), cx),
                Err(reason) => return Some(Err(reason)),
            },
            "goto" => match self.machine.go_to(value) {
                Ok(()) => self.machine.step(0, false, ScriptCall::default(), cx),
                Err(reason) => return Some(Err(reason)),
            },
            "run" => self.machine.run_from_start(call, cx),
            _ if self.machine.kind == ScriptType::Proxy && HANDLERS.iter().all(|it| it.name != name) => {
                self.machine.run_from_start(call, cx)
            }
            _ => return None,
        };
        Some(self.result(result, cx))
    }
}

impl EmittingElement for Script {
    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        match self.run_for(input, cx) {
            Some(output) => cx.emit_or_discard(output, packet),
            None => cx.services.pool.discard(packet),
        }
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let packet = cx.pull(0)?;
        match self.run_for(0, cx) {
            Some(0) => return Some(packet),
            Some(output) => cx.emit_or_discard(output, packet),
            None => cx.services.pool.discard(packet),
        }
        None
    }
}
