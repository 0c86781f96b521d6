//! The reasons why no variable of a loop counts towards its end: for the message to the author, after no bound was found.

use crate::CounterProblem;
use crate::state::AbstractState;
use crate::trip_count::{InductionVariable, LoopAnalysis};
use crate::value::{LinearSum, Op, ValueId};
use std::collections::BTreeSet;

impl LoopAnalysis<'_> {
    /// Finds in the tests on the way to a back edge why no variable counts towards the loop's end. The problem that says most to
    /// the author comes first in [`CounterProblem`].
    pub(crate) fn counter_problem(
        &self,
        variables: &[InductionVariable],
        edge: &AbstractState,
    ) -> CounterProblem {
        let moving = |id: ValueId| {
            let sum = self.values.as_sum(id);
            // A test can use the value for the next iteration, too.
            let is_next = |variable: &InductionVariable| edge.locals.get(variable.local) == Some(&id);
            variables.iter().position(|variable| sum.coefficient(variable.offset) != 0 || is_next(variable))
        };
        let is_fixed = |id| self.values.is_invariant(id, self.first_in_loop, 4);
        let (mut problem, mut tested) = (CounterProblem::Unknown, BTreeSet::new());
        for (_, _, a, b) in self.conditions.comparisons_since(edge.conditions, self.entry) {
            match (moving(a), moving(b)) {
                (Some(_), Some(_)) => problem = problem.min(CounterProblem::BothMove),
                (Some(variable), None) | (None, Some(variable)) => _ = tested.insert(variable),
                (None, None) if is_fixed(a) && is_fixed(b) => {}
                (None, None) => problem = problem.min(CounterProblem::EndsByData),
            }
        }
        // A step can take long to find, so each variable's is found once, however many tests there are.
        let of_steps = tested.iter().filter_map(|index| self.step_problem(variables.get(*index)?, edge));
        of_steps.fold(problem, CounterProblem::min)
    }

    /// Returns the reason why a variable that a test uses does not count; `None` if it goes in one direction.
    fn step_problem(&self, variable: &InductionVariable, edge: &AbstractState) -> Option<CounterProblem> {
        let next = *edge.locals.get(variable.local)?;
        if let Op::And(a, b) = &self.values.node(next).op {
            for (of, mask) in [(*a, *b), (*b, *a)] {
                let bits = match self.values.as_sum(mask) {
                    LinearSum { terms, constant: 0xff } if terms.is_empty() => 8,
                    LinearSum { terms, constant: 0xffff } if terms.is_empty() => 16,
                    _ => continue,
                };
                if self.values.as_sum(of).coefficient(variable.offset) != 0 {
                    return Some(CounterProblem::Narrow(bits));
                }
            }
        }
        match self.values.as_sum(next).coefficient(variable.offset) {
            0 => return Some(CounterProblem::EndsByData),
            1 => {}
            _ => return Some(CounterProblem::Multiplied),
        }
        match self.delta(variable, edge) {
            None => Some(CounterProblem::StepUnknown),
            Some((0, 0)) => None,
            Some((least, most)) if least == 0 || most == 0 => Some(CounterProblem::StepMayBeZero),
            Some((least, most)) if least < 0 && most > 0 => Some(CounterProblem::StepUnknown),
            Some(_) => None,
        }
    }
}
