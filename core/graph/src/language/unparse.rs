//! The text of a flat configuration.

use super::{FlatConfiguration, Landmark, Requirement, write_archive};
use crate::arguments::text::quote;
use std::collections::HashMap;
use std::fmt::Write as _;

/// The layout of a flat configuration's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatLayout {
    /// As the handler `flatconfig` of Click prints it: declarations, an empty line, connections.
    Plain,
    /// As `click-flatten` prints it: with line directives, so that messages name the original places.
    LineDirectives,
}

impl FlatConfiguration {
    /// Returns the configuration as text, which [`super::parse`] reads to an equal configuration: the requirements, the
    /// elements in their order, and the connections as chains.
    pub fn to_text(&self, layout: FlatLayout) -> String {
        let mut out = String::new();
        // Writing to memory does not fail.
        let _ = self.write_requirements(&mut out);
        let _ = self.write_elements(&mut out, layout);
        let _ = self.write_connections(&mut out, layout);
        out
    }

    /// Returns the configuration as a file: its text, or an archive if it has further members.
    pub fn to_file(&self, layout: FlatLayout) -> Vec<u8> {
        let text = self.to_text(layout).into_bytes();
        if self.members.is_empty() {
            return text;
        }
        let name = super::archive::CONFIGURATION_MEMBER.to_owned();
        let configuration = super::ArchiveMember { name, data: text };
        let members: Vec<_> = std::iter::once(configuration).chain(self.members.iter().cloned()).collect();
        write_archive(&members)
    }

    fn write_requirements(&self, out: &mut String) -> std::fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            out.push_str(if index == 0 { "require(" } else { ", " });
            match requirement {
                Requirement::Package(name) => write!(out, "package {}", quote(name.as_bytes()))?,
                Requirement::CompactConfiguration => out.push_str("compact_config"),
            }
        }
        if !self.requirements.is_empty() {
            out.push_str(");\n\n");
        }
        Ok(())
    }

    fn write_elements(&self, out: &mut String, layout: FlatLayout) -> std::fmt::Result {
        for element in &self.elements {
            if layout == FlatLayout::LineDirectives {
                let Landmark { file, line } = &element.landmark;
                writeln!(out, "# {line} {}", quote(file.as_bytes()))?;
            }
            writeln!(out, "{element};")?;
        }
        if !self.elements.is_empty() && layout == FlatLayout::Plain {
            out.push('\n');
        }
        Ok(())
    }

    fn write_connections(&self, out: &mut String, layout: FlatLayout) -> std::fmt::Result {
        if self.connections.is_empty() {
            return Ok(());
        }
        if layout == FlatLayout::LineDirectives {
            // Messages about connections name the line of this text.
            let lines = out.lines().count();
            writeln!(out, "# {} \"\"", lines + 2)?;
        }
        let next = self.chains();
        let mut begins = vec![true; next.len()];
        for following in next.iter().flatten() {
            begins[*following] = false;
        }
        let mut is_written = vec![false; next.len()];
        // Chains first, then the cycles, which have no begin.
        for is_second_pass in [false, true] {
            for first in 0..next.len() {
                if is_written[first] || !(begins[first] || is_second_pass) {
                    continue;
                }
                let (element, port) = self.connections[first].from;
                out.push_str(&self.elements[element].name);
                if port != 0 {
                    write!(out, " [{port}]")?;
                }
                let mut at = Some(first);
                while let Some(index) = at
                    && !is_written[index]
                {
                    is_written[index] = true;
                    out.push_str(if index == first { " -> " } else { "\n    -> " });
                    let (element, port) = self.connections[index].to;
                    if port != 0 {
                        write!(out, "[{port}] ")?;
                    }
                    out.push_str(&self.elements[element].name);
                    at = next[index];
                }
                out.push_str(";\n");
            }
        }
        Ok(())
    }

    /// Returns, for each connection to an input 0, a connection from output 0 of the same element, if there is one:
    /// preferably one to an input 0, which can be continued.
    fn chains(&self) -> Vec<Option<usize>> {
        let mut onward: HashMap<(usize, u32), usize> = HashMap::new();
        for (index, connection) in self.connections.iter().enumerate() {
            let best = onward.entry(connection.from).or_insert(index);
            if self.connections[*best].to.1 != 0 {
                *best = index;
            }
        }
        let follow = |(index, connection): (usize, &super::ElementConnection)| match connection.to {
            (_, 0) => onward.get(&connection.to).copied().filter(|next| *next != index),
            _ => None,
        };
        self.connections.iter().enumerate().map(follow).collect()
    }
}
