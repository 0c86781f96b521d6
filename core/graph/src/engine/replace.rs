//! The replacement of a running graph by another one, between two packets.
//!
//! The handler `hotconfig` makes and prepares the new graph while the old one stays as it is, so a wrong configuration
//! changes nothing. The old graph ends when the task that runs has ended: no packet is on its way then. Elements of the
//! new graph take the state of elements of the same name.

use super::build::BuildContext;
use super::context::{ElementContext, Services};
use super::effects::TextOutput;
use super::element::Reason;
use super::router::{ElementClasses, GraphError, GraphNames, Router, RunOptions, without_elements};
use crate::arguments::ArgumentContext;
use crate::arguments::text::uncomment;
use crate::language::{ElementDeclaration, FlatConfiguration};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parses the text of a configuration. An error is one line for each error of the text.
type ParseConfiguration = dyn Fn(&str) -> Result<FlatConfiguration, Reason>;

/// The arguments of elements that have got others while the graph runs. The threads of a graph share them.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherArguments(Arc<Mutex<BTreeMap<usize, Arc<str>>>>);

impl OtherArguments {
    /// Returns the arguments by the index of their element.
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way from a running graph to another one.
pub(super) struct Replacement {
    parse: Box<ParseConfiguration>,
    classes: Box<dyn ElementClasses>,
    options: RunOptions,
    /// The prepared graph, with the element that continues each of its elements.
    next: Option<Box<NextGraph>>,
    /// The errors of the latest configuration; empty if it had none.
    pub errors: String,
}

struct NextGraph {
    router: Router,
    /// Pairs of an element, and the earlier element whose state it takes.
    continued: Vec<(usize, usize)>,
}

impl Router {
    /// Offers the handler `hotconfig`, which replaces the graph. `parse` reads a configuration.
    pub fn allow_replacement(
        &mut self,
        parse: impl Fn(&str) -> Result<FlatConfiguration, Reason> + 'static,
        classes: impl ElementClasses + 'static,
    ) {
        self.services.replacement = Some(Box::new(Replacement {
            parse: Box::new(parse),
            classes: Box::new(classes),
            options: self.options,
            next: None,
            errors: String::new(),
        }));
    }

    /// Goes on with the prepared graph, if there is one. No packet may be on its way.
    #[inline]
    pub(super) fn switch(&mut self) {
        if self.services.replacement.as_ref().is_some_and(|it| it.next.is_some()) {
            self.switch_now();
        }
    }

