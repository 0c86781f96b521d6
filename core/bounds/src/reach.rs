//! The functions of a module that calls can lead to, whatever the values in the module are.

use crate::analyse::Malformed;
use crate::{CodeLocation, Lines, ParsedModule};
use std::collections::BTreeSet;
use wasmparser::{BinaryReaderError, Operator};
use weir_abi::host::HostFunction;

/// The function that an instruction calls.
#[derive(Clone, Copy)]
enum Callee {
    /// The function with this index.
    Function(u32),
    /// Any function of this type that an indirect call can reach.
    OfType(u32),
}

/// Finds the calls of a host function that an entry point can reach. Returns the places of the first `most` of them by
/// offset, and the number of all. A call counts if a chain of calls leads to its function, whatever the conditions on the way
/// are. A call by a pointer counts as a call of every function of its type that has an address.
///
/// # Errors
/// [`Malformed`] where a function cannot be parsed.
pub fn reachable_host_calls(
    module: &ParsedModule,
    function: HostFunction,
    most: usize,
) -> Result<(Vec<CodeLocation>, usize), Malformed> {
    // A module can import a function more than once.
    let imports = (0..).zip(&module.imported).filter(|(_, imported)| **imported == Some(function));
    let imports: BTreeSet<u32> = imports.map(|(index, _)| index).collect();
    // A host function has one type, so the types of its imports are equal.
    let mut by_pointer = imports.iter().filter(|import| module.referenced.binary_search(import).is_ok());
    let type_by_pointer = by_pointer.next().and_then(|import| module.type_of(*import));
    let mut sites = Vec::new();
    let entries = module.entries.iter().map(|(_, function)| *function);
    walk_calls(module, entries, |caller, offset, callee| {
        let calls_it = match callee {
            Callee::Function(called) => imports.contains(&called),
            Callee::OfType(ty) => type_by_pointer.is_some() && module.type_at(ty) == type_by_pointer,
        };
        if calls_it {
            sites.push((offset, caller));
        }
    })?;
    sites.sort_unstable();
    let lines = Lines::new(module);
    let location = |(offset, function): &(u64, u32)| CodeLocation {
        function: *function,
        name: lines.name(*function),
        offset: *offset,
        line: lines.line(*offset),
    };
    Ok((sites.iter().take(most).map(location).collect(), sites.len()))
}

/// Returns `roots` and all functions that these can call.
pub(crate) fn reachable_functions(
    module: &ParsedModule,
    roots: impl Iterator<Item = u32>,
) -> Result<BTreeSet<u32>, Malformed> {
    Ok(walk_calls(module, roots, |_, _, _| ())?)
}

/// Visits each call in `roots` and in all functions that these can call: its function, its offset and the called function.
/// Returns the visited functions.
fn walk_calls(
    module: &ParsedModule,
    roots: impl Iterator<Item = u32>,
    mut visit: impl FnMut(u32, u64, Callee),
) -> Result<BTreeSet<u32>, BinaryReaderError> {
    let (mut walked, mut types) = (BTreeSet::new(), BTreeSet::new());
    let mut next: Vec<u32> = roots.collect();
    while let Some(function) = next.pop() {
        if !walked.insert(function) {
            continue;
        }
        // An imported function has no body.
        let Some(body) = module.body(function) else { continue };
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            let (operator, offset) = reader.read_with_offset()?;
            let callee = match operator {
                Operator::Call { function_index } => {
                    next.push(function_index);
                    Callee::Function(function_index)
                }
                Operator::CallIndirect { type_index, .. } => {
                    if types.insert(type_index) {
                        let wanted = module.type_at(type_index);
                        let has_type = |function: &&u32| module.type_of(**function) == wanted;
                        next.extend(module.referenced.iter().filter(has_type));
                    }
                    Callee::OfType(type_index)
                }
                _ => continue,
            };
            visit(function, offset, callee);
        }
    }
    Ok(walked)
}
