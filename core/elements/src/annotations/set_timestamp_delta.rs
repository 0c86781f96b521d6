//! `SetTimestampDelta`: makes time stamps relative.

use weir_graph::arguments::WordArgument;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetTimestampDelta",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
makes time stamps relative

SetTimestampDelta([keyword TYPE])

SetTimestampDelta replaces each time stamp by a difference. A packet without a time stamp stays as it is. A difference that \
would be negative is 0.

Arguments:
  TYPE  RANGE: the time since the first time stamp that came. NOW: the time since the time stamp. FIRST: the time since the \
annotation FIRST_TIMESTAMP. Default RANGE.

Handlers:
  first  r  the first time stamp that came
  reset  w  forgets it",
    build: |cx| {
        let mut args = cx.arguments();
        let word = args.keyword("TYPE").or(WordArgument("RANGE".to_owned()));
        let kind = match word.0.as_str() {
            "RANGE" => DeltaKind::Range,
            "NOW" => DeltaKind::Now,
            "FIRST" => DeltaKind::First,
            _ => {
                args.error("TYPE", "expected RANGE, NOW or FIRST");
                DeltaKind::Range
            }
        };
        args.end()?;
        Ok(BuiltElement::routing(SetTimestampDelta { kind, first: Timestamp(0) }))
    },
};

/// The start and the end of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeltaKind {
    Range,
    Now,
    First,
}

struct SetTimestampDelta {
    kind: DeltaKind,
    /// 0 before the first time stamp.
    first: Timestamp,
}

impl Element for SetTimestampDelta {
    fn effects(&self) -> Option<Effects> {
        (self.kind != DeltaKind::Now).then_some(Effects::NONE)
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_ref::<SetTimestampDelta>() {
            self.first = earlier.first;
        }
    }

    handlers! {
        "first": "the first time stamp that came",
            read |this, _, _| Ok(format!("{}\n", crate::values::seconds(this.first)));
        "reset": "forgets the first time stamp",
            write |this, _, _| {
                this.first = Timestamp(0);
                Ok(String::new())
            };
    }
}

impl RoutingElement for SetTimestampDelta {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let time = packet.time();
        if time != Timestamp(0) {
            let (from, to) = match self.kind {
                DeltaKind::Range => {
                    if self.first == Timestamp(0) {
                        self.first = time;
                    }
                    (self.first, time)
                }
                DeltaKind::Now => (time, services.now()),
                DeltaKind::First => (super::first_timestamp(packet), time),
            };
            packet.set_time(Timestamp(to.since(from).0));
        }
        Destination::FIRST
    }
}
