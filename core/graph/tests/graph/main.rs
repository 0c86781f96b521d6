//! Tests of the language of configurations, of the arguments of elements, and of the engine.

#![forbid(unsafe_code)]

mod archives;
mod argument_types;
mod arguments;
mod batches;
mod compounds;
mod connections;
mod control;
mod declarations;
mod drawing;
mod errors;
mod limits;
mod round_trip;
mod speed;
mod variables;

use weir_graph::language::{
    AnyClass, ConfigurationSource, FlatConfiguration, FlatLayout, LanguageErrors, parse,
};

fn try_parse(text: &str) -> Result<FlatConfiguration, LanguageErrors> {
    parse(&ConfigurationSource { name: "test", bytes: text.as_bytes() }, &[], &AnyClass)
}

/// Parses a configuration that has no errors, and checks that its flat text is parsed to the same.
fn flat(text: &str) -> FlatConfiguration {
    let flat = try_parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    round_trip::check(&flat);
    flat
}

/// The elements and connections of a flat configuration, without the layout of chains: `a :: A; a[0]->[1]b`.
fn graph(text: &str) -> String {
    let flat = flat(text);
    let mut parts: Vec<String> = flat.elements.iter().map(ToString::to_string).collect();
    for connection in &flat.connections {
        let ((from, output), (to, input)) = (connection.from, connection.to);
        let (from, to) = (&flat.elements[from].name, &flat.elements[to].name);
        parts.push(format!("{from}[{output}]->[{input}]{to}"));
    }
    parts.join("; ")
}

/// The messages of all errors.
fn messages(text: &str) -> Vec<String> {
    match try_parse(text) {
        Ok(flat) => panic!("no error:\n{}", flat.to_text(FlatLayout::Plain)),
        Err(errors) => errors.errors.iter().map(ToString::to_string).collect(),
    }
}
