//! Building an element from its arguments.

use super::context::Services;
use super::ports::ElementPorts;
use super::router::ElementGraph;
use super::threads::ThreadQueue;
use crate::arguments::{ArgumentContext, ArgumentValue, ElementArguments};
use std::sync::Arc;

/// The arguments and services that an element can use while it is made.
pub struct BuildContext<'a> {
    /// The services that all elements share.
    pub services: &'a mut Services,
    pub(super) configuration: &'a str,
    pub(super) context: &'a ArgumentContext<'a>,
    pub(super) graph: &'a ElementGraph,
    pub(super) this: usize,
}

impl<'a> BuildContext<'a> {
    /// Returns the element's arguments, for reading one by one.
    pub fn arguments(&self) -> ElementArguments<'a, 'a> {
        ElementArguments::new(self.configuration, self.context)
    }

    /// Returns the context in which arguments are read, for elements with a language of their own.
    pub fn argument_context(&self) -> &'a ArgumentContext<'a> {
        self.context
    }

    /// Returns the index of the element.
    pub fn element(&self) -> usize {
        self.this
    }

    /// Returns the element's name.
    pub fn name(&self) -> &'a str {
        self.context.element
    }

    /// Returns the name of the compound element around the element, with a slash at its end; empty outside of compounds.
    pub fn scope(&self) -> &'a str {
        let name = self.context.element;
        name.rfind('/').map_or("", |at| &name[..=at])
    }

    /// Reads a value as an argument of this element is read; `None` if it is none of the type.
    pub fn read<T: ArgumentValue>(&self, text: &str) -> Option<T> {
        T::parse_argument(text, self.context).ok()
    }

    /// Returns the packets of a queue whose neighbours are on different threads; `None` for every other element.
    pub fn between_threads(&self) -> Option<Arc<ThreadQueue>> {
        self.services.threads.as_ref()?.part.graph.queue(self.this)
    }

    /// Returns the element's ports.
    pub fn ports(&self) -> &'a ElementPorts {
        &self.graph.ports[self.this]
    }
}