    fn switch_now(&mut self) {
        let Some(mut replacement) = self.services.replacement.take() else { return };
        let Some(next) = replacement.next.take() else { return };
        let NextGraph { mut router, continued } = *next;
        for (element, earlier) in continued {
            let Some(earlier) = self.elements[earlier].as_mut() else { continue };
            router
                .context(element)
                .with_element(element, |it, cx| it.element().take_state(earlier.element(), cx));
        }
        // The results of elements that have no successor are complete now.
        if let Err(errors) = self.finish() {
            for error in errors {
                self.services.system.write_text(TextOutput::Error, &format!("{error}\n"));
            }
        }
        let Services { system, clock, random, stops, .. } = &mut self.services;
        std::mem::swap(&mut router.services.system, system);
        std::mem::swap(&mut router.services.clock, clock);
        router.services.random = *random;
        router.services.stops += *stops;
        router.services.replacement = Some(replacement);
        *self = router;
    }
}

/// Handles `hotconfig`.
pub(super) fn replace(cx: &mut ElementContext<'_>, text: &str) -> Result<String, Reason> {
    if cx.services.threads.is_some() {
        let why = "hotconfig: on several threads it can be called from a control socket only";
        return Err(why.to_owned());
    }
    let Some(mut replacement) = cx.services.replacement.take() else {
        return Err("the graph cannot be replaced: it runs without --allow-reconfigure".to_owned());
    };
    let result = prepare(cx, &replacement, text);
    let result = match result {
        Ok(next) => {
            // A graph that was prepared earlier, and never ran, is dropped.
            replacement.next = Some(Box::new(next));
            replacement.errors.clear();
            Ok(String::new())
        }
        Err(errors) => {
            replacement.errors = format!("{}\n", errors.trim_end());
            Err(errors.trim_end().to_owned())
        }
    };
    cx.services.replacement = Some(replacement);
    result
}

fn prepare(cx: &mut ElementContext<'_>, replacement: &Replacement, text: &str) -> Result<NextGraph, Reason> {
    let flat = (replacement.parse)(text)?;
    // The new elements use the system while they are made. Afterwards the old graph goes on with it.
    let mut services = Services { random: cx.services.random, ..Services::default() };
    std::mem::swap(&mut cx.services.system, &mut services.system);
    std::mem::swap(&mut cx.services.clock, &mut services.clock);
    let classes = &*replacement.classes;
    let (mut services, next) = match Router::assemble(flat, classes, services, replacement.options) {
        Ok(mut router) => {
            let next = continued(cx, &mut router).and_then(|continued| {
                router.initialize().map(|()| continued).map_err(|errors| lines(&errors))
            });
            let services = std::mem::take(&mut router.services);
            (services, next.map(|continued| NextGraph { router, continued }))
        }
        Err(failed) => {
            let (services, errors) = *failed;
            (services, Err(lines(&without_elements(errors))))
        }
    };
    std::mem::swap(&mut cx.services.system, &mut services.system);
    std::mem::swap(&mut cx.services.clock, &mut services.clock);
    next.map(|mut next| {
        next.router.services = services;
        next
    })
}

fn lines(errors: &[GraphError]) -> Reason {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Asks the elements of a new graph which of them continue the element of their name.
fn continued(cx: &mut ElementContext<'_>, router: &mut Router) -> Result<Vec<(usize, usize)>, Reason> {
    let mut continued = Vec::new();
    for (index, element) in router.elements.iter_mut().enumerate() {
        let name = &router.graph.declared[index].name;
        let Some(earlier) = cx.graph.by_name(name) else { continue };
        match (element.as_mut(), cx.elements[earlier].as_mut()) {
            (Some(element), Some(earlier_element)) => {
                if element.element().continues(earlier_element.element()) {
                    continued.push((index, earlier));
                }
            }
            // An element that calls the handler itself, such as a Script, begins anew.
            _ if earlier == cx.this => {}
            _ => {
                return Err(format!(
                    "hotconfig: element '{name}' runs at present; call it from an element to which packets are pushed, \
                     or from a control socket"
                ));
            }
        }
    }
    Ok(continued)
}

/// Handles `config` of an element: gives it other arguments.
pub(super) fn reconfigure(cx: &mut ElementContext<'_>, index: usize, text: &str) -> Result<(), Reason> {
    let configuration: Arc<str> = uncomment(text).into();
    let ElementContext { services, graph, .. } = cx;
    let graph = *graph;
    let ElementDeclaration { name, class, landmark, .. } = &graph.declared[index];
    let signals = services.signals.len();
    let defined = std::mem::take(&mut services.names);
    let names = GraphNames { graph, defined: &defined };
    let context = ArgumentContext { element: name, class, landmark, names: &names };
    let build = graph.classes[index].build;
    let other = build(&mut BuildContext {
        services,
        configuration: &configuration,
        context: &context,
        graph,
        this: index,
    });
    services.names = defined;
    services.signals.truncate(signals);
    let mut other = other.map_err(|wrong| {
        let lines: Vec<String> = wrong.errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    let effects = other.element().effects().unwrap_or(graph.classes[index].effects);
    // The places at which packets go one by one follow from the effects.
    if effects != graph.effects[index] {
        return Err("these arguments change the effects of the element: use hotconfig".to_owned());
    }
    let is_done = cx.with_element(index, |it, cx| it.element().reconfigure(other.element(), cx));
    match is_done {
        Some(true) => {
            cx.services.reconfigured.all().insert(index, configuration);
            Ok(())
        }
        Some(false) => Err("the element cannot take these arguments while it runs: use hotconfig".to_owned()),
        None => Err("the element runs at present".to_owned()),
    }
}
