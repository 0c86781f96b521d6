//! Handlers: names under which elements and the graph give values and take commands.
//!
//! `ELEMENT.HANDLER` names a handler of an element, and a name without a dot one of the graph. [`OF_ELEMENTS`],
//! [`OF_TASKS`] and [`OF_GRAPHS`] are the handlers that all of them have.

use super::context::ElementContext;
use super::element::{HandlerDefinition, Reason};
use super::measures::MEASURES;
use super::threads::ThreadedGraph;
use crate::control::{HandlerAction, HandlerCall};
use crate::language::{FlatConfiguration, FlatLayout, Requirement};
use crate::nearest::suggestion;
use std::fmt::Write;

/// The kind of error of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerFault {
    /// No element has this name.
    NoElement,
    /// There is no handler of this name.
    NoHandler,
    /// The handler can only be written, or only be read.
    OtherDirection,
    /// The caller may only read.
    NotPermitted,
    /// The handler does not take the value, or has none.
    Failed,
    /// The graph has ended.
    NoGraph,
}

/// An error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct HandlerError {
    /// The kind.
    pub fault: HandlerFault,
    /// The reason.
    pub text: Reason,
}

impl From<Reason> for HandlerError {
    fn from(text: Reason) -> Self {
        Self { fault: HandlerFault::Failed, text }
    }
}

const fn definition(
    name: &'static str,
    reads: bool,
    writes: bool,
    description: &'static str,
) -> HandlerDefinition {
    HandlerDefinition { name, reads, writes, measure: None, description }
}

/// The handlers that every element has.
const OF_ELEMENTS: &[HandlerDefinition] = &[
    definition("name", true, false, "the name"),
    definition("class", true, false, "the class"),
    definition("config", true, false, "the arguments"),
    definition("ports", true, false, "the ports, and what they are connected to"),
    definition("handlers", true, false, "the names of all handlers"),
];

/// The handlers that every element with a task has.
const OF_TASKS: &[HandlerDefinition] = &[
    definition("scheduled", true, true, "true if the task is scheduled"),
    definition("tickets", true, true, "the task's tickets"),
];

/// The handlers of a graph.
const OF_GRAPHS: &[HandlerDefinition] = &[
    definition("version", true, false, "the version of weir"),
    definition("driver", true, false, "the kind of driver, as Click names it"),
    definition("config", true, false, "the text of the configuration"),
    definition("flatconfig", true, false, "the configuration without compound elements"),
    definition("requirements", true, false, "the packages that the configuration requires"),
    definition("packages", true, false, "the loaded packages: none"),
    definition("list", true, false, "the number of elements, and their names"),
    definition("classes", true, false, "the classes of the elements"),
    definition("handlers", true, false, "the names of all handlers of the graph"),
    definition("errors", true, false, "the errors of the latest hotconfig"),
    definition(MEASURES, true, false, "the counters and levels of all elements"),
    definition("stop", false, true, "stops the driver"),
    definition(REPLACES, false, true, "replaces the graph by another configuration"),
];

/// The handler that exists only in a graph that can be replaced.
pub const REPLACES: &str = "hotconfig";

impl HandlerCall {
    /// Returns the call of a handler, with the value behind a space.
    pub fn of(action: HandlerAction, call: &str) -> Self {
        let (name, value) = split(call);
        Self { action, name: name.to_owned(), value: value.to_owned() }
    }
}

/// Reads a handler, with an argument behind a space.
pub(super) fn read(cx: &mut ElementContext<'_>, call: &str) -> Result<String, HandlerError> {
    let (name, argument) = split(call);
    read_named(cx, name, argument)
}

/// Writes a handler, with the value behind a space.
pub(super) fn write(cx: &mut ElementContext<'_>, call: &str) -> Result<String, HandlerError> {
    let (name, value) = split(call);
    write_named(cx, name, value)
}

/// Calls a handler for another program, or for another thread.
pub(super) fn call(cx: &mut ElementContext<'_>, call: &HandlerCall) -> Result<String, HandlerError> {
    let HandlerCall { action, name, value } = call;
    // As in Click, `.NAME` and `0.NAME` are handlers of the graph.
    let name = name.strip_prefix("0.").or(name.strip_prefix('.')).unwrap_or(name);
    // An element can be called by its number, from 1 on.
    let numbered = name.split_once('.').and_then(|(number, handler)| {
        let index = number.parse::<usize>().ok()?.checked_sub(1)?;
        Some(format!("{}.{handler}", cx.graph.declared.get(index)?.name))
    });
    let name = numbered.as_deref().unwrap_or(name);
    match action {
        HandlerAction::Read => read_named(cx, name, value),
        HandlerAction::Write => write_named(cx, name, value),
        HandlerAction::CheckRead => check(cx, name, true).map(|()| String::new()),
        HandlerAction::CheckWrite => check(cx, name, false).map(|()| String::new()),
    }
}

