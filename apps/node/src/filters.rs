//! Filters of channels, compiled before the node is held.
//!
//! A filter is a stranger's text, and compiling it can take as long as its limits allow. So whoever asks for channels has their filters compiled first, each in
//! a process of its own ([`FilterCompiler`]), while others go on asking the node; then the node is held, and finds the programs ready.

use crate::error::NodeError;
use crate::plan::PlanError;
use crate::view::Lens;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_demux::Program;
use weir_netio::FilterCompiler;
use weir_sandbox::thread_time;
use weir_session::Name;
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;
use weir_wire::view::{Transform, ViewKey};

/// Children at a time, whoever asks for them: so all of them together take no more memory and processors than that many do.
const CHILDREN_MAX: usize = 4;

/// Programs that are kept for whoever asks for the same again. Each has at most 4096 instructions.
const KEPT_MAX: usize = 256;

/// A text, and for which packets it was compiled.
type Key = (String, LinkType);

/// What has to be made before the node is held.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// A text that has to be compiled, and for whom.
    Filter {
        /// For whom.
        of: Of,
        /// The text.
        key: Key,
    },
    /// What shows packets by a view, whose tables take a millisecond or ten.
    Lens(Lens, Box<ViewKey>),
}

/// Whose filter is wrong, where it is.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    Channel(Name),
    Output(Name),
}

/// Compiles filters, and keeps the last ones.
#[derive(Debug)]
pub(crate) struct Filters {
    compiler: FilterCompiler,
    /// The newest last.
    kept: Mutex<VecDeque<(Key, Arc<Program>)>>,
    /// How many children there are.
    children: Mutex<usize>,
    has_ended: Condvar,
}

/// Filters that are compiled, and what shows packets, for one request.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    programs: HashMap<Key, Arc<Program>>,
    transforms: HashMap<Lens, Transform>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is left of a text when nothing is left out that means something. An empty one selects everything.
