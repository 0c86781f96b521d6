//! `Print`: prints packets in hexadecimal.

use std::fmt::Write;
use weir_graph::arguments::WordArgument;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services, TextOutput,
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

Print([LABEL, MAXLENGTH, keywords CONTENTS, TIMESTAMP, HEADROOM, PRINTANNO, ACTIVE])

Print writes a line about each packet to standard error: the label, the length, and bytes.

Arguments:
  LABEL      a text before each line
  MAXLENGTH  the most bytes that are shown; negative for all. Default 24. Older names: LENGTH, NBYTES.
  CONTENTS   HEX, ASCII or NONE. Default HEX. Also true for HEX, and false for NONE.
  TIMESTAMP  true: shows the time stamp. Default false.
  HEADROOM   true: shows the room before the packet. Default false.
  PRINTANNO  true: shows the annotations in hexadecimal. Default false.
  ACTIVE     false: prints nothing. Default true.

Handlers:
  active  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let label: String = args.either("LABEL").or(String::new());
        let most: Option<i32> = args.either("MAXLENGTH").optional();
        let most = args.keyword("LENGTH").optional().or(most);
        let most = args.keyword("NBYTES").optional().or(most).unwrap_or(24);
        let contents: WordArgument = args.keyword("CONTENTS").or(WordArgument("HEX".to_owned()));
        let contents = match (crate::values::read(&contents.0), contents.0.to_ascii_uppercase().as_str()) {
            (Ok(true), _) | (_, "HEX") => Contents::Hex,
            (_, "ASCII") => Contents::Ascii,
            (Ok(false), _) | (_, "NONE") => Contents::None,
            _ => {
                args.error("CONTENTS", "expected HEX, ASCII or NONE");
                Contents::None
            }
        };
        let has_time = args.keyword("TIMESTAMP").or(false);
        let has_headroom = args.keyword("HEADROOM").or(false);
        let has_annotations = args.keyword("PRINTANNO").or(false);
        let active = args.keyword("ACTIVE").or(true);
        args.end()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(BuiltElement::routing(Print {
            label,
            most,
            contents,
            has_time,
            has_headroom,
            has_annotations,
            active,
        }))
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
    has_annotations: bool,
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
        if self.has_headroom {
            _ = write!(line, " (h{} t{})", packet.headroom(), packet.tailroom());
        }
        if self.has_annotations {
            line.push_str(" | ");
            packet.annotations().iter().for_each(|byte| _ = write!(line, "{byte:02x}"));
        }
        let shown = &packet.bytes()[..packet.len().min(self.most)];
        if self.contents != Contents::None && !shown.is_empty() {
            line.push_str(" | ");
        }
        for (index, byte) in shown.iter().enumerate() {
            let gap = match self.contents {
                Contents::Hex if index > 0 && index % 4 == 0 => " ",
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
        "active": "false if nothing is printed", field active;
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
