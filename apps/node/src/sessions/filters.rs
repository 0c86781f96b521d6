//! Filters and views of channels, compiled before the node is locked.
//!
//! A filter is untrusted text. Its compilation takes at most a few milliseconds, needs no name lookup, and is debited
//! from the requester. Filters are compiled before the node is locked, so that other requests do not wait.

use crate::sessions::channel_plan::PlanError;
use crate::sessions::cpu_debit::debit_cpu_time;
use crate::sessions::error::NodeError;
use crate::sessions::view::KeyedView;
use crate::sync::LeafMutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use weir_admission::Name;
use weir_demux::FilterProgram;
use weir_netio::compile_filter;
use weir_os::ProcessorBudget;
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;
use weir_wire::view::{Transform, ViewKey};

/// Maximum number of cached filter programs. A program has at most 4,096 instructions.
const CACHED_MAX: usize = 256;

/// Text of a filter, and link type of the packets that it is for.
type Key = (String, LinkType);

/// A filter to compile, or a view's transformation to compute, before the node is locked.
#[derive(Clone, Debug)]
pub(crate) enum FilterRequest {
    /// A filter to compile.
    Filter {
        /// Channel or output channel of the filter, for errors.
        owner: FilterOwner,
        key: Key,
    },
    /// A view with the grant on which its key depends, and the key. Computing the view's tables takes 1 to 10 ms.
    View(KeyedView, Box<ViewKey>),
}

/// The part of a session that a filter belongs to.
#[derive(Clone, Debug)]
pub(crate) enum FilterOwner {
    Channel(Name),
    Output(Name),
}

/// A compiler of filters, with a cache of the filters that were compiled last.
#[derive(Debug, Default)]
pub(crate) struct RequestFilters {
    /// Filter programs, newest last.
    cache: LeafMutex<VecDeque<(Key, Arc<FilterProgram>)>>,
}

/// Compiled filters and transformations of one request.
#[derive(Debug, Default)]
pub(crate) struct CompiledFilters {
    programs: HashMap<Key, Arc<FilterProgram>>,
    transforms: HashMap<KeyedView, Transform>,
}

