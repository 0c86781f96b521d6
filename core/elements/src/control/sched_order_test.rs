//! `SchedOrderTest`: records the order in which tasks run.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason, TaskRun,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: NAME,
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::SHARED.and(Effects::CONTROL),
    order: OrderDependence::Ordered,
    manual: "\
records the order in which tasks run

SchedOrderTest(ID [, keywords SIZE, LIMIT, STOP])

The task of a SchedOrderTest runs again and again, and adds ID to a list that all SchedOrderTests of a graph share. It shows \
the effect of a ScheduleInfo.

Arguments:
  ID     a number
  SIZE   the most numbers in the list, at most 1048576; the greatest of all elements counts. Default 1024.
  LIMIT  the runs of the task; 0 for no limit. Default 0.
  STOP   true: stops the driver when the list is full. Default false.

Handlers:
  order  r  the numbers, with spaces between them",
    build: |cx| {
        let mut args = cx.arguments();
        let id = args.either("ID").required();
        let size: u32 = args.keyword("SIZE").within(0..=SIZE_MAX).or(0);
        let limit = args.keyword("LIMIT").or(0);
        let stop = args.flag("STOP");
        args.end()?;
        let shared = Rc::new(RunOrder { ids: RefCell::default(), most: Cell::new(size as usize) });
        Ok(BuiltElement::emitting(SchedOrderTest { id, limit, stop, runs: 0, order: shared }))
    },
};

const NAME: &str = "SchedOrderTest";

/// The most numbers.
const SIZE_MAX: u32 = 1 << 20;
const SIZE_DEFAULT: usize = 1024;

/// The list of all elements of a graph.
struct RunOrder {
    ids: RefCell<Vec<i32>>,
    /// The most numbers; 0 for the default.
    most: Cell<usize>,
}

struct SchedOrderTest {
    id: i32,
    /// 0 for no limit.
    limit: u32,
    stop: bool,
    runs: u32,
    /// The list of the first element of the class.
    order: Rc<RunOrder>,
}

impl Element for SchedOrderTest {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        cx.add_task(true);
        for index in 0..cx.element() {
            let Some(name) = cx.element_name(index).map(str::to_owned) else { continue };
            if cx.read_handler(&format!("{name}.class"))? != NAME {
                continue;
            }
            if let Some(Ok(first)) = cx.shared_state(index).map(Rc::downcast::<RunOrder>) {
                first.most.set(first.most.get().max(self.order.most.get()));
                self.order = first;
                break;
            }
        }
        Ok(())
    }

    fn shared_state(&self) -> Option<Rc<dyn std::any::Any>> {
        Some(Rc::clone(&self.order) as Rc<dyn std::any::Any>)
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let most = match self.order.most.get() {
            0 => SIZE_DEFAULT,
            most => most,
        };
        let mut ids = self.order.ids.borrow_mut();
        if ids.len() < most {
            ids.push(self.id);
        } else if self.stop {
            cx.services.stop();
        }
        self.runs = self.runs.saturating_add(1);
        TaskRun { work: 1, again: self.limit == 0 || self.runs < self.limit }
    }

    handlers! {
        "order": "the numbers of the tasks that ran",
            read |this, _, _| {
                let mut text = String::new();
                for id in this.order.ids.borrow().iter() {
                    _ = write!(text, "{id} ");
                }
                text.truncate(text.trim_end().len());
                Ok(text + "\n")
            };
    }
}

impl EmittingElement for SchedOrderTest {}
