//! A running graph.

use super::build::BuildContext;
use super::class::{Effects, ElementClass};
use super::clock::GraphClock;
use super::context::{ElementContext, ForeignCall, Services};
use super::driver::Driver;
use super::effects::{DeviceWaker, System, TextOutput};
use super::element::BuiltElement;
use super::handler::{HandlerError, HandlerFault};
use super::names::DefinedNames;
use super::plan::{OneByOne, Plan};
use super::ports::{ElementPorts, PortConnection, PortError, PortReference, resolve};
use super::pull::{PullWay, way};
use super::rank::{ElementRank, ranks};
use super::schedule::TICKETS_DEFAULT;
use super::sets::DisjointSets;
use crate::Landmark;
use crate::arguments::{ArgumentContext, ArgumentNames, EthernetAddress, Ipv4Prefix, Ipv6Prefix};
use crate::control::{HandlerAction, HandlerCall};
use crate::language::{ElementConnection, ElementDeclaration, FlatConfiguration};
use crate::nearest::suggestion;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weir_units::Timestamp;

/// An error of a graph, at the place at which the configuration has to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphError {
    /// The place of the element's declaration, or of the connection.
    pub landmark: Landmark,
    /// The error, without the place.
    pub text: String,
}

impl std::fmt::Display for GraphError {
    /// Writes `FILE:LINE: ERROR`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.landmark, self.text)
    }
}

/// The element classes that a graph can use.
pub trait ElementClasses {
    /// Returns the class of this name.
    fn find(&self, name: &str) -> Option<&'static ElementClass>;

    /// Returns the names of all classes, for suggestions.
    fn names(&self) -> Vec<&'static str>;
}

/// The most elements that pull from each other, one for another.
const PULL_DEPTH_MAX: usize = 1000;

/// The facts about a graph that are known before its first packet.
pub struct ElementGraph {
    /// The elements, as declared.
    pub declared: Vec<ElementDeclaration>,
    /// The class of each element.
    pub classes: Vec<&'static ElementClass>,
    /// The effects of each element.
    pub effects: Vec<Effects>,
    /// The elements that have the state of others, and those others, each with the number of its group.
    sharing: BTreeMap<usize, usize>,
    /// The ports of each element.
    pub ports: Vec<ElementPorts>,
    pub(super) pull_ways: Vec<Vec<PullWay>>,
    pub(super) ranks: Vec<ElementRank>,
    /// The elements that store packets, and can be full.
    pub(super) is_store: Vec<bool>,
    /// The most packets that each element sends to each output for one packet; `None` for one that routes it to one output.
    pub(super) copies: Vec<Option<usize>>,
    plans: Vec<Vec<OnceCell<Plan>>>,
    names: BTreeMap<Arc<str>, usize>,
    tickets: BTreeMap<usize, u32>,
    /// The configuration, without its elements.
    pub(super) rest: FlatConfiguration,
}

impl ElementGraph {
    /// Returns the index of an element by its name, as it is called from another element: in the compound element of
    /// that element first, then in those around it.
    pub fn find(&self, from: usize, name: &str) -> Option<usize> {
        let mut scope = self.declared.get(from).map_or("", |it| &*it.name);
        loop {
            scope = scope.rsplit_once('/').map_or("", |(outer, _)| outer);
            let full = if scope.is_empty() { name.to_owned() } else { format!("{scope}/{name}") };
            if let Some(index) = self.names.get(full.as_str()) {
                return Some(*index);
            }
            if scope.is_empty() {
                return None;
            }
        }
    }

