//! Elements: what an element of a graph implements.
//!
//! There are two forms. A [`RoutingElement`] decides for each packet to which output it goes; most elements are of this
//! form, and batches go through them in one loop. An [`EmittingElement`] may keep packets, or emit several for one. Its
//! emitted packets go on when its function has returned, in the order in which it emitted them; so an element is never
//! entered again while it runs.

use super::batch::Batch;
use super::class::Effects;
use super::context::{ElementContext, Services};
use super::packet::GraphPacket;
use std::any::Any;
use std::rc::Rc;

/// The output to which a packet goes, or that it is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination(u16);

impl Destination {
    /// The packet is discarded.
    pub const DISCARD: Destination = Destination(u16::MAX);

    /// The first output.
    pub const FIRST: Destination = Destination(0);

    /// Returns an output as a destination: discards for an output beyond the most that a graph can have.
    #[inline]
    pub fn output(port: usize) -> Self {
        Self(u16::try_from(port).unwrap_or(u16::MAX))
    }

    /// Returns the number of the output; `None` for a packet that is discarded.
    #[inline]
    pub fn port(self) -> Option<usize> {
        (self != Self::DISCARD).then_some(usize::from(self.0))
    }
}

/// The result of a task's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRun {
    /// The number of packets, or of other pieces of work. 0 shows that the task had nothing to do.
    pub work: usize,
    /// The task is to run again. If not, a signal, a timer or a handler schedules it.
    pub again: bool,
}

/// The most packets of one run of a task. Packets go on when the run has ended, so their number is bounded.
pub(super) const RUN_MAX: usize = 1024;

/// Returns the number of packets for which a task may run: `most` of the driver, or more for a configured burst. With 0,
/// the driver runs the task for one packet after the other.
pub fn most_packets(most: usize, burst: usize) -> usize {
    if most == 0 { 1 } else { most.max(burst).min(RUN_MAX) }
}

/// A wrong value or a missing resource: what it is, and what to do.
pub type Reason = String;

