//! `Discard`: discards all packets, pushed or pulled.

use weir_graph::engine::{
    Batch, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, Reason, TaskRun, WaitsFor, most_packets,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Discard",
    ports: "1/0",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
discards all packets

Discard([keywords ACTIVE, BURST])

Discard discards every packet that it gets. At a pull connection it pulls whenever there may be packets.

Arguments:
  ACTIVE  false: pulls no packets. Default true.
  BURST   the most packets of one turn of its task; 0 for no limit. Default 1.

Handlers:
  count         r   the number of discarded packets
  active        rw  the argument
  burst         rw  the argument
  reset_counts  w   sets the count to 0",
    build: |cx| {
        let mut args = cx.arguments();
        let active = args.keyword("ACTIVE").or(true);
        let burst: u32 = args.keyword("BURST").or(1);
        args.end()?;
        let waits_for = WaitsFor::Nothing;
        Ok(BuiltElement::emitting(Discard { active, burst, count: 0, waits_for }))
    },
};

struct Discard {
    active: bool,
    /// 0 for no limit.
    burst: u32,
    count: u64,
    waits_for: WaitsFor,
}

impl Element for Discard {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if cx.ports().inputs_pull[0] {
            self.waits_for = cx.wait_for_packets(0);
            cx.add_task(self.active);
        }
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let burst = if self.burst == 0 { usize::MAX } else { self.burst as usize };
        let most = if self.active { most_packets(most, burst) } else { 0 };
        let work = cx.pull_each(0, most, |cx, packet| cx.services.pool.discard(packet));
        self.count += work as u64;
        TaskRun { work, again: self.active && (work > 0 || cx.is_active(&self.waits_for)) }
    }

    handlers! {
        "count": counter "the number of discarded packets", read |this, _, _| Ok(this.count.to_string());
        "active": "false if no packets are pulled",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                if this.active {
                    cx.schedule();
                }
                Ok(String::new())
            };
        "burst": "the most packets of one turn", field burst;
        "reset_counts": "sets the count to 0",
            write |this, _, _| {
                this.count = 0;
                Ok(String::new())
            };
    }
}

impl EmittingElement for Discard {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.count += 1;
        cx.services.pool.discard(packet);
    }

    fn push_batch(&mut self, _: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) {
        self.count += batch.len() as u64;
        batch.take_packets().for_each(|packet| cx.services.pool.discard(packet));
    }
}
