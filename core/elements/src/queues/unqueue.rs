//! `Unqueue`: pulls packets and pushes them.

use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason, TaskRun, WaitsFor, most_packets,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Unqueue",
    ports: "1/1",
    processing: "l/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
pulls packets and pushes them

Unqueue([BURST, keywords ACTIVE, LIMIT])

Unqueue pulls packets as fast as it can, and pushes each to its output.

Arguments:
  BURST   the packets of one turn; -1 for all. Default 1.
  ACTIVE  false: pulls no packets. Default true.
  LIMIT   the number of packets; -1 for no limit. Default -1.

Handlers:
  count   r   the number of packets
  active  rw  the argument
  burst   rw  the argument
  limit   rw  the argument
  reset   w   sets the count to 0; also reset_counts",
    build: |cx| {
        let mut args = cx.arguments();
        let burst: i32 = args.either("BURST").within(-1..).or(1);
        let active = args.keyword("ACTIVE").or(true);
        let limit: i64 = args.keyword("LIMIT").or(-1);
        args.end()?;
        Ok(BuiltElement::emitting(Unqueue { burst, active, limit, count: 0, waits_for: WaitsFor::Nothing }))
    },
};

struct Unqueue {
    /// Negative for all.
    burst: i32,
    active: bool,
    /// Negative for no limit.
    limit: i64,
    count: u64,
    waits_for: WaitsFor,
}

impl Unqueue {
    fn reset(&mut self, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        self.count = 0;
        cx.schedule();
        Ok(String::new())
    }

    fn most(&self, most: usize) -> usize {
        let burst = usize::try_from(self.burst).unwrap_or(usize::MAX);
        let left = u64::try_from(self.limit).map_or(u64::MAX, |limit| limit.saturating_sub(self.count));
        let most = if burst == 0 { 0 } else { most_packets(most, burst) };
        most.min(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

impl Element for Unqueue {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(self.active);
        Ok(())
    }

    fn burst(&self) -> usize {
        usize::try_from(self.burst).unwrap_or(usize::MAX)
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let most = self.most(most);
        let work = cx.pull_each(0, if self.active { most } else { 0 }, |cx, packet| cx.emit(0, packet));
        self.count += work as u64;
        TaskRun { work, again: self.active && most > 0 && (work == most || cx.is_active(&self.waits_for)) }
    }

    handlers! {
        "count": counter "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "active": "false if no packets are pulled",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                cx.schedule();
                Ok(String::new())
            };
        "burst": "the packets of one turn",
            read |this, _, _| Ok(this.burst.to_string()),
            write |this, value, cx| {
                this.burst = crate::values::read(value)?;
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
        "reset": "sets the count to 0", write |this, _, cx| this.reset(cx);
        "reset_counts": "sets the count to 0", write |this, _, cx| this.reset(cx);
    }
}

impl EmittingElement for Unqueue {}
