//! The placement of elements on threads.
//!
//! A graph is cut at its queues. What is connected otherwise, or shares state, is a component: its elements run on one
//! thread, so no element needs locks. StaticThreadSched states threads of elements. Other components go one after the
//! other to the thread that has the fewest tasks.

use super::super::names::DefinedNames;
use super::super::ports::ElementPorts;
use super::super::router::{ElementGraph, Router};
use super::super::sets::DisjointSets;
use super::replace::{RunningPlacement, is_generated};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Two elements for which different threads are stated, but which have to run on one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedTogether {
    /// The first element.
    pub one: usize,
    /// The other element.
    pub other: usize,
    /// The element that both share; `None` if one leads to the other.
    pub shared: Option<usize>,
    /// The thread on which they run.
    pub thread: usize,
}

/// The threads that add and remove the packets of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueThreads {
    /// The thread that adds packets.
    pub adds: usize,
    /// The thread that removes packets.
    pub removes: usize,
}

/// The threads of the elements of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// The number of threads.
    pub threads: usize,
    /// The thread of each element. For a queue between threads it is the one that removes packets.
    pub thread_of: Vec<usize>,
    /// The elements with a task or a timer.
    pub active: Vec<usize>,
    /// The queues between threads.
    pub queues: BTreeMap<usize, QueueThreads>,
    /// The pairs of elements for which different threads are stated, one for each component.
    pub forced: Vec<ForcedTogether>,
    /// The elements whose stated thread does not exist, with its number. They run on the last thread.
    pub beyond: Vec<(usize, u32)>,
    /// The element that decides when the driver stops.
    pub stop_manager: Option<usize>,
    /// The names that elements define.
    pub(in crate::engine) names: DefinedNames,
    /// The seed of random numbers.
    pub(in crate::engine) seed: u64,
}

/// The most threads of a graph.
pub const THREADS_MAX: usize = 256;

impl ThreadPlacement {
    /// Places the elements of a graph on this number of threads: 1 to [`THREADS_MAX`]. The graph does not have to run: it
    /// can be one whose files are not opened.
    pub fn of(router: &mut Router, threads: usize) -> Self {
        Self::following(router, threads, &RunningPlacement::default())
    }

    /// Places the elements of a graph that takes the place of a running one. A component without a statement goes to the
    /// thread on which most of its elements run already.
    pub fn following(router: &mut Router, threads: usize, running: &RunningPlacement) -> Self {
        let threads = threads.clamp(1, THREADS_MAX);
        let components = Components::of(router);
        let graph = &router.graph;
        let services = &mut router.services;
        let elements = graph.declared.len();
        let active: Vec<usize> = (0..elements).filter(|it| services.schedule.is_active(*it)).collect();
        let mut placement = Self {
            threads,
            active,
            stop_manager: services.stop_manager,
            names: services.names.clone(),
            seed: services.random_state(),
            ..Self::default()
        };
        let stated: Vec<Option<u32>> =
            graph.declared.iter().map(|it| services.names.thread_of(&it.name)).collect();
        let pinned = placement.pinned(graph, &components, running);
        let of_component = placement.place(graph, &components, &stated, &pinned);
        placement.thread_of = components.outputs.iter().map(|node| of_component[*node]).collect();
        for element in 0..elements {
            let (adds, removes) =
                (of_component[components.inputs[element]], of_component[components.outputs[element]]);
            if adds != removes {
                placement.queues.insert(element, QueueThreads { adds, removes });
            }
        }
        placement
    }

    /// Returns the thread on which most elements of each component run already; of several such threads the lowest.
    /// Elements whose names are generated count only where the others do not decide: they may mean others now.
    fn pinned(
        &self,
        graph: &ElementGraph,
        components: &Components,
        running: &RunningPlacement,
    ) -> Vec<Option<usize>> {
        let mut votes: Vec<BTreeMap<usize, (usize, usize)>> = vec![BTreeMap::new(); components.count];
        for (declared, component) in graph.declared.iter().zip(&components.outputs) {
            if let Some(thread) = running.thread_of(declared).filter(|thread| *thread < self.threads) {
                let (named, generated) = votes[*component].entry(thread).or_default();
                *if is_generated(&declared.name) { generated } else { named } += 1;
            }
        }
        votes.iter().map(|it| it.iter().rev().max_by_key(|it| it.1).map(|it| *it.0)).collect()
    }

