//! `Print`: prints packets in hexadecimal.

use std::fmt::Write;
use weir_graph::arguments::WordArgument;
use weir_graph::engine::{
    BuiltElement, Destination, EXTRA_LENGTH, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services, TextOutput,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Print",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::TERMINAL,
    order: OrderDependence::Ordered,
    manual: "\
prints packets

Print([LABEL, MAXLENGTH, keywords CONTENTS, TIMESTAMP, HEADROOM, ACTIVE])

Print writes a line about each packet to standard error: the label, the length, and bytes.

Arguments:
  LABEL      a text before each line
  MAXLENGTH  the most bytes that are shown; -1 for all. Default 24.
  CONTENTS   HEX, ASCII or NONE. Default HEX.
  TIMESTAMP  true: shows the time stamp. Default false.
  HEADROOM   true: shows the room before the packet. Default false.
  ACTIVE     false: prints nothing. Default true.

Handlers:
  active  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let label: String = args.either("LABEL").or(String::new());
        let most: i32 = args.either("MAXLENGTH").within(-1..).or(24);
        let contents: WordArgument = args.keyword("CONTENTS").or(WordArgument("HEX".to_owned()));
        let contents = match contents.0.to_ascii_uppercase().as_str() {
            "HEX" | "TRUE" => Contents::Hex,
            "ASCII" => Contents::Ascii,
            "NONE" | "FALSE" => Contents::None,
            _ => {
                args.error("CONTENTS", "expected HEX, ASCII or NONE");
                Contents::None
            }
        };
        let has_time = args.keyword("TIMESTAMP").or(false);
        let has_headroom = args.keyword("HEADROOM").or(false);
        let active = args.keyword("ACTIVE").or(true);
        args.end()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(BuiltElement::routing(Print { label, most, contents, has_time, has_headroom, active }))
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Hex,
    Ascii,
    None,
}

struct Print {
    label: String,
    most: usize,
    contents: Contents,
    has_time: bool,
    has_headroom: bool,
    active: bool,
}

impl Print {
    fn line(&self, packet: &GraphPacket) -> String {
        let mut line = String::new();
        if !self.label.is_empty() {
            _ = write!(line, "{}: ", self.label);
        }
        if self.has_time {
            _ = write!(line, "{}: ", crate::values::seconds(packet.time()));
        }
        _ = write!(line, "{:4}", packet.len());
        let extra = packet.annotation(EXTRA_LENGTH).try_into().map_or(0, u32::from_ne_bytes);
        if extra > 0 {
            _ = write!(line, " (+{extra})");
        }
        if self.has_headroom {
            _ = write!(line, " (h{} t{})", packet.headroom(), packet.tailroom());
        }
        let shown = &packet.bytes()[..packet.len().min(self.most)];
        if self.contents != Contents::None {
            line.push_str(" |");
        }
        for (index, byte) in shown.iter().enumerate() {
            let gap = match self.contents {
                Contents::Hex if index % 4 == 0 => " ",
                Contents::Ascii if index % 8 == 0 => " ",
                _ => "",
            };
            match self.contents {
                Contents::Hex => _ = write!(line, "{gap}{byte:02x}"),
                Contents::Ascii => {
                    let shown =
                        if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
                    _ = write!(line, "{gap}{shown}");
                }
                Contents::None => {}
            }
        }
        line.push('\n');
        line
    }
}

impl Element for Print {
    reconfigured_fields!(label, most, contents, has_time, has_headroom, active);

    handlers! {
        "active": "false if nothing is printed",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, _| {
                this.active = crate::values::read(value)?;
                Ok(String::new())
            };
    }
}

impl RoutingElement for Print {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        if self.active {
            let line = self.line(packet);
            services.system.write_text(TextOutput::Error, &line);
        }
        Destination::FIRST
    }
}