/// Returns a filter's text without surrounding white space, or `None` for an empty filter, which selects all packets.
pub(crate) fn trimmed(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

impl RequestFilters {
    /// Returns the programs of the wanted filters from the cache. `None` if a filter is not in the cache, or if a view
    /// is wanted.
    pub(crate) fn cached(&self, wanted: &[FilterRequest]) -> Option<CompiledFilters> {
        let mut compiled = CompiledFilters::default();
        for wanted in wanted {
            let FilterRequest::Filter { key, .. } = wanted else { return None };
            compiled.programs.insert(key.clone(), self.cached_program(key)?);
        }
        Some(compiled)
    }

    /// Compiles the wanted filters and computes the transformations of the wanted views. Debits the CPU time from
    /// `budget`. Stops at the first error.
    pub(crate) fn compile(
        &self,
        wanted: Vec<FilterRequest>,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<CompiledFilters, NodeError> {
        let mut compiled = CompiledFilters::default();
        for wanted in wanted {
            let (owner, key) = match wanted {
                FilterRequest::Filter { owner, key } => (owner, key),
                FilterRequest::View(keyed_view, view_key) => {
                    debit_cpu_time(budget, |_| {
                        compiled
                            .transforms
                            .entry(keyed_view)
                            .or_insert_with(|| Transform::new(keyed_view.view, &view_key));
                    });
                    continue;
                }
            };
            if compiled.programs.contains_key(&key) {
                continue;
            }
            match self.program(&key, budget) {
                Ok(program) => _ = compiled.programs.insert(key, program),
                Err(error) => {
                    return Err(match owner {
                        FilterOwner::Channel(channel) => NodeError::Channel { channel, error },
                        FilterOwner::Output(output) => NodeError::Output { output, error: error.into() },
                    });
                }
            }
        }
        Ok(compiled)
    }

    fn program(&self, key: &Key, budget: &mut dyn ProcessorBudget) -> Result<Arc<FilterProgram>, PlanError> {
        if let Some(program) = self.cached_program(key) {
            return Ok(program);
        }
        // The work for one filter is bounded by the length of its text, so a check of the budget before each filter
        // suffices.
        if budget.left() == Nanos(0) {
            return Err(PlanError::Budget(budget.limit()));
        }
        let program = Arc::new(debit_cpu_time(budget, |_| compile_filter(&key.0, key.1))?);
        self.cache.with(|cached| {
            // Another request may have compiled the same text meanwhile.
            if !cached.iter().any(|(cached_key, _)| cached_key == key) {
                while cached.len() >= CACHED_MAX {
                    cached.pop_front();
                }
                cached.push_back((key.clone(), Arc::clone(&program)));
            }
        });
        Ok(program)
    }

    fn cached_program(&self, key: &Key) -> Option<Arc<FilterProgram>> {
        self.cache.with(|cached| {
            cached.iter().find(|(cached_key, _)| cached_key == key).map(|(_, program)| Arc::clone(program))
        })
    }
}

impl CompiledFilters {
    /// Returns the conjunction of the filters with these texts. Empty texts are ignored. The conjunction of no filter
    /// selects all packets.
    pub(crate) fn conjunction<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
        link_type: LinkType,
    ) -> Result<Arc<FilterProgram>, PlanError> {
        let mut joined: Option<Arc<FilterProgram>> = None;
        for text in texts.into_iter().filter_map(trimmed) {
            let key = (text.to_owned(), link_type);
            let program = self.programs.get(&key).ok_or(PlanError::NotCompiled)?;
            joined = Some(match joined {
                None => Arc::clone(program),
                Some(joined) => Arc::new(joined.and(program)?),
            });
        }
        Ok(joined.unwrap_or_else(|| Arc::new(FilterProgram::accept_all())))
    }

    /// Returns the memory of a view's transformation.
    pub(crate) fn memory(&self, keyed_view: &KeyedView) -> Bytes {
        self.transforms.get(keyed_view).map_or(Bytes(0), Transform::memory)
    }

    /// Returns a copy of a view's transformation.
    pub(crate) fn transform(&self, keyed_view: &KeyedView) -> Option<Transform> {
        self.transforms.get(keyed_view).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_demux::Instruction;

    fn key(text: &str) -> Key {
        (text.to_owned(), LinkType::Ethernet)
    }

    fn wanted(text: &str) -> Vec<FilterRequest> {
        vec![FilterRequest::Filter {
            owner: FilterOwner::Channel(Name::new("main").unwrap()),
            key: key(text),
        }]
    }

    /// Returns a program that accepts packets that begin with this byte.
    fn first_byte(byte: u32) -> FilterProgram {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        FilterProgram::new(&[code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)])
            .unwrap()
    }

    #[test]
    fn cached_filters_are_not_compiled_again_and_the_cache_is_bounded() {
        let filters = RequestFilters::default();
        filters.cache.with(|cached| cached.push_back((key("udp"), Arc::new(first_byte(1)))));
        let mut used = Nanos(0);
        let compiled = filters.compile(wanted("udp"), &mut used).unwrap();
        assert_eq!(*compiled.conjunction(["udp"], LinkType::Ethernet).unwrap(), first_byte(1));
        assert_eq!(used, Nanos(0), "the program was cached");
        // A request is served from the cache as a whole, or compiles what is missing.
        assert!(filters.cached(&[wanted("udp"), wanted("tcp")].concat()).is_none());
        let found = filters.cached(&wanted("udp")).unwrap();
        let cached = filters.cache.take();
        assert!(filters.cached(&wanted("udp")).is_none());
        assert_eq!(*found.conjunction(["udp"], LinkType::Ethernet).unwrap(), first_byte(1));
        filters.cache.set(cached);
        // The same text for another link type is another program.
        let owner = FilterOwner::Output(Name::new("up").unwrap());
        let raw = FilterRequest::Filter { owner: owner.clone(), key: ("udp".to_owned(), LinkType::Raw) };
        let raw = filters.compile(vec![raw], &mut used).unwrap();
        assert_ne!(*raw.conjunction(["udp"], LinkType::Raw).unwrap(), first_byte(1));
        assert!(used > Nanos(0), "compiling is debited");
        assert_eq!(filters.cache.with(|cached| cached.len()), 2);
        // An invalid text is an error with its position, and is not cached.
        let before = used;
        let wrong = FilterRequest::Filter { owner, key: ("udp prot 5".to_owned(), LinkType::Raw) };
        let error = filters.compile(vec![wrong], &mut used).unwrap_err().to_string();
        assert!(error.contains("output channel `up`") && error.contains("at byte 4"), "{error}");
        assert!(used > before, "compiling a refused filter is debited, too");
        assert_eq!(filters.cache.with(|cached| cached.len()), 2);
        for port in 0..=CACHED_MAX {
            filters.compile(wanted(&format!("port {port}")), &mut used).unwrap();
        }
        assert_eq!(filters.cache.with(|cached| cached.len()), CACHED_MAX);
    }

    #[test]
    fn a_conjunction_needs_all_filters_and_ignores_empty_ones() {
        let programs = [(key("a"), Arc::new(first_byte(1))), (key("b"), Arc::new(first_byte(2)))].into();
        let compiled = CompiledFilters { programs, ..CompiledFilters::default() };
        let all = |texts: &[&str]| compiled.conjunction(texts.iter().copied(), LinkType::Ethernet);
        assert_eq!(*all(&[]).unwrap(), FilterProgram::accept_all());
        assert_eq!(*all(&["", " \n"]).unwrap(), FilterProgram::accept_all());
        assert_eq!(*all(&[" a ", ""]).unwrap(), first_byte(1));
        assert_eq!(*all(&["a", "b"]).unwrap(), first_byte(1).and(&first_byte(2)).unwrap());
        assert!(matches!(all(&["a", "c"]), Err(PlanError::NotCompiled)));
    }

    #[test]
    fn filters_of_one_request_share_its_budget() {
        let filters = RequestFilters::default();
        let mut budget = weir_os::CpuBudget::new(Nanos(5));
        budget.spend(Nanos(5));
        let error = filters.compile(wanted("udp"), &mut budget).unwrap_err().to_string();
        assert!(error.contains("the filters of this request take more than"), "{error}");
        // A cached program costs nothing.
        filters.cache.with(|cached| cached.push_back((key("udp"), Arc::new(first_byte(1)))));
        assert!(filters.compile(wanted("udp"), &mut budget).is_ok());
    }
}
