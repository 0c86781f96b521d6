//! Handlers: names under which elements and the graph give values and take commands.
//!
//! `ELEMENT.HANDLER` names a handler of an element, and a name without a dot one of the graph. Every element has `name`,
//! `class`, `config`, `ports` and `handlers`, and one with a task `scheduled` and `tickets`.

use super::context::ElementContext;
use super::element::{HandlerDefinition, Reason};
use crate::nearest::suggestion;
use std::fmt::Write;

/// The handlers that every element has.
const OF_ELEMENTS: &[HandlerDefinition] = &[
    HandlerDefinition { name: "name", reads: true, writes: false, description: "the name" },
    HandlerDefinition { name: "class", reads: true, writes: false, description: "the class" },
    HandlerDefinition { name: "config", reads: true, writes: false, description: "the arguments" },
    HandlerDefinition {
        name: "ports",
        reads: true,
        writes: false,
        description: "the ports, and what they are connected to",
    },
    HandlerDefinition {
        name: "handlers",
        reads: true,
        writes: false,
        description: "the names of all handlers",
    },
];

/// The handlers that every element with a task has.
const OF_TASKS: &[HandlerDefinition] = &[
    HandlerDefinition {
        name: "scheduled",
        reads: true,
        writes: true,
        description: "true if the task is scheduled",
    },
    HandlerDefinition { name: "tickets", reads: true, writes: true, description: "the task's tickets" },
];

/// Reads a handler.
pub(super) fn read(cx: &mut ElementContext<'_>, call: &str) -> Result<String, Reason> {
    let (name, argument) = split(call);
    let Some((element, handler)) = name.rsplit_once('.') else { return read_global(cx, name) };
    let index = find(cx, element)?;
    if let Some(text) = read_common(cx, index, handler) {
        return Ok(text);
    }
    let result = cx.with_element(index, |it, cx| it.element().read_handler(handler, argument, cx));
    match result {
        Some(Some(result)) => result,
        Some(None) => Err(no_handler(cx, index, element, handler, |it| it.reads)),
        None => Err(format!("element '{element}' is busy: it calls this handler itself")),
    }
}

/// Writes a handler.
pub(super) fn write(cx: &mut ElementContext<'_>, call: &str) -> Result<String, Reason> {
    let (name, value) = split(call);
    let Some((element, handler)) = name.rsplit_once('.') else { return write_global(cx, name) };
    let index = find(cx, element)?;
    if let Some(result) = write_task(cx, index, handler, value) {
        return result.map(|()| String::new());
    }
    let result = cx.with_element(index, |it, cx| it.element().write_handler(handler, value, cx));
    match result {
        Some(Some(result)) => result,
        Some(None) => Err(no_handler(cx, index, element, handler, |it| it.writes)),
        None => Err(format!("element '{element}' is busy: it calls this handler itself")),
    }
}

fn split(call: &str) -> (&str, &str) {
    let call = call.trim();
    call.split_once(char::is_whitespace).map_or((call, ""), |(name, rest)| (name, rest.trim()))
}

fn find(cx: &ElementContext<'_>, element: &str) -> Result<usize, Reason> {
    let index = cx.graph.by_name(element).or_else(|| cx.graph.find(cx.this, element));
    index.ok_or_else(|| {
        let names = cx.graph.declared.iter().map(|it| &*it.name);
        format!("no element named '{element}'{}", suggestion(element, names))
    })
}

fn all_handlers(cx: &mut ElementContext<'_>, index: usize) -> Vec<HandlerDefinition> {
    let mut all = OF_ELEMENTS.to_vec();
    if cx.services.schedule.tickets(index).is_some() {
        all.extend(OF_TASKS);
    }
    all.extend(cx.elements[index].as_mut().map_or(&[][..], |it| it.element().handlers()));
    all
}

fn no_handler(
    cx: &mut ElementContext<'_>,
    index: usize,
    element: &str,
    handler: &str,
    wanted: impl Fn(&HandlerDefinition) -> bool,
) -> Reason {
    let all = all_handlers(cx, index);
    let names = all.iter().filter(|it| wanted(it)).map(|it| it.name);
    format!("no handler named '{element}.{handler}'{}", suggestion(handler, names))
}

fn read_common(cx: &mut ElementContext<'_>, index: usize, handler: &str) -> Option<String> {
    let declared = &cx.graph.declared[index];
    Some(match handler {
        "name" => declared.name.to_string(),
        "class" => declared.class.to_string(),
        "config" => declared.configuration.to_string(),
        "handlers" => {
            let mut text = String::new();
            for HandlerDefinition { name, reads, writes, .. } in all_handlers(cx, index) {
                let mode =
                    [(reads, "r"), (writes, "w")].map(|(is, letter)| if is { letter } else { "" }).concat();
                _ = writeln!(text, "{name}\t{mode}");
            }
            text
        }
        "ports" => ports(cx, index),
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

/// The handlers of the graph that can be read.
const GLOBAL_READ: &[&str] = &["classes", "handlers", "list"];

fn read_global(cx: &mut ElementContext<'_>, name: &str) -> Result<String, Reason> {
    let lines = |all: &mut dyn Iterator<Item = String>| all.map(|it| it + "\n").collect::<String>();
    match name {
        "list" => {
            let names = lines(&mut cx.graph.declared.iter().map(|it| it.name.to_string()));
            Ok(format!("{}\n{names}", cx.graph.declared.len()))
        }
        "classes" => {
            let mut all: Vec<&str> = cx.graph.classes.iter().map(|it| it.name).collect();
            all.sort_unstable();
            all.dedup();
            Ok(lines(&mut all.into_iter().map(str::to_owned)))
        }
        "handlers" => {
            let read = GLOBAL_READ.iter().map(|it| format!("{it}\tr"));
            Ok(lines(&mut read.chain(["stop\tw".to_owned()])))
        }
        _ => {
            Err(format!("no global handler named '{name}'{}", suggestion(name, GLOBAL_READ.iter().copied())))
        }
    }
}

fn write_global(cx: &mut ElementContext<'_>, name: &str) -> Result<String, Reason> {
    match name {
        "stop" => {
            cx.services.stop();
            Ok(String::new())
        }
        _ => Err(format!("no global handler named '{name}'{}", suggestion(name, ["stop"].into_iter()))),
    }
}
