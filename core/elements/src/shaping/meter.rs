//! `Meter` and `BandwidthMeter`: choose outputs by the present rate of packets.

use crate::measuring::RateAverage;
use crate::queues::RatedQuantity;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::BitsPerSecond;

/// The class whose rates are in packets.
pub static METER: ElementClass = ElementClass {
    name: "Meter",
    ports: "1/2-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
chooses the output by the rate of packets

Meter(RATE, ...)

Meter sends all packets to output 0 while they come at less than the first RATE, to output 1 from the first RATE on, to \
output 2 from the second RATE on, and so on. The rate is a moving average, in which a millisecond has the weight 1/16. \
Unlike a RatedSplitter, it sends all packets to one output at a time.

Arguments:
  RATE  packets per second, each greater than the one before; one fewer than outputs

Handlers:
  rate    r  packets per second
  meters  r  the arguments, rounded to the steps of the measured rate, with spaces between them",
    build: |cx| build(cx, RatedQuantity::Packets),
};

/// The class whose rates are in bytes.
pub static BANDWIDTH: ElementClass = ElementClass {
    name: "BandwidthMeter",
    manual: "\
chooses the output by the bandwidth of packets

BandwidthMeter(RATE, ...)

As Meter, but rates are in bytes.

Arguments:
  RATE  a bandwidth, such as 384kbps, without a unit in bytes per second; each greater than the one before

Handlers:
  rate    r  bytes per second
  meters  r  the arguments, rounded to the steps of the measured rate, with spaces between them",
    build: |cx| build(cx, RatedQuantity::Bytes),
    ..METER
};

/// The average of a rate. Its fraction is that of Click, so that both choose the same output.
type MeterAverage = RateAverage<10>;

fn build(cx: &mut BuildContext<'_>, quantity: RatedQuantity) -> Result<BuiltElement, ArgumentErrors> {
    let outputs = cx.ports().targets.len();
    let mut args = cx.arguments();
    let mut rates: Vec<u64> = Vec::new();
    for text in args.rest() {
        // Click reads packets per second as a bandwidth, too.
        match cx.read::<BitsPerSecond>(&text) {
            Some(BitsPerSecond(bits)) if rates.last().is_none_or(|last| *last < bits / 8) => {
                rates.push(bits / 8)
            }
            Some(_) => args.error("", format!("rate {text} has to be greater than the one before")),
            None => args.error("", format!("'{text}' is no rate")),
        }
    }
    if rates.len() + 1 != outputs {
        args.error("", format!("need {} arguments, one less than the number of output ports", outputs - 1));
    }
    args.end()?;
    let meters = rates.into_iter().map(MeterAverage::scaled_rate).collect();
    Ok(BuiltElement::routing(Meter { quantity, average: MeterAverage::default(), meters }))
}

struct Meter {
    quantity: RatedQuantity,
    average: MeterAverage,
    /// The least scaled average of each output but the first.
    meters: Vec<u64>,
}

impl Element for Meter {
    handlers! {
        "rate": "packets or bytes per second", read |this, _, cx| Ok(this.average.text(cx.services.now(), 0));
        "meters": "the rates",
            read |this, _, _| {
                let texts: Vec<String> = this.meters.iter().map(|it| MeterAverage::scaled_text(*it)).collect();
                Ok(texts.join(" "))
            };
    }
}

impl RoutingElement for Meter {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        self.average.count(services.coarse_now(), self.quantity.of(packet));
        let average = self.average.scaled();
        let output = self.meters.iter().position(|meter| average < *meter);
        Destination::output(output.unwrap_or(self.meters.len()))
    }
}