    /// Returns the thread of each component.
    fn place(
        &mut self,
        graph: &ElementGraph,
        components: &Components,
        stated: &[Option<u32>],
        pinned: &[Option<usize>],
    ) -> Vec<usize> {
        let mut threads: Vec<Option<usize>> = vec![None; components.count];
        let mut tasks = vec![0_usize; components.count];
        let mut first: Vec<Option<(usize, usize)>> = vec![None; components.count];
        for element in self.active.iter().copied().filter(|it| is_connected(&graph.ports[*it])) {
            tasks[components.outputs[element]] += 1;
        }
        for (element, stated) in stated.iter().enumerate() {
            // A queue runs on the threads of its neighbours.
            let Some(stated) = stated.filter(|_| components.inputs[element] == components.outputs[element])
            else {
                continue;
            };
            let last = self.threads - 1;
            let thread = usize::try_from(stated).unwrap_or(usize::MAX).min(last);
            if thread as u64 != u64::from(stated) {
                self.beyond.push((element, stated));
            }
            let component = components.outputs[element];
            match first[component] {
                None => first[component] = Some((element, thread)),
                Some((one, other)) if other != thread => {
                    let lowest = threads[component].unwrap_or(other).min(thread);
                    match self.forced.iter_mut().find(|it| it.one == one) {
                        Some(forced) => forced.thread = lowest,
                        None => {
                            let shared = components.shared(graph, one, element);
                            self.forced.push(ForcedTogether { one, other: element, shared, thread: lowest });
                        }
                    }
                }
                Some(_) => {}
            }
            let lowest = threads[component].map_or(thread, |it| it.min(thread));
            threads[component] = Some(lowest);
        }
        for (thread, pinned) in threads.iter_mut().zip(pinned) {
            *thread = thread.or(*pinned);
        }
        let mut load = vec![0_usize; self.threads];
        for (thread, tasks) in threads.iter().zip(&tasks) {
            if let Some(thread) = thread {
                load[*thread] += *tasks;
            }
        }
        let placed = threads.into_iter().zip(&tasks).map(|(thread, tasks)| {
            thread.unwrap_or_else(|| {
                // Of equal loads the first one is chosen, and components without tasks go to thread 0.
                let least = load.iter().enumerate().min_by_key(|(_, load)| **load).map_or(0, |(it, _)| it);
                if *tasks == 0 {
                    return 0;
                }
                load[least] += *tasks;
                least
            })
        });
        placed.collect()
    }

    /// Returns true if an element, or a side of a queue, is on this thread.
    pub fn is_on(&self, element: usize, thread: usize) -> bool {
        self.thread_of[element] == thread || self.queues.get(&element).is_some_and(|it| it.adds == thread)
    }

    /// Returns ranges of elements, in order, such that each range is on one thread.
    pub fn runs(&self) -> Vec<(usize, std::ops::Range<usize>)> {
        let mut runs: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
        for (element, thread) in self.thread_of.iter().enumerate() {
            match runs.last_mut() {
                Some((last, range)) if last == thread => range.end = element + 1,
                _ => runs.push((*thread, element..element + 1)),
            }
        }
        runs
    }
}

/// Returns true for an element with ports. Those without are there for others, such as scripts.
fn is_connected(ports: &ElementPorts) -> bool {
    !ports.targets.is_empty() || !ports.sources.is_empty()
}

/// The components of a graph, numbered by their first elements. Both sides of a queue have one.
struct Components {
    /// The component of each element's inputs.
    inputs: Vec<usize>,
    /// The component of each element's outputs.
    outputs: Vec<usize>,
    count: usize,
    /// Pairs of elements that share state.
    references: Vec<(usize, usize)>,
}

impl Components {
    fn of(router: &mut Router) -> Self {
        let elements = router.graph.declared.len();
        let is_queue: Vec<bool> = router
            .elements
            .iter_mut()
            .map(|it| it.as_mut().is_some_and(|it| it.element().can_be_between_threads()))
            .collect();
        // The node of an element, and of the input side of a queue.
        let input = |element: usize| if is_queue[element] { elements + element } else { element };
        let mut sets = DisjointSets::new(2 * elements);
        for (element, ports) in router.graph.ports.iter().enumerate() {
            for target in ports.targets.iter().flatten() {
                sets.join(element, input(target.element));
            }
        }
        let references = router.services.references.borrow().iter().copied().collect::<Vec<_>>();
        for (one, other) in &references {
            sets.join(*one, *other);
            if is_queue[*other] {
                sets.join(*one, input(*other));
            }
        }
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut number = |root: usize| {
            let next = numbers.len();
            *numbers.entry(root).or_insert(next)
        };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for element in 0..elements {
            inputs.push(number(sets.root(input(element))));
            outputs.push(number(sets.root(element)));
        }
        Self { inputs, outputs, count: numbers.len(), references }
    }

    /// Returns an element that two elements of a component share: the first one behind both, or else on the way between
    /// them.
    fn shared(&self, graph: &ElementGraph, one: usize, other: usize) -> Option<usize> {
        let component = self.outputs[one];
        let is_inside =
            |element: usize| self.inputs[element] == component && self.outputs[element] == component;
        let mut before: BTreeMap<usize, usize> = BTreeMap::from([(one, one)]);
        let mut open = VecDeque::from([one]);
        while let Some(at) = open.pop_front() {
            let ports = &graph.ports[at];
            let connected = ports.targets.iter().chain(&ports.sources).flatten().map(|it| it.element);
            let sharing = self.references.iter().filter_map(|(one, other)| match at {
                at if at == *one => Some(*other),
                at if at == *other => Some(*one),
                _ => None,
            });
            for next in connected.chain(sharing).filter(|next| is_inside(*next)) {
                if let Entry::Vacant(place) = before.entry(next) {
                    place.insert(at);
                    open.push_back(next);
                }
            }
        }
        let mut way = Vec::new();
        let mut at = other;
        while let Some(next) = before.get(&at).copied().filter(|next| *next != at) {
            at = next;
            way.push(at);
        }
        way.pop();
        // Where the way turns, packets of both come together, or both take them.
        let leads_to =
            |from: usize, to: usize| graph.ports[from].targets.iter().flatten().any(|it| it.element == to);
        let whole: Vec<usize> = [other].into_iter().chain(way.iter().copied()).chain([one]).collect();
        let turns = whole.windows(3).find(|it| leads_to(it[0], it[1]) != leads_to(it[1], it[2]));
        turns.map(|it| it[1]).or(way.last().copied())
    }
}
