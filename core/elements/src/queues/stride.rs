//! Stride scheduling among the ports of an element, with a number of tickets for each.
//!
//! - C. A. Waldspurger, W. E. Weihl: "Stride Scheduling: Deterministic Proportional-Share Resource Management",
//!   MIT/LCS/TM-528, 1995.

use weir_graph::arguments::{ArgumentErrors, ElementArguments};
use weir_graph::engine::{BuildContext, Reason, TICKETS_MAX};

/// The stride of a port with one ticket.
const STRIDE_ONE: u64 = 1 << 16;

/// The tickets of ports, and the order in which their turns come.
#[derive(Clone, Debug, Default)]
pub struct StrideOrder {
    tickets: Vec<u32>,
    passes: Vec<u64>,
    /// The ports with tickets, by their passes. Of equal ones, the one that was inserted last comes first.
    order: Vec<usize>,
    /// The names of the handlers.
    handlers: Vec<String>,
}

impl StrideOrder {
    /// Reads the arguments: the tickets of each port.
    ///
    /// # Errors
    ///
    /// Fails with all errors of the arguments.
    pub fn read(cx: &BuildContext<'_>, ports: usize, side: &str) -> Result<Self, ArgumentErrors> {
        let mut args = cx.arguments();
        let texts = args.rest();
        if texts.len() != ports {
            args.error("", format!("need {ports} arguments, one per {side} port"));
        }
        let mut tickets = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            tickets.push(read_tickets(index, cx.read(text), &mut args));
        }
        args.end()?;
        Ok(Self::new(tickets))
    }

    fn new(tickets: Vec<u32>) -> Self {
        let passes = tickets.iter().map(|tickets| stride(*tickets)).collect();
        let handlers = (0..tickets.len()).map(|port| format!("tickets{port}")).collect();
        let mut new = Self { passes, handlers, tickets, order: Vec::new() };
        for port in (0..new.tickets.len()).rev().filter(|port| new.tickets[*port] > 0).collect::<Vec<_>>() {
            new.insert(port);
        }
        new
    }

    fn insert(&mut self, port: usize) {
        let at = self.order.partition_point(|other| self.passes[*other] < self.passes[port]);
        self.order.insert(at, port);
    }

    /// Gives ports their turns, until one of them takes it.
    pub fn take_turns<T>(&mut self, mut turn: impl FnMut(usize) -> Option<T>) -> Option<T> {
        let mut result = None;
        let mut turns = 0;
        while result.is_none()
            && let Some(port) = self.order.get(turns).copied()
        {
            result = turn(port);
            self.passes[port] = self.passes[port].saturating_add(stride(self.tickets[port]));
            turns += 1;
        }
        let turned: Vec<usize> = self.order.drain(..turns).collect();
        turned.into_iter().for_each(|port| self.insert(port));
        result
    }

    /// Gives the next port its turn, and returns it; `None` if no port has tickets.
    pub fn next(&mut self) -> Option<usize> {
        self.take_turns(Some)
    }

    fn set_tickets(&mut self, port: usize, tickets: u32) {
        let before = std::mem::replace(&mut self.tickets[port], tickets);
        if before > 0 && tickets == 0 {
            self.order.retain(|other| *other != port);
        } else if before == 0 && tickets > 0 {
            let first = self.order.first().map(|first| self.passes[*first]);
            self.passes[port] = first.map_or(0, |pass| pass.saturating_add(stride(tickets)));
            self.insert(port);
        }
    }

    /// Takes the tickets of another order with as many ports.
    pub fn set_all(&mut self, other: &StrideOrder) {
        for port in 0..self.tickets.len().min(other.tickets.len()) {
            self.set_tickets(port, other.tickets[port]);
        }
    }

    /// Returns the names of the handlers: one for each port.
    pub fn handlers(&self) -> &[String] {
        &self.handlers
    }

    fn port_of(&self, handler: &str) -> Option<usize> {
        let port: usize = handler.strip_prefix("tickets")?.parse().ok()?;
        self.handlers.get(port).filter(|name| *name == handler).map(|_| port)
    }

    /// Returns the value of a handler; `None` if there is none of this name.
    pub fn read_handler(&self, name: &str) -> Option<Result<String, Reason>> {
        Some(Ok(self.tickets[self.port_of(name)?].to_string()))
    }

    /// Sets the tickets of a port by its handler; `None` if there is none of this name.
    pub fn write_handler(&mut self, name: &str, value: &str) -> Option<Result<String, Reason>> {
        let port = self.port_of(name)?;
        Some(crate::values::read::<u32>(value).map(|tickets| {
            self.set_tickets(port, tickets.min(TICKETS_MAX));
            String::new()
        }))
    }
}