    /// Returns the index of an element by its full name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub(super) fn error(&self, element: usize, text: impl std::fmt::Display) -> GraphError {
        let ElementDeclaration { name, class, landmark, .. } = &self.declared[element];
        GraphError {
            landmark: landmark.clone(),
            text: format!("While initializing '{name} :: {class}':\n  {text}"),
        }
    }

    /// Returns the tickets of an element's task.
    pub(super) fn tickets(&self, element: usize) -> u32 {
        self.tickets.get(&element).copied().unwrap_or(TICKETS_DEFAULT)
    }

    /// Returns the elements to which an element pushes packets.
    pub(super) fn push_targets(&self, element: usize) -> Vec<usize> {
        let ports = &self.ports[element];
        let pushed = ports.outputs_push.iter().zip(&ports.targets).filter(|(pushes, _)| **pushes);
        pushed.filter_map(|(_, targets)| Some(targets.first()?.element)).collect()
    }

    /// Returns the input to which a push output is connected.
    #[inline]
    pub(super) fn push_target(&self, from: PortReference) -> Option<PortReference> {
        let ports = &self.ports[from.element];
        if ports.outputs_push.get(from.port) != Some(&true) {
            return None;
        }
        ports.targets[from.port].first().copied()
    }

    /// Returns true if a packet that goes from one element to another begins a further way around a cycle.
    #[inline]
    pub(super) fn closes_cycle(&self, from: usize, to: usize) -> bool {
        let target = self.ranks[to];
        target.closes_cycle && self.ranks[from].component == target.component
    }

    /// Sets effects of elements, and makes the plans anew that follow from them.
    pub(super) fn set_effects(&mut self, changed: Vec<(usize, Effects)>) {
        for (element, effects) in changed {
            self.effects[element] = effects;
        }
        self.ranks = ranks(self);
        self.plans = self.ports.iter().map(|ports| vec![OnceCell::new(); ports.targets.len()]).collect();
    }

    /// Joins the elements that share state, by pairs of them.
    pub(super) fn join_sharing(&mut self, pairs: &BTreeSet<(usize, usize)>) {
        let mut sets = DisjointSets::new(self.ports.len());
        pairs.iter().for_each(|(one, other)| sets.join(*one, *other));
        let all = pairs.iter().flat_map(|(one, other)| [*one, *other]);
        self.sharing = all.map(|element| (element, sets.root(element))).collect();
    }

    /// Returns true if the order in which two elements handle packets could be seen.
    pub(super) fn conflict(&self, one: usize, other: usize) -> bool {
        let of = |element: usize| self.sharing.get(&element);
        self.effects[one].conflicts_with(self.effects[other])
            || (one != other && of(one).is_some() && of(one) == of(other))
    }

    /// Returns true if an element has effects that could conflict with those of another.
    pub(super) fn has_effects(&self, element: usize) -> bool {
        self.effects[element] != Effects::NONE || self.sharing.contains_key(&element)
    }

    /// Returns the plan for packets of a push output.
    pub fn plan(&self, from: PortReference) -> Option<&Plan> {
        let place = self.plans.get(from.element)?.get(from.port)?;
        Some(place.get_or_init(|| Plan::of(self, from)))
    }
}

/// The choices of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The most packets that go through an element before the next element. With 1, packets go one by one.
    pub batch: usize,
    /// The most packets for which a task runs before another one does.
    pub quantum: usize,
    /// The seed of random numbers.
    pub seed: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { batch: 64, quantum: 64, seed: 0 }
    }
}

/// A graph with its elements.
pub struct Router {
    pub(super) graph: ElementGraph,
    pub(super) elements: Vec<Option<BuiltElement>>,
    pub(super) services: Services,
    pub(super) driver: Driver,
    pub(super) options: RunOptions,
}

impl Router {
    /// Makes a graph: connects its ports, and configures and prepares its elements in the order of their declaration.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong.
    pub fn new(
        configuration: FlatConfiguration,
        classes: &dyn ElementClasses,
        system: Box<dyn System>,
        clock: Box<dyn GraphClock>,
        options: RunOptions,
    ) -> Result<Self, Vec<GraphError>> {
        let services = Services::new(system, clock, options.seed);
        let mut router = Self::assemble(configuration, classes, services, options)
            .map_err(|failed| without_elements(failed.1))?;
        router.initialize()?;
        Ok(router)
    }

