//! `ARPTable`: Ethernet addresses that queriers share.

use super::neighbor_cache::{NeighborAddress, NeighborCache, NeighborLimits, NeighborRow};
use crate::values;
use core::net::Ipv4Addr;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ARPTable",
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
stores Ethernet addresses of IPv4 addresses

ARPTable([keywords CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT])

ARPTable is a table that several ARPQuerier elements can share. It has no ports. A new entry of a full table replaces the \
oldest one without a known address, else the oldest one, and a packet that exceeds CAPACITY replaces packets of the oldest entries. Expired entries go when an entry \
is added, a packet exceeds CAPACITY, or a handler is read.

Arguments:
  CAPACITY               the most packets that wait for an address. Default 2048; 0 for 1048576.
  ENTRY_CAPACITY         the most entries. Default 65536; 0 for 1048576.
  ENTRY_PACKET_CAPACITY  the most packets that wait for one address. Default 0: up to CAPACITY.
  CAPACITY_SLIM_FACTOR   a packet that exceeds CAPACITY replaces CAPACITY divided by this number of packets. Default 2.
  TIMEOUT                the time after which an entry expires; 0 for never. Default 300 s.

Handlers:
  table   r  a line for each entry, oldest first: address, 1 if it is valid, Ethernet address, age in seconds
  drops   r  the number of packets that were discarded because of time or capacity
  count   r  the number of entries
  length  r  the number of packets that wait
  insert  w  IP ETH: sets an entry
  delete  w  IP: makes an entry not valid
  clear   w  removes all entries",
    build: |cx| {
        let mut args = cx.arguments();
        let limits = NeighborLimits::read(&mut args, 300, 0);
        args.end()?;
        Ok(BuiltElement::emitting(ArpTable { state: Rc::new(RefCell::new(NeighborCache::new(limits))) }))
    },
};

struct ArpTable {
    state: Rc<RefCell<NeighborCache<Ipv4Addr>>>,
}

/// Handles `insert` of tables and queriers.
pub fn insert(
    state: &RefCell<NeighborCache<Ipv4Addr>>,
    value: &str,
    cx: &mut ElementContext<'_>,
) -> Result<String, Reason> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let [ip, ethernet] = words[..] else { return Err("expected: IP ETH".to_owned()) };
    set(state, values::read(ip)?, values::read(ethernet)?, cx);
    Ok(String::new())
}

/// Handles `delete` of tables and queriers.
pub fn delete(
    state: &RefCell<NeighborCache<Ipv4Addr>>,
    value: &str,
    cx: &mut ElementContext<'_>,
) -> Result<String, Reason> {
    set(state, values::read(value)?, EthernetAddress([0xff; 6]), cx);
    Ok(String::new())
}

fn set(
    state: &RefCell<NeighborCache<Ipv4Addr>>,
    ip: Ipv4Addr,
    ethernet: EthernetAddress,
    cx: &mut ElementContext<'_>,
) {
    let now = cx.services.coarse_now();
    state.borrow_mut().insert(ip, ethernet, now, false, &mut cx.services.pool);
}

/// Removes expired entries, and returns a value of the table.
pub fn current<A: NeighborAddress, T: ToString>(
    state: &RefCell<NeighborCache<A>>,
    cx: &mut ElementContext<'_>,
    value: impl FnOnce(&NeighborCache<A>) -> T,
) -> Result<String, Reason> {
    let mut state = state.borrow_mut();
    state.expire(cx.services.coarse_now(), &mut cx.services.pool);
    Ok(value(&state).to_string())
}

/// Returns the table as text.
pub fn table(
    state: &RefCell<NeighborCache<Ipv4Addr>>,
    cx: &mut ElementContext<'_>,
) -> Result<String, Reason> {
    let now = cx.services.coarse_now();
    current(state, cx, |state| {
        let line = |row: NeighborRow<Ipv4Addr>| {
            let NeighborRow { ip, is_known, ethernet, age } = row;
            let age = values::seconds(Timestamp(age.0 - age.0 % 1000));
            format!("{ip} {} {ethernet} {age}\n", u8::from(is_known))
        };
        state.rows(now).map(line).collect::<String>()
    })
}

impl Element for ArpTable {
    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.state) as Rc<dyn Any>)
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<ArpTable>() {
            self.state.borrow_mut().take(&mut earlier.state.borrow_mut());
        }
    }

    fn can_reconfigure(&self) -> bool {
        true
    }

    fn reconfigure(&mut self, other: &mut dyn Any, _: &mut ElementContext<'_>) -> bool {
        let Some(other) = other.downcast_mut::<ArpTable>() else { return false };
        self.state.borrow_mut().take_limits(&other.state.borrow());
        true
    }

    handlers! {
        "table": "the entries", read |this, _, cx| table(&this.state, cx);
        "drops": counter "the number of discarded packets", read |this, _, cx| current(&this.state, cx, NeighborCache::drops);
        "count": gauge "the number of entries", read |this, _, cx| current(&this.state, cx, NeighborCache::count);
        "length": gauge "the number of packets that wait", read |this, _, cx| current(&this.state, cx, NeighborCache::length);
        "insert": "sets an entry", write |this, value, cx| insert(&this.state, value, cx);
        "delete": "makes an entry not valid", write |this, value, cx| delete(&this.state, value, cx);
        "clear": "removes all entries",
            write |this, _, cx| {
                this.state.borrow_mut().clear(&mut cx.services.pool);
                Ok(String::new())
            };
    }
}

impl EmittingElement for ArpTable {}
