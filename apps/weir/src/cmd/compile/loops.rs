//! The loops of machine code, and the bounds that the analysis has found for the loops of the module.
//!
//! A bound is attributed by position: to a machine loop belongs the innermost loop of the module that contains the origins of all
//! its accesses to memory, because the compiler moves no access into a loop or out of it. In a loop without accesses, all
//! instructions count. A machine loop without such a loop, or around another one with the same, gets no bound.

use super::flow::natural_loops;
use super::reason::ReasonedInstruction;
use std::collections::BTreeMap;
use std::ops::Range;
use wasmparser::Operator;
use weir_admission::Admitted;
use weir_bounds::LoopBound;
use weir_sandbox::{CodeOrigin, ModuleFunction};

/// A loop in machine code.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineLoop<'a> {
    /// The offset of the first instruction.
    pub(super) head: u32,
    /// The offset of the last jump to it.
    pub(super) end: u32,
    /// The bound of the loop of the module.
    pub(super) bound: Option<&'a LoopBound>,
}

/// A loop of the module, with the offsets of its instructions.
struct SourceLoop<'a> {
    function: u32,
    offsets: Range<u64>,
    bound: &'a LoopBound,
}

/// The loops of a module for which the analysis has bounds, and its functions.
pub(super) struct SourceLoops<'a> {
    loops: Vec<SourceLoop<'a>>,
    /// The offsets of the functions' bodies, by rising offset.
    bodies: Vec<(Range<u64>, u32)>,
}

impl<'a> SourceLoops<'a> {
    /// Finds the loops of a module.
    pub(super) fn new(admitted: &'a Admitted) -> Self {
        let module = admitted.module();
        let bounds: BTreeMap<u64, &LoopBound> =
            admitted.analysis().loops.iter().map(|bound| (bound.place.offset, bound)).collect();
        let imported = module.functions.len().saturating_sub(module.bodies().len());
        let first = u32::try_from(imported).unwrap_or(u32::MAX);
        let mut found = Self { loops: Vec::new(), bodies: Vec::new() };
        for (function, body) in (first..).zip(module.bodies()) {
            found.bodies.push((body.range(), function));
            // The module has been validated, so reading does not fail.
            let Ok(mut operators) = body.get_operators_reader() else { continue };
            let mut open: Vec<Option<(u64, &LoopBound)>> = Vec::new();
            while let Ok((operator, offset)) = operators.read_with_offset() {
                match operator {
                    Operator::Loop { .. } => open.push(bounds.get(&offset).map(|bound| (offset, *bound))),
                    Operator::Block { .. } | Operator::If { .. } => open.push(None),
                    Operator::End => {
                        if let Some(Some((start, bound))) = open.pop() {
                            found.loops.push(SourceLoop { function, offsets: start..offset, bound });
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Returns the loops of a function in machine code, by their first instruction.
    pub(super) fn machine_loops(
        &self,
        function: &ModuleFunction,
        instructions: &[ReasonedInstruction<'_>],
    ) -> Vec<MachineLoop<'a>> {
        let natural = natural_loops(instructions);
        let offset = |index: usize| instructions.get(index).map_or(0, |at| at.explained.facts.offset);
        let mut loops: Vec<MachineLoop<'a>> = natural
            .iter()
            .map(|found| {
                let body = found.body.iter().flat_map(|range| instructions.get(range.clone())).flatten();
                let origins = body.filter_map(|at| match at.explained.origin {
                    CodeOrigin::Module(offset) => Some((at.kind.is_some(), offset.into())),
                    CodeOrigin::Loader | CodeOrigin::Unknown => None,
                });
                let origins: Vec<(bool, u64)> = origins.collect();
                let has_accesses = origins.iter().any(|(is_access, _)| *is_access);
                let counted = origins.iter().filter(|(is_access, _)| *is_access || !has_accesses);
                MachineLoop {
                    head: offset(found.head),
                    end: offset(found.last_jump),
                    bound: self.bound_of(function, counted.map(|(_, offset)| *offset)),
                }
            })
            .collect();
        // The innermost loop of several with the same bound is the one that it belongs to.
        for outer in 0..loops.len() {
            let has_inner = (0..loops.len()).any(|inner| {
                let bounds = loops[outer].bound.zip(loops[inner].bound);
                inner != outer
                    && bounds.is_some_and(|(bound, other)| bound.place == other.place)
                    && natural[outer].body.iter().any(|range| range.contains(&natural[inner].head))
            });
            if has_inner {
                loops[outer].bound = None;
            }
        }
        loops
    }

    /// Returns the bound of the innermost loop of the module that contains all these offsets, apart from those of inlined
    /// functions.
    fn bound_of(
        &self,
        function: &ModuleFunction,
        offsets: impl Iterator<Item = u64>,
    ) -> Option<&'a LoopBound> {
        let mut by_function: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for offset in offsets {
            let after = self.bodies.partition_point(|(body, _)| body.start <= offset);
            let (body, function) = self.bodies.get(after.checked_sub(1)?)?;
            if body.contains(&offset) {
                by_function.entry(*function).or_default().push(offset);
            }
        }
        let innermost = |function: u32, offsets: &[u64]| {
            let own = self.loops.iter().filter(|found| found.function == function);
            own.filter(|found| offsets.iter().all(|offset| found.offsets.contains(offset)))
                .min_by_key(|found| found.offsets.end - found.offsets.start)
                .map(|found| found.bound)
        };
        if let ModuleFunction::Own(index) = function
            && let Some(offsets) = by_function.get(index)
        {
            return innermost(*index, offsets);
        }
        // Code that is inlined from one other function alone.
        let mut others = by_function.iter();
        match (others.next(), others.next()) {
            (Some((function, offsets)), None) => innermost(*function, offsets),
            _ => None,
        }
    }
}