    /// Makes a graph whose elements are configured, and not yet prepared, or the part of it that is on the thread of the
    /// services. Fails with the services, too.
    pub(super) fn assemble(
        configuration: FlatConfiguration,
        classes: &dyn ElementClasses,
        mut services: Services,
        options: RunOptions,
    ) -> Result<Self, Box<(Services, IndexedErrors)>> {
        let mut graph = match connect(configuration, classes) {
            Ok(graph) => graph,
            Err(errors) => {
                let errors = errors.into_iter().map(|error| (0, error)).collect();
                return Err(Box::new((services, errors)));
            }
        };
        services.schedule.resize(graph.declared.len());
        let mut elements = match build(&graph, &mut services) {
            Ok(elements) => elements,
            Err(errors) => return Err(Box::new((services, errors))),
        };
        for (element, declared) in graph.declared.iter().enumerate() {
            let tickets = services.names.tickets_of(&declared.name);
            if tickets != TICKETS_DEFAULT {
                graph.tickets.insert(element, tickets);
            }
        }
        for (element, effects) in elements.iter_mut().zip(&mut graph.effects) {
            let own = element.as_mut().and_then(|it| it.element().effects());
            *effects = own.unwrap_or(*effects);
        }
        let is_store =
            |it: &mut Option<BuiltElement>| it.as_mut().is_some_and(|it| it.element().room().is_some());
        graph.is_store = elements.iter_mut().map(is_store).collect();
        graph.copies = elements.iter().map(|it| it.as_ref().and_then(BuiltElement::copies)).collect();
        graph.ranks = ranks(&graph);
        let driver = Driver::new(graph.declared.len());
        let mut router = Self { graph, elements, services, driver, options };
        router.find_pull_ways();
        if let Some(element) = router.too_deep_pull() {
            let text = format!(
                "packets are pulled through more than {PULL_DEPTH_MAX} elements that wait for each other"
            );
            let error = router.graph.error(element, text);
            return Err(Box::new((router.services, vec![(element, error)])));
        }
        Ok(router)
    }

    /// Returns the facts about the graph that are known before its first packet.
    pub fn graph(&self) -> &ElementGraph {
        &self.graph
    }

    fn find_pull_ways(&mut self) {
        let is_routing: Vec<bool> =
            self.elements.iter().map(|it| matches!(it, Some(BuiltElement::Routing(_)))).collect();
        let ports = &self.graph.ports;
        self.graph.pull_ways = (0..ports.len())
            .map(|element| {
                // Elements that route do not pull: packets pass them on the way to one that does.
                let inputs = if is_routing[element] { 0 } else { ports[element].inputs_pull.len() };
                (0..inputs).map(|input| way(ports, &is_routing, element, input)).collect()
            })
            .collect();
    }

    /// Returns an element whose pulls go through too many elements which pull themselves: each takes place on the stack.
    fn too_deep_pull(&self) -> Option<usize> {
        let ways = &self.graph.pull_ways;
        let mut depths: Vec<Option<usize>> = vec![None; ways.len()];
        for start in 0..ways.len() {
            let mut open = vec![start];
            while let Some(element) = open.last().copied() {
                let upstream = || ways[element].iter().filter_map(|way| Some(way.from?.element));
                // Zero stands for an element that is being searched: a pull over a cycle ends there.
                if depths[element].is_none() {
                    depths[element] = Some(0);
                    open.extend(upstream().filter(|above| depths[*above].is_none()));
                    continue;
                }
                open.pop();
                if depths[element] == Some(0) {
                    depths[element] =
                        Some(1 + upstream().filter_map(|above| depths[above]).max().unwrap_or(0));
                }
                if depths[element] > Some(PULL_DEPTH_MAX) {
                    return Some(element);
                }
            }
        }
        None
    }

    pub(super) fn initialize(&mut self) -> Result<(), Vec<GraphError>> {
        let errors = self.initialize_range(0..self.elements.len());
        if errors.is_empty() { Ok(()) } else { Err(without_elements(errors)) }
    }

    /// Prepares elements, and returns the errors.
    pub(super) fn initialize_range(&mut self, range: Range<usize>) -> IndexedErrors {
        let mut errors = Vec::new();
        for index in range {
            let result = self.context(index).with_element(index, |it, cx| it.element().initialize(cx));
            if let Some(Err(text)) = result {
                errors.push((index, self.graph.error(index, text)));
            }
        }
        self.refresh_effects();
        errors
    }

