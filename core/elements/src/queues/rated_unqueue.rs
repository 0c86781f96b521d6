//! `RatedUnqueue` and `BandwidthRatedUnqueue`: pull packets at a rate and push them.

use super::rate::TokenBucket;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason, TaskRun, WaitsFor,
};
use weir_graph::{handlers, reconfigured_fields};
use weir_units::{BitsPerSecond, Nanos};

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
    build: |cx| build(cx, false),
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
  rate    rw  the argument, in bits per second with the unit bps
  active  rw  the argument
  count   r   the number of packets
  calls   r   the runs of the task, and how they ended",
    build: |cx| build(cx, true),
    ..RATED
};

/// The time in which a bucket gets full.
const BURST_DURATION: Nanos = Nanos(20_000_000);

/// The capacity of a bucket.
#[derive(Clone, Copy, Debug)]
enum Burst {
    Duration(Nanos),
    Tokens(u32),
}

impl Burst {
    fn tokens(self, rate: u64) -> u64 {
        match self {
            Burst::Duration(Nanos(nanos)) => {
                let tokens = u128::from(rate) * u128::from(nanos) / u128::from(Nanos::SECOND.0);
                u64::try_from(tokens).unwrap_or(u64::MAX).max(1)
            }
            Burst::Tokens(tokens) => u64::from(tokens).max(1),
        }
    }
}

fn build(cx: &mut BuildContext<'_>, counts_bytes: bool) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let rate = if counts_bytes {
        args.either::<BitsPerSecond>("RATE").required().0 / 8
    } else {
        u64::from(args.either::<u32>("RATE").required())
    };
    let duration: Option<Nanos> = args.keyword("BURST_DURATION").optional();
    let size_name = if counts_bytes { "BURST_BYTES" } else { "BURST_SIZE" };
    let size: Option<u32> = args.keyword(size_name).optional();
    let active = args.keyword("ACTIVE").or(true);
    if duration.is_some() && size.is_some() {
        args.error(size_name, "not together with BURST_DURATION");
    }
    args.end()?;
    let burst = size.map_or(Burst::Duration(duration.unwrap_or(BURST_DURATION)), Burst::Tokens);
    Ok(BuiltElement::emitting(RatedUnqueue {
        counts_bytes,
        bucket: TokenBucket::new(rate, burst.tokens(rate)),
        burst,
        active,
        waits_for: WaitsFor::Nothing,
        runs: 0,
        empty_runs: 0,
        count: 0,
        failed_pulls: 0,
    }))
}

struct RatedUnqueue {
    counts_bytes: bool,
    bucket: TokenBucket,
    burst: Burst,
    active: bool,
    waits_for: WaitsFor,
    runs: u64,
    empty_runs: u64,
    count: u64,
    failed_pulls: u64,
}

impl RatedUnqueue {
    /// The tokens that have to be there for a packet.
    fn needed(&self) -> u64 {
        u64::from(!self.counts_bytes)
    }

    fn set_rate(&mut self, value: &str, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        let rate = match self.counts_bytes {
            true => crate::values::read::<BitsPerSecond>(value)?.0 / 8,
            false => u64::from(crate::values::read::<u32>(value)?),
        };
        self.bucket.set_rate(rate, self.burst.tokens(rate));
        cx.schedule();
        Ok(String::new())
    }
}

impl Element for RatedUnqueue {
    reconfigured_fields!(bucket, burst, active; then |_, cx| cx.schedule());

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
            if !self.bucket.contains(self.needed()) {
                if let Some(at) = self.bucket.time_of(self.needed()) {
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
            self.bucket.remove(if self.counts_bytes { packet.len() as u64 } else { 1 });
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
            read |this, _, _| Ok(match this.counts_bytes {
                true => format!("{}bps", u128::from(this.bucket.rate()) * 8),
                false => this.bucket.rate().to_string(),
            }),
            write |this, value, cx| this.set_rate(value, cx);
        "active": "false if no packets are pulled",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                cx.schedule();
                Ok(String::new())
            };
        "count": "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "calls": "the runs of the task, and how they ended",
            read |this, _, _| Ok(format!(
                "{} calls to run_task()\n{} empty runs\n{} pushes\n{} failed pulls\n",
                this.runs, this.empty_runs, this.count, this.failed_pulls
            ));
    }
}

impl EmittingElement for RatedUnqueue {}