/// Reads a handler.
pub(super) fn read_named(
    cx: &mut ElementContext<'_>,
    name: &str,
    argument: &str,
) -> Result<String, HandlerError> {
    let Some((element, handler)) = name.rsplit_once('.') else {
        return match read_global(cx, name) {
            Some(text) => Ok(text),
            None => Err(no_handler(name, name, &of_graph(cx), OwnHandlers::default(), true)),
        };
    };
    let index = find(cx, element)?;
    if let Some(result) = super::threads::call_elsewhere(cx, index, handler, argument, HandlerAction::Read) {
        return result;
    }
    if let Some(text) = read_common(cx, index, handler) {
        return Ok(text);
    }
    let result = cx.with_element(index, |it, cx| it.element().read_handler(handler, argument.trim(), cx));
    match result {
        Some(Some(result)) => Ok(result?),
        Some(None) => {
            let all = all_handlers(cx, index);
            Err(no_handler(name, handler, &all, OwnHandlers::of(cx, index), true))
        }
        None => Err(busy(element)),
    }
}

/// Writes a handler.
pub(super) fn write_named(
    cx: &mut ElementContext<'_>,
    name: &str,
    value: &str,
) -> Result<String, HandlerError> {
    let Some((element, handler)) = name.rsplit_once('.') else {
        return match name {
            "stop" => {
                cx.services.stop();
                Ok(String::new())
            }
            REPLACES if can_be_replaced(cx) => Ok(super::replace::replace(cx, value)?),
            _ => Err(no_handler(name, name, &of_graph(cx), OwnHandlers::default(), false)),
        };
    };
    let value = value.trim();
    let index = find(cx, element)?;
    if let Some(result) = super::threads::call_elsewhere(cx, index, handler, value, HandlerAction::Write) {
        return result;
    }
    if let Some(result) = write_task(cx, index, handler, value) {
        result?;
        return Ok(String::new());
    }
    if handler == "config" && can_reconfigure(cx, index) {
        super::replace::reconfigure(cx, index, value)?;
        return Ok(String::new());
    }
    let result = cx.with_element(index, |it, cx| {
        let result = it.element().write_handler(handler, value, cx);
        // An example is a Counter that calls a handler from now on.
        let effects = it.element().effects().filter(|effects| *effects != cx.graph.effects[index]);
        cx.services.changed_effects.extend(effects.map(|effects| (index, effects)));
        result
    });
    match result {
        Some(Some(result)) => Ok(result?),
        Some(None) => {
            let all = all_handlers(cx, index);
            Err(no_handler(name, handler, &all, OwnHandlers::of(cx, index), false))
        }
        None => Err(busy(element)),
    }
}

/// Checks that a handler exists, and can be read or written.
fn check(cx: &mut ElementContext<'_>, name: &str, is_read: bool) -> Result<(), HandlerError> {
    let (handler, all, own) = match name.rsplit_once('.') {
        None => (name, of_graph(cx), OwnHandlers::default()),
        Some((element, handler)) => {
            let index = find(cx, element)?;
            (handler, all_handlers(cx, index), OwnHandlers::of(cx, index))
        }
    };
    let is_it = |it: &HandlerDefinition| it.name == handler && if is_read { it.reads } else { it.writes };
    let is_there = all.iter().any(is_it) || own.names(is_read).any(|it| it == handler);
    if is_there { Ok(()) } else { Err(no_handler(name, handler, &all, own, is_read)) }
}

fn split(call: &str) -> (&str, &str) {
    let call = call.trim();
    call.split_once(char::is_whitespace).map_or((call, ""), |(name, rest)| (name, rest.trim()))
}

fn find(cx: &ElementContext<'_>, element: &str) -> Result<usize, HandlerError> {
    let index = cx.graph.by_name(element).or_else(|| cx.graph.find(cx.this, element));
    index.ok_or_else(|| {
        let names = cx.graph.declared.iter().map(|it| &*it.name);
        let text = format!("no element named '{element}'{}", suggestion(element, names));
        HandlerError { fault: HandlerFault::NoElement, text }
    })
}

