//! The memory that a module begins with, for instances without a WebAssembly instance of wasmtime.

use std::ops::Range;
use wasmparser::{ConstExpr, DataKind, Operator, Parser, Payload};

/// The bytes of a page of WebAssembly.
pub(crate) const PAGE: u64 = 1 << 16;
/// The most pages of a memory with addresses of 32 bits.
const PAGES_MAX: u64 = 1 << 16;

/// The size of a module's memory, and its active data segments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InitialMemory {
    /// The first size, in pages.
    pub(crate) pages: u64,
    /// The most pages that the memory can have.
    pub(crate) pages_max: u64,
    /// The data segments in the order in which they are written: the address, and the place of the bytes in the module.
    segments: Vec<(u32, Range<usize>)>,
}

impl InitialMemory {
    /// Reads a module.
    ///
    /// # Errors
    /// The module has not exactly one memory, or a data segment whose address is no constant. Admission accepts no such
    /// module.
    pub(crate) fn read(module: &[u8]) -> Result<Self, String> {
        let failed = |error: wasmparser::BinaryReaderError| error.to_string();
        let (mut memory, mut segments) = (None, Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload.map_err(failed)? {
                Payload::MemorySection(section) => {
                    for found in section {
                        if memory.replace(found.map_err(failed)?).is_some() {
                            return Err("it has two memories".to_owned());
                        }
                    }
                }
                Payload::DataSection(section) => {
                    for segment in section {
                        let segment = segment.map_err(failed)?;
                        let DataKind::Active { memory_index: 0, offset_expr } = segment.kind else {
                            continue;
                        };
                        let address = constant(&offset_expr)
                            .ok_or_else(|| "the address of a data segment is no constant".to_owned())?;
                        let end = usize::try_from(segment.range.end).unwrap_or(usize::MAX);
                        segments.push((address, end.saturating_sub(segment.data.len())..end));
                    }
                }
                _ => {}
            }
        }
        let memory = memory.ok_or_else(|| "it has no memory of its own".to_owned())?;
        let pages_max = memory.maximum.unwrap_or(PAGES_MAX).min(PAGES_MAX);
        Ok(Self { pages: memory.initial, pages_max, segments })
    }

    /// Writes the data segments of `module`, from which this value was read, to the memory. Returns false if a segment does
    /// not fit; the segments before it are written then.
    pub(crate) fn write(&self, module: &[u8], memory: &mut [u8]) -> bool {
        self.segments.iter().all(|(address, place)| {
            let bytes = module.get(place.clone()).unwrap_or_default();
            let target = memory.get_mut(*address as usize..).and_then(|rest| rest.get_mut(..bytes.len()));
            target.map(|target| target.copy_from_slice(bytes)).is_some()
        })
    }
}

/// Returns the value of an expression `i32.const`.
fn constant(expression: &ConstExpr<'_>) -> Option<u32> {
    let mut operators = expression.get_operators_reader();
    let Ok(Operator::I32Const { value }) = operators.read() else { return None };
    matches!(operators.read(), Ok(Operator::End)).then_some(value.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_written_in_order_up_to_one_that_does_not_fit() {
        let text = r#"(module (memory 1 3)
            (data (i32.const 2) "abc") (data "passive") (data (i32.const 3) "d") (data (i32.const 65535) "ef"))"#;
        let module = wat::parse_str(text).unwrap();
        let initial = InitialMemory::read(&module).unwrap();
        assert_eq!((initial.pages, initial.pages_max), (1, 3));
        let mut memory = vec![0; 65536];
        assert!(!initial.write(&module, &mut memory));
        assert_eq!(&memory[..6], b"\0\0adc\0");
        assert_eq!(memory[65535], 0);
        memory.push(0);
        assert!(initial.write(&module, &mut memory));
        assert_eq!(&memory[65535..], b"ef");
    }

    #[test]
    fn modules_that_no_instance_can_begin_with_are_refused() {
        for (text, why) in [
            ("(module)", "it has no memory of its own"),
            ("(module (memory 1) (memory 1))", "it has two memories"),
            (
                r#"(module (import "a" "b" (global i32)) (memory 1) (data (global.get 0) "a"))"#,
                "the address of a data segment is no constant",
            ),
        ] {
            assert_eq!(InitialMemory::read(&wat::parse_str(text).unwrap()), Err(why.to_owned()), "{text}");
        }
        let unlimited = wat::parse_str("(module (memory 0))").unwrap();
        assert_eq!(InitialMemory::read(&unlimited).unwrap().pages_max, 65_536);
    }
}