/// Functions that every element has. Most keep the defaults.
pub trait Element: Any {
    /// Prepares the element, when all elements of the graph are configured and connected.
    ///
    /// # Errors
    ///
    /// Fails with a reason, and so does the start of the graph.
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let _ = cx;
        Ok(())
    }

    /// Returns the effects of this element, if its arguments give it others than its class states.
    fn effects(&self) -> Option<Effects> {
        None
    }

    /// Runs the element's task for at most this number of packets.
    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let _ = (most, cx);
        TaskRun { work: 0, again: false }
    }

    /// Handles the expiry of a timer, by the key that the element gave it.
    fn timer_expired(&mut self, key: u32, cx: &mut ElementContext<'_>) {
        let _ = (key, cx);
    }

    /// Returns true if this element takes over the state of an element of the same name from the configuration that it
    /// replaces. It is asked before [`Element::initialize`], which then leaves to [`Element::take_state`] what the earlier
    /// element has, such as an open file. The earlier element still runs if the new configuration turns out to be wrong.
    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let _ = earlier;
        true
    }

    /// Takes over the state of an element of the same name from the configuration that this one replaces. The clock and
    /// the system are not there yet.
    fn take_state(&mut self, earlier: &mut dyn Any, cx: &mut ElementContext<'_>) {
        let _ = (earlier, cx);
    }

    /// Returns true if the element can take other arguments while the graph runs.
    fn can_reconfigure(&self) -> bool {
        false
    }

    /// Takes the arguments of another element of its class, which was made for that. Returns false if it cannot.
    fn reconfigure(&mut self, other: &mut dyn Any, cx: &mut ElementContext<'_>) -> bool {
        let _ = (other, cx);
        false
    }

    /// Returns the signal of an element that others can pull from: active while packets may be there.
    fn nonempty_signal(&self) -> Option<super::signal::SignalId> {
        None
    }

    /// Returns the signal of an element that others can push to: active while there is room.
    fn nonfull_signal(&self) -> Option<super::signal::SignalId> {
        None
    }

    /// Returns the number of packets that the task pulls and pushes in one turn. They go on one by one if the driver runs
    /// the task for one packet.
    fn burst(&self) -> usize {
        1
    }

    /// Returns the number of packets for which there is room, in an element that stores packets.
    fn room(&self) -> Option<usize> {
        None
    }

    /// Returns the number of stored packets, in an element that stores some.
    fn stored(&self) -> Option<usize> {
        None
    }

    /// Returns true for a queue whose neighbours can be on different threads: it is made with
    /// [`BuildContext::between_threads`](super::BuildContext::between_threads) then.
    fn can_be_between_threads(&self) -> bool {
        false
    }

    /// Returns the rights that the element needs of the system, as the end of a sentence that begins with `needs`.
    fn rights(&self) -> Option<String> {
        None
    }

    /// Returns state that other elements of the graph use as well, such as a table that an argument of theirs names.
    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        None
    }

    /// Returns the element's handlers.
    fn handlers(&self) -> &'static [HandlerDefinition] {
        &[]
    }

    /// Returns the names of handlers that the element's arguments add, such as exported variables of a script.
    fn exported_handlers(&self) -> &[String] {
        &[]
    }

    /// Returns the names of handlers that can be read and written, and that the element has for each of its ports.
    fn port_handlers(&self) -> &[String] {
        &[]
    }

    /// Returns the value of a read handler, by its name; `None` for a name that is none. `argument` is what follows the
    /// name in a call, empty in most.
    fn read_handler(
        &mut self,
        name: &str,
        argument: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        let _ = (name, argument, cx);
        None
    }

    /// Calls a write handler, by its name; `None` for a name that is none.
    fn write_handler(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        let _ = (name, value, cx);
        None
    }

    /// Ends the element's work, such as by completing a file, when the driver has stopped.
    ///
    /// # Errors
    ///
    /// Fails with the reason for which a result is not complete.
    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        let _ = services;
        Ok(())
    }
}

/// A handler of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerDefinition {
    /// The name.
    pub name: &'static str,
    /// It can be read.
    pub reads: bool,
    /// It can be written.
    pub writes: bool,
    /// The kind of number that reading gives, for rates and metrics; `None` for other values.
    pub measure: Option<MeasureKind>,
    /// The value, in words.
    pub description: &'static str,
}

/// The kind of number that a handler gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureKind {
    /// A number of events, which only grows until it is set to 0.
    Counter,
    /// A present value.
    Gauge,
}