pub(crate) fn essential(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

impl Filters {
    pub(crate) fn new(compiler: FilterCompiler) -> Self {
        Self { compiler, kept: Mutex::default(), children: Mutex::default(), has_ended: Condvar::new() }
    }

    /// All of these, where they are kept. Nothing where one is not: so who finds them here starts no process, whatever becomes of what is kept.
    pub(crate) fn kept(&self, wanted: &[Wanted]) -> Option<Compiled> {
        let kept = lock(&self.kept);
        let mut compiled = Compiled::default();
        for wanted in wanted {
            let Wanted::Filter { key, .. } = wanted else { return None };
            let (_, program) = kept.iter().find(|(there, _)| there == key)?;
            compiled.programs.insert(key.clone(), Arc::clone(program));
        }
        Some(compiled)
    }

    /// Compiles all of these. The first that cannot be is an error, and the rest is not looked at. Adds to `used` the processor time that it took.
    pub(crate) fn compile(&self, wanted: Vec<Wanted>, used: &mut Nanos) -> Result<Compiled, NodeError> {
        let mut compiled = Compiled::default();
        for wanted in wanted {
            let (of, key) = match wanted {
                Wanted::Filter { of, key } => (of, key),
                Wanted::Lens(lens, key) => {
                    let begin = thread_time();
                    compiled.transforms.entry(lens).or_insert_with(|| Transform::new(lens.view, &key));
                    used.0 += thread_time().0.saturating_sub(begin.0);
                    continue;
                }
            };
            if compiled.programs.contains_key(&key) {
                continue;
            }
            match self.program(&key, used) {
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

    fn program(&self, key: &Key, used: &mut Nanos) -> Result<Arc<Program>, PlanError> {
        if let Some((_, program)) = lock(&self.kept).iter().find(|(kept, _)| kept == key) {
            return Ok(Arc::clone(program));
        }
        let program = {
            let _turn = Turn::of(self);
            Arc::new(self.compiler.compile_counting(&key.0, key.1, used)?)
        };
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

/// The right to one child.
struct Turn<'a>(&'a Filters);

impl<'a> Turn<'a> {
    /// Waits for it. No child takes longer than its limit.
    fn of(filters: &'a Filters) -> Self {
        let children = lock(&filters.children);
        let waited = filters.has_ended.wait_while(children, |children| *children >= CHILDREN_MAX);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Self(filters)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.children) -= 1;
        self.0.has_ended.notify_one();
    }
}

impl Compiled {
    /// The program that accepts what all of these texts select; everything, where there is none.
    pub(crate) fn all<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
        link_type: LinkType,
    ) -> Result<Arc<Program>, PlanError> {
        let mut joined: Option<Arc<Program>> = None;
        for text in texts.into_iter().filter_map(essential) {
            let key = (text.to_owned(), link_type);
            let program = self.programs.get(&key).ok_or(PlanError::Another)?;
            joined = Some(match joined {
                None => Arc::clone(program),
                Some(joined) => Arc::new(joined.and(program)?),
            });
        }
        Ok(joined.unwrap_or_else(|| Arc::new(Program::everything())))
    }

    /// The memory that has what shows packets so.
    pub(crate) fn memory(&self, lens: &Lens) -> Bytes {
        self.transforms.get(lens).map_or(Bytes(0), Transform::memory)
    }

    /// What shows packets so, with a memory of its own.
    pub(crate) fn transform(&self, lens: &Lens) -> Option<Transform> {
        self.transforms.get(lens).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use weir_demux::Instruction;
    use weir_netio::FilterLimits;

    fn key(text: &str) -> Key {
        (text.to_owned(), LinkType::Ethernet)
    }

    fn wanted(text: &str) -> Vec<Wanted> {
        vec![Wanted::Filter { of: Of::Channel(Name::new("main").unwrap()), key: key(text) }]
    }

    /// There is no such program, so nothing can be compiled.
    fn filters() -> Filters {
        Filters::new(FilterCompiler::new(FilterLimits::default(), Some(PathBuf::from("/nowhere/weir"))))
    }

    /// Accepts packets that begin with this byte.
    fn first_byte(byte: u32) -> Program {
        let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
        Program::new(&[code(0x30, 0, 0, 0), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)])
            .unwrap()
    }

    #[test]
    fn what_is_kept_is_not_compiled_again_and_only_so_much_is_kept() {
        let filters = filters();
        lock(&filters.kept).push_back((key("udp"), Arc::new(first_byte(1))));
        let compiled = filters.compile(wanted("udp"), &mut Nanos(0)).unwrap();
        assert_eq!(*compiled.all(["udp"], LinkType::Ethernet).unwrap(), first_byte(1));
        // Who finds all that he wants has it, whatever becomes of it then; who does not has nothing.
        assert!(filters.kept(&[wanted("udp"), wanted("tcp")].concat()).is_none());
        let found = filters.kept(&wanted("udp")).unwrap();
        let kept = std::mem::take(&mut *lock(&filters.kept));
        assert!(filters.kept(&wanted("udp")).is_none());
        assert_eq!(*found.all(["udp"], LinkType::Ethernet).unwrap(), first_byte(1));
        *lock(&filters.kept) = kept;
        // For other packets it is another program.
        let of = Of::Output(Name::new("up").unwrap());
        let raw = Wanted::Filter { of, key: ("udp".to_owned(), LinkType::Raw) };
        let error = filters.compile(vec![raw], &mut Nanos(0)).unwrap_err().to_string();
        assert!(error.contains("output channel `up`") && error.contains("there is no process"), "{error}");
        assert_eq!(*lock(&filters.children), 0);
        assert!(filters.compile(wanted("tcp"), &mut Nanos(0)).is_err());
        assert_eq!(lock(&filters.kept).len(), 1, "what cannot be compiled is not kept");
    }

    #[test]
    fn all_texts_have_to_match_and_empty_ones_say_nothing() {
        let programs = [(key("a"), Arc::new(first_byte(1))), (key("b"), Arc::new(first_byte(2)))].into();
        let compiled = Compiled { programs, ..Compiled::default() };
        let all = |texts: &[&str]| compiled.all(texts.iter().copied(), LinkType::Ethernet);
        assert_eq!(*all(&[]).unwrap(), Program::everything());
        assert_eq!(*all(&["", " \n"]).unwrap(), Program::everything());
        assert_eq!(*all(&[" a ", ""]).unwrap(), first_byte(1));
        assert_eq!(*all(&["a", "b"]).unwrap(), first_byte(1).and(&first_byte(2)).unwrap());
        assert!(matches!(all(&["a", "c"]), Err(PlanError::Another)));
    }

    #[test]
    fn no_more_children_than_so_many_are_there_at_a_time() {
        let filters = filters();
        let turns: Vec<Turn<'_>> = (0..CHILDREN_MAX).map(|_| Turn::of(&filters)).collect();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| drop(Turn::of(&filters)));
            assert_eq!(*lock(&filters.children), CHILDREN_MAX);
            drop(turns);
            next.join().unwrap();
        });
        assert_eq!(*lock(&filters.children), 0);
    }
}
