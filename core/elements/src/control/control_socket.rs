//! `ControlSocket`: lets other programs call the handlers of the graph.

use std::any::Any;
use weir_graph::arguments::{ArgumentValue, ElementArguments, FileName, TcpPort, WordArgument};
use weir_graph::control::{HandlerAction, HandlerCall};
use weir_graph::engine::{
    BuildContext, BuiltElement, CallAnswer, ControlPlace, ControlPort, Destination, Effects, Element,
    ElementClass, ElementContext, ElementCost, GraphPacket, HandlerError, HandlerFault, OrderDependence,
    Reason, RoutingElement, Services, TaskRun, TextOutput,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ControlSocket",
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
lets other programs call handlers

ControlSocket(TCP, PORT [, keywords READONLY, PROXY, VERBOSE, LOCALHOST, RETRIES, RETRY_WARNINGS])
ControlSocket(UNIX, FILENAME [, keywords READONLY, PROXY, VERBOSE, RETRIES, RETRY_WARNINGS])

Other programs connect to a TCP port or to a socket in the file system, and read and write handlers by the protocol 1.3 of \
Click's element of this name. The options -p and -u of `weir graph run` open such sockets, too. Only the user who runs the \
graph, and root, can connect, at most 16 at a time. After a hot swap, connections go on if the new ControlSocket has the same \
name and the same port or file.

Arguments:
  PORT            the port. PORT+ is the port or the next free one of the 100 behind it.
  FILENAME        the file
  READONLY        true: handlers cannot be written. Default false.
  PROXY           an element: handlers without an element's name are those of this element, and there are no others
  VERBOSE         true: messages about connections. Default false.
  LOCALHOST       false: hosts in the network, and all users, can connect to the port. They can do what the user of the \
graph can do. Default true.
  RETRIES         the number of times that an occupied port or file is tried again, once a second. After the last one, the \
graph stops. Default 0.
  RETRY_WARNINGS  false: messages about the last try alone. Default true.

TYPE SOCKET, which takes a descriptor, does not exist.

Handlers:
  port      r   the port, with TCP
  filename  r   the file, with UNIX",
    build: |cx| {
        let mut args = cx.arguments();
        let kind = args.positional::<String>("TYPE").required().to_ascii_uppercase();
        let is_read_only = args.keyword("READONLY").or(false);
        let proxy: Option<String> = args.keyword("PROXY").optional();
        let is_verbose = args.keyword("VERBOSE").or(false);
        let retries: i32 = args.keyword("RETRIES").or(0);
        let has_warnings = args.keyword("RETRY_WARNINGS").or(true);
        let is_local: Option<bool> = args.keyword("LOCALHOST").optional();
        let place = read_place(&kind, is_local.unwrap_or(true), cx, &mut args);
        args.end()?;
        Ok(BuiltElement::routing(ControlSocket {
            place,
            is_read_only,
            proxy,
            is_verbose,
            tries_left: u32::try_from(retries).unwrap_or(0),
            has_warnings,
            port: None,
            is_continued: false,
        }))
    },
};

fn read_place(
    kind: &str,
    is_local: bool,
    cx: &BuildContext<'_>,
    args: &mut ElementArguments<'_, '_>,
) -> ControlPlace {
    match kind {
        "TCP" => {
            let WordArgument(text) = args.either("PORT").required();
            let port =
                |text: &str| TcpPort::parse_argument(text, cx.argument_context()).ok().map(|port| port.0);
            let later = text.strip_suffix('+').and_then(|text| text.parse().ok()).filter(|port| *port > 0);
            let found = port(&text).map(|port| (port, false)).or(later.map(|port| (port, true)));
            if found.is_none() && !text.is_empty() {
                args.error("", "PORT requires TCP port");
            }
            let (port, or_later) = found.unwrap_or((0, false));
            ControlPlace::Port { port, or_later, is_local }
        }
        "UNIX" => {
            let FileName(name) = args.either("FILENAME").required();
            if name.len() > FILE_NAME_MAX {
                args.error("", "filename too long");
            }
            ControlPlace::File(name)
        }
        _ => {
            let text = match kind {
                "SOCKET" => "the type SOCKET does not exist here: use TCP or UNIX".to_owned(),
                _ => format!("unknown socket type '{kind}'"),
            };
            args.error("", text);
            _ = args.rest();
            ControlPlace::File(String::new())
        }
    }
}

/// The longest name of a socket in the file system.
const FILE_NAME_MAX: usize = 107;

/// The calls of one turn: the graph goes on after them.
const CALLS_MAX: usize = 16;

struct ControlSocket {
    place: ControlPlace,
    is_read_only: bool,
    proxy: Option<String>,
    is_verbose: bool,
    tries_left: u32,
    has_warnings: bool,
    port: Option<Box<dyn ControlPort>>,
    /// The socket comes from an earlier element.
    is_continued: bool,
}