fn busy(element: &str) -> HandlerError {
    format!("element '{element}' is busy: it calls this handler itself").into()
}

fn can_reconfigure(cx: &mut ElementContext<'_>, index: usize) -> bool {
    cx.elements[index].as_mut().is_some_and(|it| it.element().can_reconfigure())
}

/// Returns true if another configuration can take the place of the graph.
fn can_be_replaced(cx: &ElementContext<'_>) -> bool {
    cx.services.replacement.is_some() || threaded(cx).is_some_and(|it| it.replacement_errors().is_some())
}

/// Returns the facts that the threads of the graph share, if it has some.
fn threaded<'a>(cx: &'a ElementContext<'_>) -> Option<&'a ThreadedGraph> {
    Some(&cx.services.threads.as_ref()?.part.graph)
}

fn of_graph(cx: &ElementContext<'_>) -> Vec<HandlerDefinition> {
    let is_there = |it: &&HandlerDefinition| it.name != REPLACES || can_be_replaced(cx);
    OF_GRAPHS.iter().filter(is_there).copied().collect()
}

fn all_handlers(cx: &mut ElementContext<'_>, index: usize) -> Vec<HandlerDefinition> {
    let mut all = OF_ELEMENTS.to_vec();
    if let Some(config) = all.iter_mut().find(|it| it.name == "config") {
        config.writes = can_reconfigure(cx, index);
    }
    if cx.services.schedule.tickets(index).is_some() {
        all.extend(OF_TASKS);
    }
    all.extend(cx.elements[index].as_mut().map_or(&[][..], |it| it.element().handlers()));
    all
}

/// The handlers that an element has beside those of its class.
#[derive(Clone, Copy, Default)]
struct OwnHandlers<'a> {
    /// The read handlers that its arguments add.
    exported: &'a [String],
    /// The handlers of its ports, which can be read and written.
    of_ports: &'a [String],
}

impl<'a> OwnHandlers<'a> {
    fn of(cx: &'a mut ElementContext<'_>, index: usize) -> Self {
        cx.elements[index].as_mut().map_or(Self::default(), |it| {
            let it = &*it.element();
            Self { exported: it.exported_handlers(), of_ports: it.port_handlers() }
        })
    }

    /// Returns the names of those that can be read, or be written.
    fn names(self, is_read: bool) -> impl Iterator<Item = &'a str> {
        let exported = self.exported.iter().filter(move |_| is_read);
        exported.chain(self.of_ports).map(String::as_str)
    }
}

/// Returns the error of a call of a handler that does not exist, or not for this direction.
fn no_handler(
    name: &str,
    handler: &str,
    all: &[HandlerDefinition],
    own: OwnHandlers<'_>,
    is_read: bool,
) -> HandlerError {
    if all.iter().any(|it| it.name == handler) || own.names(!is_read).any(|it| it == handler) {
        let directions = if is_read { "written, not read" } else { "read, not written" };
        let text = format!("handler '{name}' can be {directions}");
        return HandlerError { fault: HandlerFault::OtherDirection, text };
    }
    let names = all.iter().filter(|it| if is_read { it.reads } else { it.writes }).map(|it| it.name);
    let kind = if name == handler { "global handler" } else { "handler" };
    let text = format!("no {kind} named '{name}'{}", suggestion(handler, names.chain(own.names(is_read))));
    HandlerError { fault: HandlerFault::NoHandler, text }
}

fn list(all: &[HandlerDefinition], own: OwnHandlers<'_>) -> String {
    let mut text = String::new();
    for HandlerDefinition { name, reads, writes, .. } in all {
        let mode = [(*reads, "r"), (*writes, "w")].map(|(is, letter)| if is { letter } else { "" }).concat();
        _ = writeln!(text, "{name}\t{mode}");
    }
    for name in own.exported {
        _ = writeln!(text, "{name}\tr");
    }
    for name in own.of_ports {
        _ = writeln!(text, "{name}\trw");
    }
    text
}

fn read_common(cx: &mut ElementContext<'_>, index: usize, handler: &str) -> Option<String> {
    let declared = &cx.graph.declared[index];
    Some(match handler {
        "name" => declared.name.to_string(),
        "class" => declared.class.to_string(),
        "config" => {
            let reconfigured = cx.services.reconfigured.all();
            reconfigured.get(&index).unwrap_or(&declared.configuration).to_string()
        }
        "handlers" => {
            let all = all_handlers(cx, index);
            list(&all, OwnHandlers::of(cx, index))
        }
        "ports" => ports(cx, index),
        // Not listed: the handler of the graph is for programs.
        MEASURES => super::measures::of_element(cx, index),
        "scheduled" => {
            cx.services.schedule.tickets(index)?;
            cx.services.schedule.is_scheduled(index).to_string()
        }
        "tickets" => cx.services.schedule.tickets(index)?.to_string(),
        _ => return None,
    })
}