/// Makes the handlers of an element: the table, and the two functions that call them. Each line has the name, a
/// description, then `read` or `write` or both with a closure; or `field` with a field of the element, which is read and
/// written as an argument. `counter` or `gauge` before the description marks a number for rates and metrics.
///
/// A reading closure gets the element, the argument and the context, and returns a text. A writing closure gets the
/// element, the value and the context, and returns a text, mostly an empty one, or a reason.
#[macro_export]
macro_rules! handlers {
    ($($name:literal: $($measure:ident)? $description:literal
        $(, field $($field:ident).+)? $(, read $read:expr)? $(, write $write:expr)?;)*) => {
        fn handlers(&self) -> &'static [$crate::engine::HandlerDefinition] {
            &[$($crate::engine::HandlerDefinition {
                name: $name,
                reads: $crate::is_given!($($read)? $(stringify!($($field).+))?),
                writes: $crate::is_given!($($write)? $(stringify!($($field).+))?),
                measure: $crate::measure_kind!($($measure)?),
                description: $description,
            }),*]
        }

        #[allow(unused_variables, clippy::redundant_closure_call)]
        fn read_handler(
            &mut self,
            name: &str,
            argument: &str,
            cx: &mut $crate::engine::ElementContext<'_>,
        ) -> Option<Result<String, $crate::engine::Reason>> {
            match name {
                $($($name => Some(Ok(self.$($field).+.to_string())),)?)*
                $($($name => {
                    let call: fn(&mut Self, &str, &mut $crate::engine::ElementContext<'_>) -> Result<String, $crate::engine::Reason> = $read;
                    Some(call(self, argument, cx))
                })?)*
                _ => None,
            }
        }

        #[allow(unused_variables, clippy::redundant_closure_call)]
        fn write_handler(
            &mut self,
            name: &str,
            value: &str,
            cx: &mut $crate::engine::ElementContext<'_>,
        ) -> Option<Result<String, $crate::engine::Reason>> {
            match name {
                $($($name => Some($crate::arguments::read_value(value).map(|value| {
                    self.$($field).+ = value;
                    String::new()
                })),)?)*
                $($($name => {
                    let call: fn(&mut Self, &str, &mut $crate::engine::ElementContext<'_>) -> Result<String, $crate::engine::Reason> = $write;
                    Some(call(self, value, cx))
                })?)*
                _ => None,
            }
        }
    };
}

/// Makes the functions by which an element takes other arguments while the graph runs. The fields are those that follow
/// from the arguments. A function behind `then` gets the element and the context.
#[macro_export]
macro_rules! reconfigured_fields {
    ($($field:ident),+ $(; then $then:expr)?) => {
        fn can_reconfigure(&self) -> bool {
            true
        }

        fn reconfigure(
            &mut self,
            other: &mut dyn std::any::Any,
            #[allow(unused_variables)] cx: &mut $crate::engine::ElementContext<'_>,
        ) -> bool {
            let Some(other) = other.downcast_mut::<Self>() else { return false };
            $(std::mem::swap(&mut self.$field, &mut other.$field);)+
            $({
                let then: fn(&mut Self, &mut $crate::engine::ElementContext<'_>) = $then;
                then(self, cx);
            })?
            true
        }
    };
}

/// The kind of number that a word states.
#[doc(hidden)]
#[macro_export]
macro_rules! measure_kind {
    () => {
        None
    };
    (counter) => {
        Some($crate::engine::MeasureKind::Counter)
    };
    (gauge) => {
        Some($crate::engine::MeasureKind::Gauge)
    };
}

/// `true` for an expression, `false` for none.
#[doc(hidden)]
#[macro_export]
macro_rules! is_given {
    () => {
        false
    };
    ($given:expr) => {
        true
    };
}

/// An element that decides for each packet to which output it goes, and keeps none.
pub trait RoutingElement: Element {
    /// Handles a packet that came to an input, and returns where it goes.
    fn route(&mut self, input: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination;

    /// Handles packets that came to an input as [`RoutingElement::route`] does, one after the other. Returns where they go
    /// if all go to the same, and else writes where each of them goes. Elements that wait for memory in the work for a
    /// packet have a way of their own, in which the packets wait at the same time.
    #[inline]
    fn route_all(
        &mut self,
        input: usize,
        packets: &mut [GraphPacket],
        destinations: &mut Vec<Destination>,
        services: &mut Services,
    ) -> Option<Destination>
    where
        Self: Sized,
    {
        route_each(packets, destinations, |packet| self.route(input, packet, services))
    }
}

/// Calls a function for each packet. Returns its result if it is the same for all packets, and else writes the results.
#[inline]
pub fn route_each(
    packets: &mut [GraphPacket],
    destinations: &mut Vec<Destination>,
    mut route: impl FnMut(&mut GraphPacket) -> Destination,
) -> Option<Destination> {
    let mut same = Destination::DISCARD;
    let mut differ = false;
    // The function is called at one place, so that the compiler puts it there.
    for (index, packet) in packets.iter_mut().enumerate() {
        let destination = route(packet);
        if destination == same && !differ {
            continue;
        }
        if index == 0 {
            same = destination;
            continue;
        }
        if !differ {
            differ = true;
            destinations.clear();
            destinations.resize(index, same);
        }
        destinations.push(destination);
    }
    (!differ).then_some(same)
}

/// A [`RoutingElement`] as an object, with the loop over a batch inside: one indirect call for each batch.
pub trait RouteBatch: Element {
    /// Handles packets as [`RoutingElement::route_all`] does.
    fn route_batch(
        &mut self,
        input: usize,
        packets: &mut [GraphPacket],
        destinations: &mut Vec<Destination>,
        services: &mut Services,
    ) -> Option<Destination>;

    /// Handles one packet, and returns where it goes.
    fn route_one(&mut self, input: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination;
}

impl<T: RoutingElement> RouteBatch for T {
    fn route_batch(
        &mut self,
        input: usize,
        packets: &mut [GraphPacket],
        destinations: &mut Vec<Destination>,
        services: &mut Services,
    ) -> Option<Destination> {
        self.route_all(input, packets, destinations, services)
    }

    fn route_one(&mut self, input: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        self.route(input, packet, services)
    }
}

/// An element that may keep packets, emit several for one, or give packets to those that pull.
pub trait EmittingElement: Element {
    /// Returns the most packets that one packet becomes at each push output.
    fn copies(&self) -> usize {
        1
    }

    /// Handles a packet that came to a push input. It emits packets by [`ElementContext::emit`].
    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let _ = input;
        cx.services.pool.discard(packet);
    }

    /// Handles a batch at a push input, packet by packet.
    fn push_batch(&mut self, input: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) {
        for (packet, order) in batch.drain() {
            let first = cx.services.emitted.len();
            self.push(input, packet, cx);
            cx.services.emitted.assign_orders(first, order);
        }
    }

    /// Handles a batch if all its packets go to the same output and nothing else is emitted, and returns the output. Else
    /// returns `None` and does nothing: [`EmittingElement::push_batch`] handles the batch then.
    fn pass_batch(&mut self, input: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) -> Option<usize> {
        let _ = (input, batch, cx);
        None
    }

    /// Returns the next packet at a pull output; `None` if there is none at present.
    fn pull(&mut self, output: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let _ = (output, cx);
        None
    }

    /// Returns the input from which packets at a pull output come at present, in an element that passes them on unchanged.
    /// So a way of packets can lead through the element twice, and [`EmittingElement::pull`] is not called.
    fn pulls_through(&self, output: usize) -> Option<usize> {
        let _ = output;
        None
    }

    /// Adds the next packets at a pull output to a batch, at most this number: all at once what [`EmittingElement::pull`]
    /// would return one by one, with the same effects. Returns false, and does nothing, in an element that cannot.
    fn pull_batch(
        &mut self,
        output: usize,
        most: usize,
        batch: &mut Batch,
        cx: &mut ElementContext<'_>,
    ) -> bool {
        let _ = (output, most, batch, cx);
        false
    }
}

/// A configured element.
pub enum BuiltElement {
    /// It routes packets.
    Routing(Box<dyn RouteBatch>),
    /// It emits packets.
    Emitting(Box<dyn EmittingElement>),
}

impl BuiltElement {
    /// Returns a routing element.
    pub fn routing(element: impl RoutingElement) -> Self {
        Self::Routing(Box::new(element))
    }

    /// Returns an emitting element.
    pub fn emitting(element: impl EmittingElement) -> Self {
        Self::Emitting(Box::new(element))
    }

    /// Returns the most packets that one packet becomes at each output; `None` for an element that routes it to one output.
    pub(super) fn copies(&self) -> Option<usize> {
        match self {
            Self::Routing(_) => None,
            Self::Emitting(element) => Some(element.copies()),
        }
    }

    /// Returns the functions that every element has.
    pub fn element(&mut self) -> &mut dyn Element {
        match self {
            Self::Routing(element) => &mut **element,
            Self::Emitting(element) => &mut **element,
        }
    }
}
