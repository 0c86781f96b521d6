//! The replacement of the parts of a graph on its threads.
//!
//! All threads pause between two tasks. Each makes its part of the new graph, the parts are prepared in the order of their
//! elements, and then each thread goes on with the new part, or, after an error on any thread, with the earlier one.
//! State stays on its thread: [`RunningPlacement::moves`] finds elements for which that is not possible.

use super::super::context::{ElementContext, Services};
use super::super::effects::TextOutput;
use super::super::router::{ElementClasses, ElementGraph, GraphError, IndexedErrors, Router};
use super::part::{ThreadPart, ThreadState, ThreadedGraph};
use super::placement::ThreadPlacement;
use crate::language::{ElementDeclaration, FlatConfiguration};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A graph whose place another one has taken.
pub(in crate::engine) struct EarlierPart {
    router: Box<Router>,
    /// Pairs of an element of the new graph, and the earlier element whose state it takes.
    continued: Vec<(usize, usize)>,
}

impl Services {
    /// Makes these the services of a thread.
    pub(super) fn join(&mut self, threads: ThreadState) {
        self.names = threads.part.graph.placement.names.clone();
        self.reconfigured = threads.part.graph.reconfigured.clone();
        self.threads = Some(Box::new(threads));
    }
}

impl Router {
    /// Makes the thread's part of another graph, which uses the system and the clock from now on. The present part is kept
    /// in `earlier`. After an error it stays.
    pub(super) fn replace_part(
        &mut self,
        configuration: FlatConfiguration,
        classes: &dyn ElementClasses,
        graph: Arc<ThreadedGraph>,
        earlier: &mut Option<EarlierPart>,
    ) -> IndexedErrors {
        let Some(threads) = self.services.threads.as_deref_mut() else { return Vec::new() };
        let part = ThreadPart { thread: threads.part.thread, graph, link: Rc::clone(&threads.part.link) };
        let thread = part.thread;
        let mut services = Services { random: self.services.random, ..Services::default() };
        std::mem::swap(&mut self.services.system, &mut services.system);
        std::mem::swap(&mut self.services.clock, &mut services.clock);
        services.join(ThreadState::new(part));
        match Self::assemble(configuration, classes, services, self.options) {
            Ok(router) => {
                let router = Box::new(std::mem::replace(self, router));
                let mut part = EarlierPart { router, continued: Vec::new() };
                part.continued = self.continued_on(thread, &mut part.router);
                *earlier = Some(part);
                Vec::new()
            }
            Err(failed) => {
                let (mut services, errors) = *failed;
                std::mem::swap(&mut self.services.system, &mut services.system);
                std::mem::swap(&mut self.services.clock, &mut services.clock);
                errors
            }
        }
    }

    /// Asks the elements of this thread which of them continue the element of their name.
    fn continued_on(&mut self, thread: usize, earlier: &mut Router) -> Vec<(usize, usize)> {
        let Some(placement) = earlier.services.threads.as_ref().map(|it| &it.part.graph.placement) else {
            return Vec::new();
        };
        let mut continued = Vec::new();
        for (index, element) in self.elements.iter_mut().enumerate() {
            let Some(old) = earlier.graph.by_name(&self.graph.declared[index].name) else { continue };
            // Of the two sides of a queue, that which removes packets has all of them.
            if placement.thread_of[old] == thread
                && let (Some(element), Some(old_element)) = (element.as_mut(), earlier.elements[old].as_mut())
                && element.element().continues(old_element.element())
            {
                continued.push((index, old));
            }
        }
        continued
    }

    /// Has the elements take over the state of the earlier ones, and completes the results of those. Errors of results are
    /// written as messages: the new graph runs on.
    pub(super) fn continue_part(&mut self, earlier: EarlierPart) {
        let EarlierPart { mut router, continued } = earlier;
        self.swap_system(&mut router);
        for (element, old) in continued {
            let Some(old) = router.elements[old].as_mut() else { continue };
            self.context(element).with_element(element, |it, cx: &mut ElementContext<'_>| {
                it.element().take_state(old.element(), cx)
            });
        }
        if let Err(errors) = router.finish() {
            for error in errors {
                router.services.system.write_text(TextOutput::Error, &format!("{error}\n"));
            }
        }
        self.services.stops += router.services.stops;
        self.swap_system(&mut router);
    }

    /// Goes back to the earlier part.
    pub(super) fn abandon_part(&mut self, mut earlier: EarlierPart) {
        self.swap_system(&mut earlier.router);
        *self = *earlier.router;
    }

    fn swap_system(&mut self, other: &mut Router) {
        std::mem::swap(&mut self.services.system, &mut other.services.system);
        std::mem::swap(&mut self.services.clock, &mut other.services.clock);
    }
}

/// Returns true for the name of an element that was declared without one.
pub(super) fn is_generated(name: &str) -> bool {
    name.contains('@')
}

/// The threads of the elements of a running graph, by their names.
#[derive(Clone, Debug, Default)]
pub struct RunningPlacement(BTreeMap<Arc<str>, (Arc<str>, usize)>);

impl RunningPlacement {
    /// Returns the placement of these elements.
    pub fn new(declared: &[ElementDeclaration], placement: &ThreadPlacement) -> Self {
        let threads = declared.iter().zip(&placement.thread_of);
        Self(threads.map(|(it, thread)| (it.name.clone(), (it.class.clone(), *thread))).collect())
    }

    /// Returns the thread of the element with the name and the class of a new one.
    pub(super) fn thread_of(&self, next: &ElementDeclaration) -> Option<usize> {
        self.0.get(&next.name).filter(|(class, _)| *class == next.class).map(|(_, thread)| *thread)
    }

    /// Returns an error for each element of a new graph that would be on another thread than the one of its name and
    /// class: its state could not follow. An element whose name is generated begins anew, unless it stores packets or has a
    /// file.
    pub fn moves(&self, graph: &ElementGraph, placement: &ThreadPlacement) -> Vec<GraphError> {
        let moved = graph.declared.iter().enumerate().filter_map(|(index, next)| {
            let from = self.thread_of(next).filter(|from| !placement.is_on(index, *from))?;
            if is_generated(&next.name) && !graph.is_store[index] && !graph.effects[index].has_files() {
                return None;
            }
            let to = placement.thread_of[index];
            let text = format!(
                "{next} runs on thread {from} and would move to thread {to}, but its state stays on its thread: give it \
                 another name, or keep a queue between it and the elements of thread {to}"
            );
            Some(GraphError { landmark: next.landmark.clone(), text })
        });
        moved.collect()
    }
}