/// Makes the functions of an element whose field `order` is a [`StrideOrder`]: its handlers, and its other arguments.
macro_rules! stride_handlers {
    () => {
        fn can_reconfigure(&self) -> bool {
            true
        }

        fn reconfigure(
            &mut self,
            other: &mut dyn std::any::Any,
            _: &mut weir_graph::engine::ElementContext<'_>,
        ) -> bool {
            let Some(other) = other.downcast_ref::<Self>() else { return false };
            self.order.set_all(&other.order);
            true
        }

        fn port_handlers(&self) -> &[String] {
            self.order.handlers()
        }

        fn read_handler(
            &mut self,
            name: &str,
            _: &str,
            _: &mut weir_graph::engine::ElementContext<'_>,
        ) -> Option<Result<String, weir_graph::engine::Reason>> {
            self.order.read_handler(name)
        }

        fn write_handler(
            &mut self,
            name: &str,
            value: &str,
            _: &mut weir_graph::engine::ElementContext<'_>,
        ) -> Option<Result<String, weir_graph::engine::Reason>> {
            self.order.write_handler(name, value)
        }
    };
}
pub(crate) use stride_handlers;

fn stride(tickets: u32) -> u64 {
    STRIDE_ONE.checked_div(tickets.into()).unwrap_or(0)
}

fn read_tickets(index: usize, tickets: Option<i32>, args: &mut ElementArguments<'_, '_>) -> u32 {
    let Some(tickets) = tickets else {
        args.error("", format!("argument {index} should be number of tickets (integer)"));
        return 0;
    };
    u32::try_from(tickets)
        .unwrap_or_else(|_| {
            args.error("", format!("argument {index} (number of tickets) must be >= 0"));
            0
        })
        .min(TICKETS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_get_turns_in_proportion_to_their_tickets() {
        let mut order = StrideOrder::new(vec![1, 3, 0, 2]);
        let mut turns = [0; 4];
        for _ in 0..6000 {
            turns[order.next().unwrap()] += 1;
        }
        assert_eq!(turns, [1000, 3000, 0, 2000]);
        assert_eq!(StrideOrder::new(vec![0, 0]).next(), None);
    }

    #[test]
    fn a_port_that_passes_its_turn_on_is_not_asked_again() {
        let mut order = StrideOrder::new(vec![5, 1]);
        let mut asked = Vec::new();
        let taken = order.take_turns(|port| {
            asked.push(port);
            (port == 1).then_some(())
        });
        assert_eq!((taken, asked), (Some(()), vec![0, 1]));
        assert_eq!(order.take_turns(|_| None::<()>), None);
    }

    #[test]
    fn tickets_can_be_taken_and_given() {
        let mut order = StrideOrder::new(vec![1, 1]);
        assert!(
            order.write_handler("tickets2", "1").is_none() && order.write_handler("tickets01", "1").is_none()
        );
        assert!(order.write_handler("tickets0", "-1").unwrap().is_err());
        order.write_handler("tickets0", "0").unwrap().unwrap();
        assert!((0..5).all(|_| order.next() == Some(1)));
        order.write_handler("tickets0", "99999").unwrap().unwrap();
        assert_eq!(order.read_handler("tickets0").unwrap().unwrap(), "32768");
        let turns: Vec<usize> = (0..3).filter_map(|_| order.next()).collect();
        assert!(turns.contains(&0), "{turns:?}");
    }
}