impl ControlSocket {
    fn open(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.port = Some(cx.services.system.open_control(&self.place)?);
        cx.watch_devices();
        if matches!(self.place, ControlPlace::Port { is_local: false, .. }) {
            let who = if self.is_read_only {
                "read all handlers"
            } else {
                "control this graph and its user's files"
            };
            write_line(cx, &format!("warning: LOCALHOST false: any host that reaches the port can {who}"));
        }
        Ok(())
    }

    /// Notes that the socket cannot be opened at present. Fails if there is no further try.
    fn failed(&mut self, reason: Reason, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let Some(left) = self.tries_left.checked_sub(1) else { return Err(reason) };
        if self.has_warnings {
            let tries = if self.tries_left == 1 { "try" } else { "tries" };
            write_line(cx, &format!("warning: {reason} ({} {tries} left)", self.tries_left));
        }
        self.tries_left = left;
        let now = cx.services.now();
        cx.set_timer(Timestamp(now.0.saturating_add(Nanos::SECOND.0)), 0);
        Ok(())
    }

    /// Returns the call that a program means.
    fn proxied(&self, mut call: HandlerCall) -> Result<HandlerCall, HandlerError> {
        let Some(proxy) = &self.proxy else { return Ok(call) };
        let name = call.name.strip_prefix("0.").or(call.name.strip_prefix('.')).unwrap_or(&call.name);
        if name.contains('.') {
            let text = format!("No proxied handler named '{}'", call.name);
            return Err(HandlerError { fault: HandlerFault::NoHandler, text });
        }
        call.name = format!("{proxy}.{name}");
        Ok(call)
    }

    fn pass_on(&self, call: HandlerCall, answer: CallAnswer, cx: &mut ElementContext<'_>) {
        // The errors of a handler name it as the program does.
        let asked = call.name.clone();
        match self.proxied(call) {
            Ok(call) => {
                let answer: CallAnswer = if self.proxy.is_some() && call.action == HandlerAction::Read {
                    Box::new(move |result| {
                        answer(result.map_err(|error| match error.fault {
                            HandlerFault::NoHandler => {
                                let text = format!("No proxied handler named '{asked}'");
                                HandlerError { text, ..error }
                            }
                            _ => error,
                        }));
                    })
                } else {
                    answer
                };
                cx.services.call_for_program(call, self.is_read_only, answer);
            }
            Err(error) => answer(Err(error)),
        }
    }
}

fn write_line(cx: &mut ElementContext<'_>, line: &str) {
    let text = format!("{}: {line}\n", cx.read_own_name());
    cx.services.system.write_text(TextOutput::Error, &text);
}

impl Element for ControlSocket {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if let Some(proxy) = &self.proxy
            && cx.find(proxy).is_none()
        {
            return Err(format!("PROXY: no element named '{proxy}'"));
        }
        cx.add_task(true);
        if self.is_continued {
            cx.watch_devices();
            return Ok(());
        }
        match self.open(cx) {
            Ok(()) => Ok(()),
            Err(reason) => self.failed(reason, cx),
        }
    }

    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let Some(earlier) = earlier.downcast_ref::<Self>() else { return false };
        let is_same = match (&self.place, &earlier.place) {
            (
                ControlPlace::Port { port, or_later, is_local },
                ControlPlace::Port { port: earlier_port, is_local: earlier_local, .. },
            ) => is_local == earlier_local && (*or_later || port == earlier_port),
            (own, earlier) => own == earlier,
        };
        self.is_continued = is_same && earlier.port.is_some();
        self.is_continued
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<Self>() {
            self.port = earlier.port.take();
        }
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let Some(mut port) = self.port.take() else { return TaskRun { work: 0, again: false } };
        let mut news = Vec::new();
        port.take_news(&mut news);
        for line in news.iter().filter(|_| self.is_verbose) {
            write_line(cx, line);
        }
        let mut work = 0;
        while work < CALLS_MAX
            && let Some((call, answer)) = port.next_call()
        {
            self.pass_on(call, answer, cx);
            work += 1;
        }
        let again = port.has_calls();
        self.port = Some(port);
        TaskRun { work, again }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        if self.port.is_some() {
            return;
        }
        let result = match self.open(cx) {
            Ok(()) => Ok(()),
            Err(reason) => self.failed(reason, cx),
        };
        match result {
            Ok(()) => cx.schedule(),
            Err(reason) => {
                write_line(cx, &reason);
                cx.services.stop();
            }
        }
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        if let Some(port) = self.port.take() {
            self.place = port.place();
        }
        Ok(())
    }

    handlers! {
        "port": "the port, with TCP",
            read |this, _, _| match this.port.as_ref().map_or(this.place.clone(), |port| port.place()) {
                ControlPlace::Port { port, .. } => Ok(port.to_string()),
                ControlPlace::File(_) => Err("a socket in the file system has no port".to_owned()),
            };
        "filename": "the file, with UNIX",
            read |this, _, _| match &this.place {
                ControlPlace::File(name) => Ok(name.clone()),
                ControlPlace::Port { .. } => Err("a port has no file".to_owned()),
            };
    }
}

impl RoutingElement for ControlSocket {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::DISCARD
    }
}
