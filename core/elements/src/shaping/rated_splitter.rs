//! `RatedSplitter` and `BandwidthRatedSplitter`: separate the packets above a rate.

use crate::queues::{RatedBucket, RatedQuantity};
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class whose rate is in packets.
pub static RATED: ElementClass = ElementClass {
    name: "RatedSplitter",
    ports: "1/1-2",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
separates the packets above a rate

RatedSplitter(RATE [, keywords BURST_DURATION, BURST_SIZE])

RatedSplitter sends a packet to output 0 if a token bucket has a token for it. Others go to output 1, or are discarded if \
there is none. So output 0 gets RATE packets per second also when more come.

Arguments:
  RATE            packets per second
  BURST_DURATION  the time in which the bucket gets full. Default 20ms.
  BURST_SIZE      the capacity of the bucket, in packets. Not with BURST_DURATION.

Handlers:
  rate  rw  the argument",
    build: |cx| build(cx, RatedQuantity::Packets),
};

/// The class whose rate is in bytes.
pub static BANDWIDTH_RATED: ElementClass = ElementClass {
    name: "BandwidthRatedSplitter",
    manual: "\
separates the packets above a bandwidth

BandwidthRatedSplitter(RATE [, keywords BURST_DURATION, BURST_BYTES])

BandwidthRatedSplitter sends a packet to output 0 if a token bucket is not empty. The packet takes its length in bytes from \
the bucket, which may leave less than nothing. Other packets go to output 1, or are discarded if there is none.

Arguments:
  RATE            the bandwidth, such as 10Mbps; without a unit in bytes per second
  BURST_DURATION  the time in which the bucket gets full. Default 20ms.
  BURST_BYTES     the capacity of the bucket, in bytes. Not with BURST_DURATION.

Handlers:
  rate  rw  the argument",
    build: |cx| build(cx, RatedQuantity::Bytes),
    ..RATED
};

fn build(cx: &mut BuildContext<'_>, quantity: RatedQuantity) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let bucket = RatedBucket::read(quantity, &mut args);
    args.end()?;
    Ok(BuiltElement::routing(RatedSplitter { bucket }))
}

struct RatedSplitter {
    bucket: RatedBucket,
}

impl Element for RatedSplitter {
    reconfigured_fields!(bucket);

    handlers! {
        "rate": "packets per second, or the bandwidth",
            read |this, _, _| Ok(this.bucket.rate_text()),
            write |this, value, _| this.bucket.write_rate(value);
    }
}

impl RoutingElement for RatedSplitter {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        self.bucket.refill(services.now());
        if !self.bucket.has_room() {
            return Destination::output(1);
        }
        self.bucket.remove(packet);
        Destination::FIRST
    }
}
