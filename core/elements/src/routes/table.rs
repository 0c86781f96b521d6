//! The table of routes behind each lookup: the routes in the order in which they were added, and their next hops.

use super::route::{IpRoute, RouteKey, RouteTarget};
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use weir_graph::engine::Destination;

/// The number of a next hop in [`NextHops`].
pub type HopNumber = u32;

/// A route with the number of its next hop.
#[derive(Clone, Copy, Debug)]
pub struct StoredRoute {
    pub route: IpRoute,
    pub hop: HopNumber,
}

/// A route of a table.
pub trait TableRow {
    /// The destinations: one route of a table has them.
    type Key: Copy + Ord;

    /// Returns the destinations.
    fn key(&self) -> Self::Key;
}

impl TableRow for StoredRoute {
    type Key = RouteKey;

    fn key(&self) -> RouteKey {
        self.route.key
    }
}

/// All routes.
#[derive(Debug)]
pub struct RouteTable<R: TableRow = StoredRoute> {
    /// The routes in the order of adding. A removed one leaves a place, which the next one takes.
    places: Vec<Option<R>>,
    free: BTreeSet<usize>,
    by_key: BTreeMap<R::Key, usize>,
}

impl<R: TableRow> Default for RouteTable<R> {
    fn default() -> Self {
        Self { places: Vec::new(), free: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<R: TableRow> RouteTable<R> {
    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the route with exactly these destinations.
    pub fn get(&self, key: R::Key) -> Option<&R> {
        self.places[*self.by_key.get(&key)?].as_ref()
    }

    /// Adds a route, or replaces that with the same destinations.
    pub fn set(&mut self, stored: R) {
        let key = stored.key();
        let place = match self.by_key.get(&key) {
            Some(place) => *place,
            None => self.free.pop_first().unwrap_or(self.places.len()),
        };
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(stored);
        self.by_key.insert(key, place);
    }

    /// Removes a route.
    pub fn remove(&mut self, key: R::Key) -> Option<R> {
        let place = self.by_key.remove(&key)?;
        self.free.insert(place);
        self.places[place].take()
    }

    /// Removes all routes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the routes in the order of adding.
    pub fn in_order(&self) -> impl Iterator<Item = &R> {
        self.places.iter().flatten()
    }
}

impl RouteTable {
    /// Returns the routes by key, with a prefix before all prefixes within it.
    pub fn by_prefix(&self) -> impl Iterator<Item = &StoredRoute> {
        self.by_key.values().filter_map(|place| self.places[*place].as_ref())
    }

    /// Returns the routes to prefixes within a prefix, but not that to the prefix itself.
    pub fn within(&self, key: RouteKey) -> impl Iterator<Item = &StoredRoute> {
        let from = (
            std::ops::Bound::Excluded(key),
            std::ops::Bound::Included(RouteKey { prefix: key.last(), mask: u32::MAX }),
        );
        self.by_key.range(from).filter_map(|(_, place)| self.places[*place].as_ref())
    }

    /// Returns the next hop of the longest prefix that contains a prefix and has at least a length, itself included;
    /// 0 if there is none. At most 32 look-ups.
    pub fn covering(&self, key: RouteKey, shortest: u32) -> Option<&StoredRoute> {
        (shortest..=key.length()).rev().find_map(|length| self.get(RouteKey::of(key.prefix, length)))
    }
}

/// A next hop, as `route` needs it.
#[derive(Clone, Copy, Debug)]
pub struct NextHop {
    /// The gateway in network byte order.
    pub gateway: [u8; 4],
    pub has_gateway: bool,
    pub destination: Destination,
}

impl NextHop {
    /// The hop of packets without a route.
    const NONE: NextHop = NextHop { gateway: [0; 4], has_gateway: false, destination: Destination::DISCARD };

    fn of(target: RouteTarget) -> Self {
        Self {
            gateway: target.gateway.octets(),
            has_gateway: target.gateway != Ipv4Addr::UNSPECIFIED,
            destination: Destination::output(usize::from(target.output)),
        }
    }
}

/// The next hops of all routes, each once. Number 0 is that of the default route, also if there is no default route.
#[derive(Debug)]
pub struct NextHops {
    hops: Vec<NextHop>,
    users: Vec<u32>,
    free: Vec<HopNumber>,
    numbers: BTreeMap<RouteTarget, HopNumber>,
}

impl Default for NextHops {
    fn default() -> Self {
        Self { hops: vec![NextHop::NONE], users: vec![0], free: Vec::new(), numbers: BTreeMap::new() }
    }
}

impl NextHops {
    /// Returns a next hop; that of the default route for a number that is none.
    #[inline]
    pub fn get(&self, number: HopNumber) -> &NextHop {
        self.hops.get(number as usize).unwrap_or(&NextHop::NONE)
    }

    /// Returns the number that [`NextHops::take`] would give a next hop.
    pub fn number_for(&self, target: RouteTarget) -> HopNumber {
        let next = HopNumber::try_from(self.hops.len()).unwrap_or(HopNumber::MAX);
        self.numbers.get(&target).or(self.free.last()).copied().unwrap_or(next)
    }

    /// Returns the number of a next hop, and counts one user more.
    pub fn take(&mut self, target: RouteTarget) -> HopNumber {
        let number = self.number_for(target);
        let place = number as usize;
        if self.numbers.insert(target, number).is_none() {
            self.free.pop();
            if place == self.hops.len() {
                self.hops.push(NextHop::NONE);
                self.users.push(0);
            }
            self.hops[place] = NextHop::of(target);
        }
        self.users[place] += 1;
        number
    }

    /// Counts one user less.
    pub fn release(&mut self, target: RouteTarget) {
        let Some(number) = self.numbers.get(&target).copied() else { return };
        self.users[number as usize] -= 1;
        if self.users[number as usize] == 0 {
            self.numbers.remove(&target);
            self.free.push(number);
        }
    }

    /// Sets the next hop of the default route, number 0.
    pub fn set_default(&mut self, target: Option<RouteTarget>) {
        self.hops[0] = target.map_or(NextHop::NONE, NextHop::of);
    }
}
