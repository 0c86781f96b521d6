//! `RatedUnqueue` and `BandwidthRatedUnqueue`: pull packets at a rate and push them.

use super::rated_bucket::{RatedBucket, RatedQuantity};
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason, TaskRun, WaitsFor,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class whose rate is in packets.
pub static RATED: ElementClass = ElementClass {
    name: "RatedUnqueue",
    ports: "1/1",
    processing: "l/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
pulls packets at a rate, and pushes them

RatedUnqueue(RATE [, keywords BURST_DURATION, BURST_SIZE, ACTIVE])

RatedUnqueue pulls packets, and pushes each to its output, as long as a token bucket has a token for it.

Arguments:
  RATE            packets per second
  BURST_DURATION  the time in which the bucket gets full. Default 20ms.
  BURST_SIZE      the capacity of the bucket, in packets. Not with BURST_DURATION.
  ACTIVE          false: pulls no packets. Default true.

Handlers:
  rate    rw  the argument
  active  rw  the argument
  count   r   the number of packets
  calls   r   the runs of the task, and how they ended",
    build: |cx| build(cx, RatedQuantity::Packets),
};

/// The class whose rate is in bytes.
pub static BANDWIDTH_RATED: ElementClass = ElementClass {
    name: "BandwidthRatedUnqueue",
    manual: "\
pulls packets at a bandwidth, and pushes them

BandwidthRatedUnqueue(RATE [, keywords BURST_DURATION, BURST_BYTES, ACTIVE])

BandwidthRatedUnqueue pulls packets, and pushes each to its output, as long as a token bucket is not empty. A packet \
takes its length in bytes from the bucket, which may leave less than nothing.

Arguments:
  RATE            the bandwidth, such as 10Mbps; without a unit in bytes per second
  BURST_DURATION  the time in which the bucket gets full. Default 20ms.
  BURST_BYTES     the capacity of the bucket, in bytes. Not with BURST_DURATION.
  ACTIVE          false: pulls no packets. Default true.

Handlers:
  rate    rw  the argument
  active  rw  the argument
  count   r   the number of packets
  calls   r   the runs of the task, and how they ended",
    build: |cx| build(cx, RatedQuantity::Bytes),
    ..RATED
};

fn build(cx: &mut BuildContext<'_>, quantity: RatedQuantity) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let bucket = RatedBucket::read(quantity, &mut args);
    let active = args.keyword("ACTIVE").or(true);
    args.end()?;
    Ok(BuiltElement::emitting(RatedUnqueue {
        bucket,
        active,
        waits_for: WaitsFor::Nothing,
        runs: 0,
        empty_runs: 0,
        count: 0,
        failed_pulls: 0,
    }))
}

struct RatedUnqueue {
    bucket: RatedBucket,
    active: bool,
    waits_for: WaitsFor,
    runs: u64,
    empty_runs: u64,
    count: u64,
    failed_pulls: u64,
}

impl Element for RatedUnqueue {
    reconfigured_fields!(bucket, active; then |_, cx| cx.schedule());

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(self.active);
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        self.runs += 1;
        if !self.active {
            return TaskRun { work: 0, again: false };
        }
        let now = cx.services.now();
        self.bucket.refill(now);
        let mut work = 0;
        let mut again = true;
        while work < most {
            if !self.bucket.has_room() {
                if let Some(at) = self.bucket.time_of_room() {
                    cx.set_timer(at, 0);
                }
                again = false;
                break;
            }
            let Some(packet) = cx.pull(0) else {
                self.failed_pulls += 1;
                again = cx.is_active(&self.waits_for);
                break;
            };
            self.bucket.remove(&packet);
            cx.emit(0, packet);
            work += 1;
        }
        self.count += work as u64;
        self.empty_runs += u64::from(work == 0);
        TaskRun { work, again }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    handlers! {
        "rate": "packets or bits per second",
            read |this, _, _| Ok(this.bucket.rate_text()),
            write |this, value, cx| {
                let done = this.bucket.write_rate(value)?;
                cx.schedule();
                Ok(done)
            };
        "active": "false if no packets are pulled",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                cx.schedule();
                Ok(String::new())
            };
        "count": counter "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "calls": "the runs of the task, and how they ended",
            read |this, _, _| Ok(format!(
                "{} calls to run_task()\n{} empty runs\n{} pushes\n{} failed pulls\n",
                this.runs, this.empty_runs, this.count, this.failed_pulls
            ));
    }
}

impl EmittingElement for RatedUnqueue {}
