//! Filters of channels, compiled before the node is held.
//!
//! A filter is a stranger's text. Compiling it takes milliseconds at most, looks nothing up, and is debited from the requester. It is done before the node is
//! held, so that others go on asking the node meanwhile; then the programs are ready.

use crate::error::NodeError;
use crate::plan::PlanError;
use crate::sessions::metered::metered;
use crate::sessions::view::KeyedView;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_admission::Name;
use weir_demux::FilterProgram;
use weir_netio::compile_filter;
use weir_os::CpuMeter;
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;
use weir_wire::view::{Transform, ViewKey};

/// Programs that are kept for whoever asks for the same again. Each has at most 4096 instructions.
const KEPT_MAX: usize = 256;

/// A text, and for which packets it was compiled.
type Key = (String, LinkType);

/// What has to be made before the node is held.
#[derive(Clone, Debug)]
pub(crate) enum FilterRequest {
    /// A text that has to be compiled, and for whom.
    Filter {
        /// For whom.
        of: Of,
        /// The text.
        key: Key,
    },
    /// What shows packets by a view, whose tables take a millisecond or ten.
    Lens(KeyedView, Box<ViewKey>),
}

/// Whose filter is wrong, where it is.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    Channel(Name),
    Output(Name),
}

/// Compiles filters, and keeps the last ones.
#[derive(Debug, Default)]
pub(crate) struct RequestFilters {
    /// The newest last.
    kept: Mutex<VecDeque<(Key, Arc<FilterProgram>)>>,
}

/// Filters that are compiled, and what shows packets, for one request.
#[derive(Debug, Default)]
pub(crate) struct CompiledFilters {
    programs: HashMap<Key, Arc<FilterProgram>>,
    transforms: HashMap<KeyedView, Transform>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is left of a text when nothing is left out that means something. An empty one selects everything.
pub(crate) fn essential(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

impl RequestFilters {
    /// All of these, where they are kept; none where one is not.
    pub(crate) fn kept(&self, wanted: &[FilterRequest]) -> Option<CompiledFilters> {
        let kept = lock(&self.kept);
        let mut compiled = CompiledFilters::default();
        for wanted in wanted {
            let FilterRequest::Filter { key, .. } = wanted else { return None };
            let (_, program) = kept.iter().find(|(there, _)| there == key)?;
            compiled.programs.insert(key.clone(), Arc::clone(program));
        }
        Some(compiled)
    }

    /// Compiles all of these, and takes the processor time off `meter`. Stops at the first filter that cannot be compiled, and returns its error.
    pub(crate) fn compile(
        &self,
        wanted: Vec<FilterRequest>,
        meter: &mut dyn CpuMeter,
    ) -> Result<CompiledFilters, NodeError> {
        let mut compiled = CompiledFilters::default();
        for wanted in wanted {
            let (of, key) = match wanted {
                FilterRequest::Filter { of, key } => (of, key),
                FilterRequest::Lens(lens, key) => {
                    metered(meter, |_| {
                        compiled.transforms.entry(lens).or_insert_with(|| Transform::new(lens.view, &key));
                    });
                    continue;
                }
            };
            if compiled.programs.contains_key(&key) {
                continue;
            }
            match self.program(&key, meter) {
                Ok(program) => _ = compiled.programs.insert(key, program),
                Err(error) => {
                    return Err(match of {
                        Of::Channel(channel) => NodeError::Channel { channel, error },
                        Of::Output(output) => NodeError::Output { output, error: error.into() },
                    });
                }
            }
        }
        Ok(compiled)
    }

    fn program(&self, key: &Key, meter: &mut dyn CpuMeter) -> Result<Arc<FilterProgram>, PlanError> {
        if let Some((_, program)) = lock(&self.kept).iter().find(|(kept, _)| kept == key) {
            return Ok(Arc::clone(program));
        }
        // The text's length bounds the compiler's work, so the budget is checked before each text and not in between.
        if meter.left() == Nanos(0) {
            return Err(PlanError::Budget(meter.limit()));
        }
        let program = Arc::new(metered(meter, |_| compile_filter(&key.0, key.1))?);
        let mut kept = lock(&self.kept);
        // Somebody else may have asked for the same meanwhile.
        if !kept.iter().any(|(there, _)| there == key) {
            while kept.len() >= KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back((key.clone(), Arc::clone(&program)));
        }
        Ok(program)
    }
}

impl CompiledFilters {
    /// The program that accepts what all of these texts select; everything, where there is none.
    pub(crate) fn all<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
        link_type: LinkType,
    ) -> Result<Arc<FilterProgram>, PlanError> {
        let mut joined: Option<Arc<FilterProgram>> = None;
        for text in texts.into_iter().filter_map(essential) {
            let key = (text.to_owned(), link_type);
            let program = self.programs.get(&key).ok_or(PlanError::Another)?;
            joined = Some(match joined {
                None => Arc::clone(program),
                Some(joined) => Arc::new(joined.and(program)?),
            });
        }
        Ok(joined.unwrap_or_else(|| Arc::new(FilterProgram::everything())))
    }

    /// The memory that has what shows packets so.
    pub(crate) fn memory(&self, lens: &KeyedView) -> Bytes {
        self.transforms.get(lens).map_or(Bytes(0), Transform::memory)
    }

    /// What shows packets so, with a memory of its own.
    pub(crate) fn transform(&self, lens: &KeyedView) -> Option<Transform> {
        self.transforms.get(lens).cloned()
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
        vec![FilterRequest::Filter { of: Of::Channel(Name::new("main").unwrap()), key: key(text) }]
    }

    /// Accepts packets that begin with this byte.
    fn first_byte(byte: u32) -> FilterProgram {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        FilterProgram::new(&[code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)])
            .unwrap()
    }