    /// Returns the context of an element.
    pub(super) fn context(&mut self, this: usize) -> ElementContext<'_> {
        ElementContext {
            services: &mut self.services,
            elements: &mut self.elements,
            graph: &self.graph,
            this,
        }
    }

    /// Reads a handler, such as `counter.count` or `list`.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler.
    pub fn read_handler(&mut self, call: &str) -> Result<String, String> {
        let result = super::handler::read(&mut self.context(usize::MAX), call);
        self.dispatch();
        self.switch();
        result.map_err(|error| error.text)
    }

    /// Writes a handler, with the value behind a space.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler, or it does not take the value.
    pub fn write_handler(&mut self, call: &str) -> Result<String, String> {
        let result = super::handler::write(&mut self.context(usize::MAX), call);
        self.dispatch();
        self.switch();
        result.map_err(|error| error.text)
    }

    /// Calls a handler for another program.
    ///
    /// # Errors
    ///
    /// Fails as the handler does, or if there is none.
    pub fn call_handler(&mut self, call: &HandlerCall) -> Result<String, HandlerError> {
        let result = super::handler::call(&mut self.context(usize::MAX), call);
        self.dispatch();
        self.switch();
        result
    }

    /// Returns a function that ends a wait of this graph for devices, from any thread; `None` in a system that never waits
    /// long.
    pub fn device_waker(&mut self) -> Option<DeviceWaker> {
        self.services.system.device_waker()
    }

    /// Makes the calls that an element has taken from other programs.
    pub(super) fn make_foreign_calls(&mut self) {
        for ForeignCall { call, is_read_only, answer } in std::mem::take(&mut self.services.foreign_calls) {
            answer(self.call_for_program(&call, is_read_only));
        }
    }

    fn call_for_program(&mut self, call: &HandlerCall, is_read_only: bool) -> Result<String, HandlerError> {
        if is_read_only && matches!(call.action, HandlerAction::Write | HandlerAction::CheckWrite) {
            let (action, name) = (HandlerAction::CheckWrite, call.name.clone());
            self.call_handler(&HandlerCall { action, name, value: String::new() })?;
            let text = format!("Permission denied for '{}'", call.name);
            return Err(HandlerError { fault: HandlerFault::NotPermitted, text });
        }
        self.call_handler(call)
    }

    /// Returns the rights that elements need of the system, by their indices.
    pub fn rights(&mut self) -> Vec<(usize, String)> {
        let all = self.elements.iter_mut().enumerate();
        all.filter_map(|(index, it)| Some((index, it.as_mut()?.element().rights()?))).collect()
    }

    /// Returns true if the graph has stopped itself.
    pub fn has_stopped(&self) -> bool {
        self.services.stops > 0
    }

    /// Returns the signals of the system for which elements wait.
    pub fn system_signals(&self) -> BTreeSet<i32> {
        self.services.system_signals.iter().map(|(number, _)| *number).collect()
    }

    /// Handles a signal of the system: calls the handlers of the elements that wait for it. They have to wait again for
    /// the next one.
    pub fn handle_signal(&mut self, number: i32) {
        let all = &mut self.services.system_signals;
        let these: Vec<usize> =
            all.iter().filter(|(other, _)| *other == number).map(|(_, element)| *element).collect();
        all.retain(|(other, _)| *other != number);
        for element in these {
            let call = format!("signal {number}");
            self.context(element).with_element(element, |it, cx| {
                // A script reports its errors itself.
                it.element().write_handler("step", &call, cx)
            });
            self.dispatch();
        }
        self.switch();
    }

    /// Runs until the graph stops itself, or nothing is left to do.
    pub fn run(&mut self) {
        self.run_until(None);
    }

    /// Runs until the graph stops itself, nothing is left to do, or this time.
    pub fn run_until(&mut self, end: Option<Timestamp>) {
        while self.step() {
            let next =
                if self.services.schedule.has_task() { None } else { self.services.schedule.next_timer() };
            let is_over = |end| self.services.clock.latest() >= end || next.is_some_and(|next| next > end);
            if end.is_some_and(is_over) {
                break;
            }
        }
    }

    /// Completes the results of all elements, such as files.
    ///
    /// # Errors
    ///
    /// Fails with every result that is not complete.
    pub fn finish(&mut self) -> Result<(), Vec<GraphError>> {
        let errors = self.finish_range(0..self.elements.len());
        if errors.is_empty() { Ok(()) } else { Err(without_elements(errors)) }
    }

    /// Completes the results of elements, and returns the errors.
    pub(super) fn finish_range(&mut self, range: Range<usize>) -> IndexedErrors {
        let mut errors = Vec::new();
        for index in range {
            if let Some(count) = self.driver.cycle_drops.remove(&index) {
                let name = &self.graph.declared[index].name;
                let text = format!(
                    "{name}: {count} packets went around a cycle again and again, and were discarded here\n"
                );
                self.services.system.write_text(TextOutput::Error, &text);
            }
            let result = self.elements[index].as_mut().map(|it| it.element().finish(&mut self.services));
            if let Some(Err(text)) = result {
                errors.push((index, self.graph.error(index, text)));
            }
        }
        errors
    }

    /// Returns the number of elements that packets reach in batches, and of all elements that packets reach by pushes.
    pub fn batched(&self) -> (usize, usize) {
        let mut reached: BTreeMap<usize, bool> = BTreeMap::new();
        for (_, plan) in self.starts() {
            for member in &plan.reached {
                *reached.entry(*member).or_insert(true) &= plan.one_by_one.is_none();
            }
        }
        (reached.values().filter(|is_batched| **is_batched).count(), reached.len())
    }

    /// Returns the elements behind which packets go one by one, each with the reason.
    pub fn one_by_one(&self) -> Vec<(usize, OneByOne)> {
        self.starts().filter_map(|(element, plan)| Some((element, plan.one_by_one.clone()?))).collect()
    }

    /// Returns the plans behind elements that begin pushes: those without an input that pushes.
    fn starts(&self) -> impl Iterator<Item = (usize, &Plan)> {
        let starting = self
            .graph
            .ports
            .iter()
            .enumerate()
            .filter(|(_, ports)| ports.inputs_pull.iter().all(|pulls| *pulls));
        starting.flat_map(move |(element, ports)| {
            let plan = move |port| self.graph.plan(PortReference { element, port });
            (0..ports.targets.len()).filter_map(plan).map(move |plan| (element, plan))
        })
    }
}