fn ports(cx: &ElementContext<'_>, index: usize) -> String {
    let ports = &cx.graph.ports[index];
    let name = |port: &super::ports::PortReference, is_output| {
        let name = &cx.graph.declared[port.element].name;
        if is_output { format!("{name} [{}]", port.port) } else { format!("[{}] {name}", port.port) }
    };
    let mut text = String::new();
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    _ = writeln!(text, "{}", plural(ports.sources.len(), "input"));
    for (pulls, sources) in ports.inputs_pull.iter().zip(&ports.sources) {
        let sources: Vec<String> = sources.iter().map(|it| name(it, true)).collect();
        _ = writeln!(text, "{}\t{}", if *pulls { "pull" } else { "push" }, sources.join(", "));
    }
    _ = writeln!(text, "{}", plural(ports.targets.len(), "output"));
    for (pushes, targets) in ports.outputs_push.iter().zip(&ports.targets) {
        let targets: Vec<String> = targets.iter().map(|it| name(it, false)).collect();
        _ = writeln!(text, "{}\t{}", if *pushes { "push" } else { "pull" }, targets.join(", "));
    }
    text
}

fn write_task(
    cx: &mut ElementContext<'_>,
    index: usize,
    handler: &str,
    value: &str,
) -> Option<Result<(), Reason>> {
    cx.services.schedule.tickets(index)?;
    match handler {
        "scheduled" => Some(match value {
            "true" | "1" | "yes" => {
                cx.services.schedule.wake(index);
                Ok(())
            }
            "false" | "0" | "no" => {
                cx.services.schedule.sleep(index);
                Ok(())
            }
            _ => Err(format!("'{value}' is neither true nor false")),
        }),
        "tickets" => Some(match value.parse() {
            Ok(tickets) => {
                cx.services.schedule.set_tickets(index, tickets);
                Ok(())
            }
            Err(_) => Err(format!("'{value}' is no number of tickets")),
        }),
        _ => None,
    }
}

fn read_global(cx: &mut ElementContext<'_>, name: &str) -> Option<String> {
    let lines = |all: &mut dyn Iterator<Item = String>| all.map(|it| it + "\n").collect::<String>();
    Some(match name {
        "version" => env!("CARGO_PKG_VERSION").to_owned(),
        // Tools of Click look for the driver that runs in a program.
        "driver" => "userlevel".to_owned(),
        "config" => cx.graph.rest.text.to_string(),
        "flatconfig" => flat(cx).to_text(FlatLayout::Plain),
        "requirements" => lines(&mut cx.graph.rest.requirements.iter().map(|it| match it {
            Requirement::Package(name) => format!("package {name}"),
            Requirement::CompactConfiguration => "compact_config".to_owned(),
        })),
        "packages" => String::new(),
        "list" => {
            let names = lines(&mut cx.graph.declared.iter().map(|it| it.name.to_string()));
            format!("{}\n{names}", cx.graph.declared.len())
        }
        "classes" => {
            let mut all: Vec<&str> = cx.graph.classes.iter().map(|it| it.name).collect();
            all.sort_unstable();
            all.dedup();
            lines(&mut all.into_iter().map(str::to_owned))
        }
        "handlers" => list(&of_graph(cx), OwnHandlers::default()),
        MEASURES => super::measures::of_graph(cx),
        "errors" => {
            let of_threads = || threaded(cx)?.replacement_errors();
            cx.services
                .replacement
                .as_ref()
                .map(|it| it.errors.clone())
                .or_else(of_threads)
                .unwrap_or_default()
        }
        _ => return None,
    })
}

/// Returns the flat configuration, with the present arguments of its elements.
fn flat(cx: &ElementContext<'_>) -> FlatConfiguration {
    let mut flat = FlatConfiguration { elements: cx.graph.declared.clone(), ..cx.graph.rest.clone() };
    for (element, configuration) in &*cx.services.reconfigured.all() {
        if let Some(element) = flat.elements.get_mut(*element) {
            element.configuration = configuration.clone();
        }
    }
    flat
}