    #[test]
    fn what_is_kept_is_not_compiled_again_and_only_so_much_is_kept() {
        let filters = RequestFilters::default();
        lock(&filters.kept).push_back((key("udp"), Arc::new(first_byte(1))));
        let mut used = Nanos(0);
        let compiled = filters.compile(wanted("udp"), &mut used).unwrap();
        assert_eq!(*compiled.all(["udp"], LinkType::Ethernet).unwrap(), first_byte(1));
        assert_eq!(used, Nanos(0), "it was there");
        // A request has all that it wants, or compiles what is missing.
        assert!(filters.kept(&[wanted("udp"), wanted("tcp")].concat()).is_none());
        let found = filters.kept(&wanted("udp")).unwrap();
        let kept = std::mem::take(&mut *lock(&filters.kept));
        assert!(filters.kept(&wanted("udp")).is_none());
        assert_eq!(*found.all(["udp"], LinkType::Ethernet).unwrap(), first_byte(1));
        *lock(&filters.kept) = kept;
        // For other packets it is another program.
        let of = Of::Output(Name::new("up").unwrap());
        let raw = FilterRequest::Filter { of: of.clone(), key: ("udp".to_owned(), LinkType::Raw) };
        let raw = filters.compile(vec![raw], &mut used).unwrap();
        assert_ne!(*raw.all(["udp"], LinkType::Raw).unwrap(), first_byte(1));
        assert!(used > Nanos(0), "compiling is debited");
        assert_eq!(lock(&filters.kept).len(), 2);
        // A text that is no filter is an error with its place, and is not kept.
        let before = used;
        let wrong = FilterRequest::Filter { of, key: ("udp prot 5".to_owned(), LinkType::Raw) };
        let error = filters.compile(vec![wrong], &mut used).unwrap_err().to_string();
        assert!(error.contains("output channel `up`") && error.contains("at byte 4"), "{error}");
        assert!(used > before, "so is what was refused");
        assert_eq!(lock(&filters.kept).len(), 2);
        for port in 0..=KEPT_MAX {
            filters.compile(wanted(&format!("port {port}")), &mut used).unwrap();
        }
        assert_eq!(lock(&filters.kept).len(), KEPT_MAX);
    }

    #[test]
    fn all_texts_have_to_match_and_empty_ones_say_nothing() {
        let programs = [(key("a"), Arc::new(first_byte(1))), (key("b"), Arc::new(first_byte(2)))].into();
        let compiled = CompiledFilters { programs, ..CompiledFilters::default() };
        let all = |texts: &[&str]| compiled.all(texts.iter().copied(), LinkType::Ethernet);
        assert_eq!(*all(&[]).unwrap(), FilterProgram::everything());
        assert_eq!(*all(&["", " \n"]).unwrap(), FilterProgram::everything());
        assert_eq!(*all(&[" a ", ""]).unwrap(), first_byte(1));
        assert_eq!(*all(&["a", "b"]).unwrap(), first_byte(1).and(&first_byte(2)).unwrap());
        assert!(matches!(all(&["a", "c"]), Err(PlanError::Another)));
    }

    #[test]
    fn filters_of_one_request_share_its_budget() {
        let filters = RequestFilters::default();
        let mut budget = weir_os::CpuBudget::new(Nanos(5));
        budget.spend(Nanos(5));
        let error = filters.compile(wanted("udp"), &mut budget).unwrap_err().to_string();
        assert!(error.contains("all that this request has to have compiled"), "{error}");
        // A program that is kept takes nothing.
        lock(&filters.kept).push_back((key("udp"), Arc::new(first_byte(1))));
        assert!(filters.compile(wanted("udp"), &mut budget).is_ok());
    }
}
