//! The call graph: bounds of the stack.

use crate::image::{Callee, FunctionFacts};

/// The progress of the search in one function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    New,
    /// On the path from the root.
    Open,
    Done,
}

/// Computes the stack bound of each function: a depth-first search without recursion, which visits each call once.
pub(crate) fn bound_stacks(facts: &mut [FunctionFacts]) {
    let mut progress = vec![Progress::New; facts.len()];
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..facts.len() {
        if progress[root] != Progress::New {
            continue;
        }
        open(root, facts, &mut progress);
        path.push((root, 0));
        while let Some((function, next)) = path.last_mut() {
            let function = *function;
            let callee = facts[function].callees.get(*next).copied();
            *next += 1;
            match callee {
                None => {
                    progress[function] = Progress::Done;
                    path.pop();
                    // The caller considers this callee again, now with its bound.
                    if let Some((_, next)) = path.last_mut() {
                        *next -= 1;
                    }
                }
                Some(Callee::Function(callee)) if progress[callee as usize] == Progress::New => {
                    open(callee as usize, facts, &mut progress);
                    path.push((callee as usize, 0));
                }
                Some(callee) => {
                    let below = bound_of(callee, facts, &progress);
                    add(&mut facts[function], below);
                }
            }
        }
    }
}

/// Begins with the frame alone.
fn open(function: usize, facts: &mut [FunctionFacts], progress: &mut [Progress]) {
    progress[function] = Progress::Open;
    facts[function].stack_bound = Some(facts[function].frame_bytes.into());
}

/// The bound of a callee without its return address. None if it is recursive, as is a callee on the path.
fn bound_of(callee: Callee, facts: &[FunctionFacts], progress: &[Progress]) -> Option<u64> {
    match callee {
        Callee::Thunk(_) => Some(0),
        Callee::Function(callee) if progress[callee as usize] == Progress::Open => None,
        Callee::Function(callee) => facts[callee as usize].stack_bound,
    }
}

/// Raises the bound of a function to that of the path through a callee. The frame contains the callee's return address.
fn add(caller: &mut FunctionFacts, below: Option<u64>) {
    let through = below.map(|below| u64::from(caller.frame_bytes) + below);
    caller.stack_bound = match (caller.stack_bound, through) {
        (Some(known), Some(through)) => Some(known.max(through)),
        _ => None,
    };
}