/// Errors, each with the index of its element.
pub(super) type IndexedErrors = Vec<(usize, GraphError)>;

pub(super) fn without_elements(errors: IndexedErrors) -> Vec<GraphError> {
    errors.into_iter().map(|(_, error)| error).collect()
}

fn connect(
    mut configuration: FlatConfiguration,
    classes: &dyn ElementClasses,
) -> Result<ElementGraph, Vec<GraphError>> {
    let declared = std::mem::take(&mut configuration.elements);
    let connections = &configuration.connections;
    let mut errors = Vec::new();
    let mut known = Vec::with_capacity(declared.len());
    let mut names = BTreeMap::new();
    for (index, ElementDeclaration { name, class, landmark, .. }) in declared.iter().enumerate() {
        match classes.find(class) {
            Some(class) => known.push(class),
            None => {
                let suggestion = suggestion(class, classes.names());
                let text = format!("no element class named '{class}'{suggestion}");
                errors.push(GraphError { landmark: landmark.clone(), text });
            }
        }
        names.insert(Arc::clone(name), index);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let ports = connect_ports(&declared, connections, &known)?;
    let plans = ports.iter().map(|ports| vec![OnceCell::new(); ports.targets.len()]).collect();
    let effects = known.iter().map(|class| class.effects).collect();
    Ok(ElementGraph {
        classes: known,
        effects,
        sharing: BTreeMap::new(),
        ports,
        pull_ways: Vec::new(),
        ranks: Vec::new(),
        is_store: Vec::new(),
        copies: Vec::new(),
        plans,
        names,
        tickets: BTreeMap::new(),
        declared,
        rest: configuration,
    })
}

/// Connects the ports of elements with these classes.
pub(crate) fn connect_ports(
    declared: &[ElementDeclaration],
    connections: &[ElementConnection],
    classes: &[&ElementClass],
) -> Result<Vec<ElementPorts>, Vec<GraphError>> {
    let elements: Vec<(&str, &ElementClass)> =
        declared.iter().map(|it| &*it.name).zip(classes.iter().copied()).collect();
    let place = |(element, port): (usize, u32)| PortReference { element, port: port as usize };
    let pairs: Vec<PortConnection> =
        connections.iter().map(|it| PortConnection { from: place(it.from), to: place(it.to) }).collect();
    resolve(&elements, &pairs).map_err(|errors| {
        let further = errors.further;
        let landmark = |it: &PortError| match it.connection {
            Some(connection) => connections[connection].landmark.clone(),
            None => declared[it.element].landmark.clone(),
        };
        let mut errors: Vec<GraphError> = errors
            .first
            .into_iter()
            .map(|it| GraphError { landmark: landmark(&it), text: it.text })
            .collect();
        if let Some(last) = errors.last().filter(|_| further > 0) {
            errors.push(GraphError {
                landmark: last.landmark.clone(),
                text: format!("{further} further errors"),
            });
        }
        errors
    })
}

fn build(graph: &ElementGraph, services: &mut Services) -> Result<Vec<Option<BuiltElement>>, IndexedErrors> {
    let mut errors = BTreeMap::new();
    let mut elements: Vec<Option<BuiltElement>> = (0..graph.declared.len()).map(|_| None).collect();
    // The threads of a graph get the names from the placement of its elements.
    if services.threads.is_none() {
        services.names.interfaces = services.system.interfaces();
    }
    // An element without ports is there for others, such as one that defines names: it goes first.
    let (first, later): (Vec<usize>, Vec<usize>) =
        (0..graph.declared.len()).partition(|element| graph.classes[*element].ports == "0/0");
    let is_here: Vec<bool> = (0..graph.declared.len())
        .map(|it| services.threads.as_ref().is_none_or(|threads| threads.has(it)))
        .collect();
    for this in first.into_iter().chain(later).filter(|it| is_here[*it]) {
        let ElementDeclaration { name, class, configuration, landmark } = &graph.declared[this];
        let mut defined = std::mem::take(&mut services.names);
        let names = GraphNames { graph, defined: &defined };
        let context = ArgumentContext { element: name, class, landmark, names: &names };
        let mut cx = BuildContext { services: &mut *services, configuration, context: &context, graph, this };
        match (graph.classes[this].build)(&mut cx) {
            Ok(element) => elements[this] = Some(element),
            Err(wrong) => {
                let texts: Vec<String> = wrong.errors.iter().map(|it| format!("\n  {it}")).collect();
                let text = format!("While configuring '{name} :: {class}':{}", texts.concat());
                errors.insert(this, GraphError { landmark: landmark.clone(), text });
            }
        }
        defined.add(std::mem::take(&mut services.names));
        services.names = defined;
    }
    if errors.is_empty() { Ok(elements) } else { Err(errors.into_iter().collect()) }
}

/// The names in arguments: elements of the graph, and names that elements have defined.
pub(super) struct GraphNames<'g> {
    pub graph: &'g ElementGraph,
    pub defined: &'g DefinedNames,
}

impl ArgumentNames for GraphNames<'_> {
    fn element(&self, name: &str) -> Option<usize> {
        self.graph.by_name(name)
    }

    fn ipv4(&self, name: &str) -> Option<Ipv4Addr> {
        self.defined.find_ipv4(name)
    }

    fn ipv4_prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        self.defined.find_ipv4_prefix(name)
    }

    fn ipv6(&self, name: &str) -> Option<Ipv6Addr> {
        self.defined.ipv6.get(name.strip_suffix(":ip6").unwrap_or(name)).copied()
    }

    fn ipv6_prefix(&self, name: &str) -> Option<Ipv6Prefix> {
        self.defined.ipv6_prefixes.get(name.strip_suffix(":ip6net").unwrap_or(name)).copied()
    }

    fn ethernet(&self, name: &str) -> Option<EthernetAddress> {
        self.defined.find_ethernet(name)
    }

    fn port(&self, protocol: u8, name: &str) -> Option<u16> {
        self.defined.ports.get(&(protocol, name.to_owned())).copied()
    }

    fn pattern(&self, name: &str) -> Option<usize> {
        self.defined.patterns.get(name).copied()
    }
}
