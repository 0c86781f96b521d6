//! `Counter`: counts packets and bytes, and measures their rates.

use super::rate_average::RateAverage;
use weir_graph::arguments::RawArgument;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, Reason, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Counter",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
counts packets and bytes

Counter([keywords COUNT_CALL, BYTE_COUNT_CALL])

Counter passes packets on, and counts them. Rates are moving averages, in which a millisecond has the weight 1/16.

Arguments:
  COUNT_CALL       N HANDLER [VALUE]: calls a write handler when the count of packets reaches N
  BYTE_COUNT_CALL  N HANDLER [VALUE]: calls a write handler when the count of bytes reaches N

Handlers:
  count            r   the number of packets
  byte_count       r   the number of bytes
  rate             r   packets per second
  bit_rate         r   bits per second
  byte_rate        r   bytes per second
  count_call       rw  the argument; its number when read
  byte_count_call  w   the argument
  reset_counts     w   sets both counts to 0, so that each call is made again
  reset            w   the same",
    build: |cx| {
        let mut args = cx.arguments();
        let mut call = |name| {
            let text: Option<RawArgument> = args.keyword(name).optional();
            text.map(|text| {
                CountCall::read(&text.0).unwrap_or_else(|reason| {
                    args.error(name, reason);
                    CountCall { at: 0, call: String::new(), has_fired: false }
                })
            })
        };
        let (count_call, byte_count_call) = (call("COUNT_CALL"), call("BYTE_COUNT_CALL"));
        args.end()?;
        let (packet_rate, byte_rate) = (RateAverage::default(), RateAverage::default());
        Ok(BuiltElement::routing(Counter {
            packets: 0,
            bytes: 0,
            packet_rate,
            byte_rate,
            count_call,
            byte_count_call,
            this: 0,
        }))
    },
};

/// A call of a handler when a count is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CountCall {
    at: u64,
    call: String,
    /// The call was made since the latest reset.
    has_fired: bool,
}

impl CountCall {
    fn read(text: &str) -> Result<Self, Reason> {
        let (at, call) = text.trim().split_once(char::is_whitespace).ok_or("expected: N HANDLER [VALUE]")?;
        Ok(Self { at: crate::values::read(at)?, call: call.trim().to_owned(), has_fired: false })
    }
}

struct Counter {
    packets: u64,
    bytes: u64,
    packet_rate: RateAverage<10>,
    byte_rate: RateAverage<4>,
    count_call: Option<CountCall>,
    byte_count_call: Option<CountCall>,
    /// The index of the element.
    this: usize,
}

impl Counter {
    fn reset(&mut self) -> Result<String, Reason> {
        (self.packets, self.bytes) = (0, 0);
        (self.packet_rate, self.byte_rate) = (RateAverage::default(), RateAverage::default());
        for call in [&mut self.count_call, &mut self.byte_count_call].into_iter().flatten() {
            call.has_fired = false;
        }
        Ok(String::new())
    }
}

impl Element for Counter {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.this = cx.element();
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<Counter>() {
            (self.packets, self.bytes) = (earlier.packets, earlier.bytes);
            std::mem::swap(&mut self.packet_rate, &mut earlier.packet_rate);
            std::mem::swap(&mut self.byte_rate, &mut earlier.byte_rate);
        }
    }

    fn effects(&self) -> Option<Effects> {
        (self.count_call.is_some() || self.byte_count_call.is_some()).then_some(Effects::CONTROL)
    }

    handlers! {
        "count": counter "the number of packets", read |this, _, _| Ok(this.packets.to_string());
        "byte_count": counter "the number of bytes", read |this, _, _| Ok(this.bytes.to_string());
        "rate": "packets per second", read |this, _, cx| Ok(this.packet_rate.text(cx.services.now(), 0));
        "bit_rate": "bits per second", read |this, _, cx| Ok(this.byte_rate.text(cx.services.now(), 3));
        "byte_rate": "bytes per second", read |this, _, cx| Ok(this.byte_rate.text(cx.services.now(), 0));
        "count_call": "the call when the count of packets reaches a number",
            read |this, _, _| Ok(this.count_call.as_ref().map_or(String::new(), |call| call.at.to_string())),
            write |this, value, _| {
                this.count_call = Some(CountCall::read(value)?);
                Ok(String::new())
            };
        "byte_count_call": "the call when the count of bytes reaches a number",
            write |this, value, _| {
                this.byte_count_call = Some(CountCall::read(value)?);
                Ok(String::new())
            };
        "reset_counts": "sets both counts to 0",
            write |this, _, _| this.reset();
        "reset": "sets both counts to 0",
            write |this, _, _| this.reset();
    }
}

impl RoutingElement for Counter {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        self.packets += 1;
        self.bytes += packet.len() as u64;
        let now = services.coarse_now();
        self.packet_rate.count(now, 1);
        self.byte_rate.count(now, packet.len() as u64);
        // A count of packets takes each value; a count of bytes can pass over one.
        let is_reached = [
            self.count_call.as_ref().is_some_and(|call| self.packets == call.at),
            self.byte_count_call.as_ref().is_some_and(|call| self.bytes >= call.at),
        ];
        for (call, is_reached) in
            [&mut self.count_call, &mut self.byte_count_call].into_iter().zip(is_reached)
        {
            if let Some(call) = call.as_mut().filter(|call| is_reached && !call.has_fired) {
                call.has_fired = true;
                services.call_later(self.this, &call.call);
            }
        }
        Destination::FIRST
    }
}
