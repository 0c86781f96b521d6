//! `Message`, `Error` and `RandomSeed`: act when a graph is configured.

use weir_graph::arguments::WordArgument;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, Reason, RoutingElement, Services, TextOutput,
};
use weir_graph::handlers;

/// The class of messages.
pub static MESSAGE: ElementClass = ElementClass {
    name: "Message",
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
prints a message when the graph is configured

Message(MESSAGE [, TYPE])

Message writes a line to standard error, with its name.

Arguments:
  MESSAGE  the text
  TYPE     MESSAGE, WARNING or ERROR. With ERROR, the graph does not start. Default MESSAGE.",
    build: |cx| {
        let mut args = cx.arguments();
        let message: String = args.either("MESSAGE").required();
        let kind: WordArgument = args.either("TYPE").or(WordArgument("MESSAGE".to_owned()));
        let mark = match kind.0.as_str() {
            "MESSAGE" => "",
            "WARNING" => "warning: ",
            "ERROR" => {
                args.error("", message.clone());
                ""
            }
            _ => {
                args.error("TYPE", "expected MESSAGE, WARNING or ERROR");
                ""
            }
        };
        args.end()?;
        let line = format!("{}: {mark}{message}\n", cx.name());
        cx.services.system.write_text(TextOutput::Error, &line);
        Ok(BuiltElement::routing(ConfigurationMessage { is_error: false }))
    },
};

/// The class that always fails.
pub static ERROR: ElementClass = ElementClass {
    name: "Error",
    ports: "-/-",
    manual: "\
prevents the graph from starting

Error(...)

Error accepts any arguments and connections, and never starts.",
    build: |cx| {
        let mut args = cx.arguments();
        _ = args.rest();
        args.end()?;
        Ok(BuiltElement::routing(ConfigurationMessage { is_error: true }))
    },
    ..MESSAGE
};

/// The class of seeds.
pub static RANDOM_SEED: ElementClass = ElementClass {
    name: "RandomSeed",
    manual: "\
sets the seed of random numbers

RandomSeed([SEED])

RandomSeed begins the random numbers of all elements anew. Without it, or without SEED, the seed is that of the run.

Arguments:
  SEED  a number

Handlers:
  seed  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let seed: Option<u32> = args.either("SEED").optional();
        args.end()?;
        if let Some(seed) = seed {
            cx.services.seed(seed.into());
        }
        Ok(BuiltElement::routing(RandomSeed { seed }))
    },
    ..MESSAGE
};

struct ConfigurationMessage {
    is_error: bool,
}

impl Element for ConfigurationMessage {
    fn initialize(&mut self, _: &mut ElementContext<'_>) -> Result<(), Reason> {
        if self.is_error { Err("the element Error never starts".to_owned()) } else { Ok(()) }
    }
}

impl RoutingElement for ConfigurationMessage {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::DISCARD
    }
}

struct RandomSeed {
    seed: Option<u32>,
}

impl Element for RandomSeed {
    handlers! {
        "seed": "the seed of random numbers",
            read |this, _, _| Ok(this.seed.map_or(String::new(), |seed| seed.to_string())),
            write |this, value, cx| {
                let seed: u32 = crate::values::read(value)?;
                cx.services.seed(seed.into());
                this.seed = Some(seed);
                Ok(String::new())
            };
    }
}

impl RoutingElement for RandomSeed {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::DISCARD
    }
}
