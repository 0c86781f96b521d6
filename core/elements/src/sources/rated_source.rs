//! `RatedSource`: sends copies of a packet at a rate.

use super::content::{DATA_DEFAULT, PacketContent};
use crate::queues::TokenBucket;
use weir_graph::arguments::ByteString;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, TaskRun,
};
use weir_graph::handlers;
use weir_units::BitsPerSecond;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RatedSource",
    ports: "0/1",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::CLOCK.and(Effects::CONTROL),
    order: OrderDependence::Ordered,
    manual: "\
sends copies of a packet at a rate

RatedSource([DATA, RATE, LIMIT, ACTIVE, keywords LENGTH, BANDWIDTH, STOP])

RatedSource sends LIMIT packets with the bytes DATA, RATE of them each second. Each has the time at which it was sent. \
A token bucket keeps the rate: it is full at the start, and has room for the packets of 10 ms, at least for two.

Arguments:
  DATA       the bytes of a packet. Default: a text of 64 bytes.
  RATE       packets per second. Default 10.
  LIMIT      the number of packets; negative for no limit. Default -1.
  ACTIVE     false: sends no packets. Default true.
  LENGTH     the length of a packet: DATA is cut, or repeated. Default: the length of DATA. Older name: DATASIZE.
  BANDWIDTH  instead of RATE: as many packets as this bandwidth has room for
  STOP       true: stops the driver after the last packet. Default false.

Handlers:
  count   r   the number of sent packets
  reset   w   sets the count to 0, and goes on
  active  rw  the argument
  rate    rw  the argument
  limit   rw  the argument
  data    rw  the argument
  length  rw  the length of a packet; older name: datasize",
    build: |cx| {
        let mut args = cx.arguments();
        let data = args.either("DATA").or(ByteString(DATA_DEFAULT.to_vec())).0;
        let rate: u32 = args.either("RATE").or(10);
        let limit: i64 = args.either("LIMIT").or(-1);
        let active = args.either("ACTIVE").or(true);
        let length = PacketContent::read_length(&mut args);
        let bandwidth: Option<BitsPerSecond> = args.keyword("BANDWIDTH").optional();
        let stop = args.keyword("STOP").or(false);
        args.end()?;
        let content = PacketContent::new(data, length);
        let rate = match bandwidth {
            Some(BitsPerSecond(bits)) if bits > 0 => bits / 8 / content.length().max(1) as u64,
            _ => u64::from(rate),
        };
        // Click sets one token, but counts the time since its start as well, so its bucket is full, too.
        let bucket = TokenBucket::new(rate, burst(rate));
        Ok(BuiltElement::emitting(RatedSource { content, bucket, limit, active, stop, count: 0 }))
    },
};

/// Returns the capacity of the bucket for a rate: the packets of 10 ms, at least two.
fn burst(rate: u64) -> u64 {
    (rate / 100).max(2)
}

struct RatedSource {
    content: PacketContent,
    bucket: TokenBucket,
    /// Negative for no limit.
    limit: i64,
    active: bool,
    stop: bool,
    count: u64,
}

impl RatedSource {
    fn is_over(&self) -> bool {
        u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit)
    }

    /// Returns a packet, if it is time for one.
    fn next(&mut self, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let now = cx.services.now();
        self.bucket.refill(now);
        if !self.bucket.contains(1) {
            return None;
        }
        self.bucket.remove(1);
        self.count += 1;
        let mut packet = self.content.packet(cx.services);
        packet.set_time(now);
        Some(packet)
    }
}

impl Element for RatedSource {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if cx.ports().outputs_push[0] {
            cx.add_task(self.active);
        }
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        (!self.stop).then_some(Effects::CLOCK)
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let mut work = 0;
        while self.active && work < most && !self.is_over() {
            let Some(packet) = self.next(cx) else {
                if let Some(at) = self.bucket.time_of(1) {
                    cx.set_timer(at, 0);
                }
                return TaskRun { work, again: false };
            };
            cx.emit(0, packet);
            work += 1;
        }
        if work == 0 && self.active && self.stop {
            cx.services.stop();
        }
        TaskRun { work, again: work > 0 }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    handlers! {
        "count": counter "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "reset": "sets the count to 0, and goes on",
            write |this, _, cx| {
                this.count = 0;
                this.bucket.set_level(1);
                cx.schedule();
                Ok(String::new())
            };
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                let was_active = std::mem::replace(&mut this.active, crate::values::read(value)?);
                if this.active && !was_active {
                    // The time without packets is not made up for.
                    let now = cx.services.now();
                    this.bucket.refill(now);
                    this.bucket.set_level(1);
                }
                cx.schedule();
                Ok(String::new())
            };
        "rate": "packets per second",
            read |this, _, _| Ok(this.bucket.rate().to_string()),
            write |this, value, cx| {
                let rate = u64::from(crate::values::read::<u32>(value)?);
                this.bucket.set_rate(rate, burst(rate));
                cx.schedule();
                Ok(String::new())
            };
        "limit": "the number of packets",
            read |this, _, _| Ok(this.limit.to_string()),
            write |this, value, cx| {
                this.limit = crate::values::read(value)?;
                cx.schedule();
                Ok(String::new())
            };
        "data": "the bytes of a packet",
            read |this, _, _| Ok(String::from_utf8_lossy(this.content.data()).into_owned()),
            write |this, value, _| {
                this.content.set_data(crate::values::read::<ByteString>(value)?.0);
                Ok(String::new())
            };
        "length": "the length of a packet",
            read |this, _, _| Ok(this.content.length().to_string()),
            write |this, value, _| this.content.write_length(value);
        "datasize": "the older name of length",
            read |this, _, _| Ok(this.content.length().to_string()),
            write |this, value, _| this.content.write_length(value);
    }
}

impl EmittingElement for RatedSource {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if !self.active {
            return None;
        }
        if self.is_over() {
            if self.stop {
                cx.services.stop();
            }
            return None;
        }
        self.next(cx)
    }
}
