//! The origin of a rewritten module's instructions in the module before it was rewritten.

use wasmparser::{Parser, Payload};

/// A rewritten module.
pub(crate) struct RewrittenModule {
    pub(crate) bytes: Vec<u8>,
    /// The origins of each of the module's own functions, in their order. The loader's functions come after them.
    pub(crate) origins: Vec<FunctionOrigins>,
    /// The index of the function that replaces `memory.copy`, if the module uses it.
    pub(crate) copy_function: Option<u32>,
}

/// The origins of one function's code, by rising offset in its body. Each is the offset of an instruction in the module
/// before it was rewritten, `None` for code of the loader, and holds up to the next one.
#[derive(Debug, Default)]
pub(crate) struct FunctionOrigins(Vec<(u32, Option<u32>)>);

impl FunctionOrigins {
    /// Adds the origin of the code from this offset in the body on.
    pub(crate) fn add(&mut self, in_body: usize, origin: Option<u64>) {
        let in_body = u32::try_from(in_body).unwrap_or(u32::MAX);
        self.0.push((in_body, origin.and_then(|origin| u32::try_from(origin).ok())));
    }
}

impl RewrittenModule {
    /// Returns the origins of all code by rising offset in the rewritten module. Each holds up to the next one.
    pub(crate) fn origins(&self) -> Vec<(u32, Option<u32>)> {
        let mut origins = Vec::new();
        let mut functions = self.origins.iter();
        for payload in Parser::new(0).parse_all(&self.bytes).flatten() {
            let Payload::CodeSectionEntry(body) = payload else { continue };
            let start = u32::try_from(body.range().start).unwrap_or(u32::MAX);
            origins.push((start, None));
            let function = functions.next().map(|function| function.0.as_slice()).unwrap_or_default();
            origins
                .extend(function.iter().map(|(in_body, origin)| (start.saturating_add(*in_body), *origin)));
        }
        origins
    }
}
