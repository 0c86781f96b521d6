//! Object files that others have compiled: what a bundle contains.

use crate::back_end::WITHDRAWN;
use crate::load::machine_code::ForeignCode;
use crate::load::native::NativeModule;
use sha2::{Digest as _, Sha256};
use weir_lower::{IsolatedAccesses, LowerOptions};
use weir_native::cpu_features;
use weir_verify::CpuFeatures;

/// An object file that another machine has compiled, with the inputs of its compilation.
#[derive(Clone, Debug)]
pub struct GivenObject {
    /// The object file.
    pub object: Vec<u8>,
    /// The processors that the code is for.
    pub features: CpuFeatures,
    /// The accesses that were isolated from the optimiser.
    pub isolated: IsolatedAccesses,
    /// The SHA-256 digest of the text that the compiler made the object file of.
    pub text: [u8; 32],
    /// The stated most bytes of stack of a call; `None` with recursion.
    pub stack_bytes: Option<u64>,
}

/// The reason why an object file of others is not used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectRefusal {
    /// The machine cannot run verified code.
    #[error("{0}")]
    Machine(&'static str),
    /// The code is for other processors.
    #[error("its machine code is for processors with instructions that this one lacks")]
    Features,
    /// The object file was made of another text than this weir makes of the module.
    #[error(
        "its machine code was made of another text than this weir makes of the module: another version of weir compiled it, or for another profile"
    )]
    Text,
    /// The verifier finds another use of the stack than is stated.
    #[error("its bounds state {} of stack, and the verifier finds {}", stack(*.stated), stack(*.own))]
    Stack {
        /// The stated bytes.
        stated: Option<u64>,
        /// The verifier's bytes.
        own: Option<u64>,
    },
    /// The module has no machine code of LLVM.
    #[error("it has no machine code of LLVM: {0}")]
    Module(String),
    /// The code was withdrawn, and the module has no other code.
    #[error("{WITHDRAWN}")]
    Withdrawn,
    /// The object file cannot be linked, or the verifier rejects its code.
    #[error("its machine code is not used: {0}")]
    Code(String),
}

fn stack(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "any amount".to_owned(), |bytes| format!("{bytes} bytes"))
}

impl GivenObject {
    /// Returns the verified code of this object file for a rewritten module. No compiler runs.
    pub(crate) fn verified(&self, rewritten: &[u8]) -> Result<NativeModule, ObjectRefusal> {
        if self.features > cpu_features() {
            return Err(ObjectRefusal::Features);
        }
        let options = LowerOptions {
            features: self.features,
            isolated: self.isolated.clone(),
            ..LowerOptions::default()
        };
        let foreign = ForeignCode::lower(rewritten, &options)
            .map_err(|error| ObjectRefusal::Module(error.to_string()))?;
        if <[u8; 32]>::from(Sha256::digest(foreign.text().as_bytes())) != self.text {
            return Err(ObjectRefusal::Text);
        }
        let code = foreign.verify(&self.object).map_err(|error| ObjectRefusal::Code(error.to_string()))?;
        let own = code.verified.stack_bound();
        if own != self.stack_bytes {
            return Err(ObjectRefusal::Stack { stated: self.stack_bytes, own });
        }
        NativeModule::new(code, self.object.clone()).map_err(|error| ObjectRefusal::Code(error.to_string()))
    }
}
