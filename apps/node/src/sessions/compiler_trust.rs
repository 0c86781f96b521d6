//! The node's trust in compilers: the decision whether a module runs in the machine code of its bundle.

use crate::control::module_file::ModuleFile;
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, SessionModule};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_compilation::bundle::{Bundle, ObjectForm};
use weir_compilation::compiler_keys::{
    CompilerKey, CompilerPolicy, Judgement, RecordRefusal, VouchedCode, Vouchers,
};
use weir_ledger::{Digest, LedgerText, SessionId, VouchedObject};
use weir_sandbox::{CodeWithdrawal, GivenObject, IsolatedAccesses, LoadError};
use weir_trust::digest::Sha256Digest;
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;
use {weir_admission::Name, weir_admission::Profile, weir_datapath::clock::wall_clock};

/// The trusted compiler keys, and those of them that are revoked.
#[derive(Clone, Debug, Default)]
pub struct CompilerTrust {
    /// The operator's policy.
    pub(crate) policy: Arc<CompilerPolicy>,
    /// Keys that a root has revoked.
    pub(crate) revoked: BTreeSet<PublicKey>,
}

impl CompilerTrust {
    fn judge<T>(&self, judge: impl FnOnce(Judgement<'_>) -> T) -> T {
        let is_revoked = |key: &CompilerKey| self.revoked.contains(&key.key);
        judge(Judgement { now: UnixSecond::containing(wall_clock()), is_revoked: &is_revoked })
    }

    /// Returns the machine code of a bundle that the node may use, before the verifier has seen it.
    pub(crate) fn vouched(
        &self,
        bundle: &Bundle,
        form: ObjectForm,
        of_node: (&Profile, u64),
    ) -> Result<VouchedCode, RecordRefusal> {
        self.judge(|judgement| self.policy.vouched(bundle, form, of_node, judgement))
    }

    /// Checks that the compiler of a module's code is still trusted.
    pub(crate) fn check_again(&self, code: &VouchedModule) -> Result<(), RecordRefusal> {
        self.judge(|judgement| self.policy.check_again(code.form, &code.vouchers, judgement))
    }
}

/// The code of a module that was compiled elsewhere, and the keys that vouch for it.
#[derive(Clone, Debug)]
pub(crate) struct VouchedModule {
    pub(crate) form: ObjectForm,
    /// Digest of the object file.
    pub(crate) object: Sha256Digest,
    pub(crate) vouchers: Vouchers,
    pub(crate) withdrawal: CodeWithdrawal,
    /// True if the module has other code to which it moves after a withdrawal.
    pub(crate) has_other_code: bool,
}

impl VouchedModule {
    /// Returns the form for the ledger.
    pub(crate) fn in_ledger(&self) -> Box<VouchedObject> {
        let texts = |keys: &[PublicKey]| keys.iter().map(|key| LedgerText::new(&key.to_string())).collect();
        Box::new(VouchedObject {
            object: Digest(self.object.0),
            semantics: texts(&self.vouchers.semantics),
            bounds: texts(&self.vouchers.bounds),
        })
    }

    /// Returns the keys, each once.
    pub(crate) fn keys(&self) -> BTreeSet<PublicKey> {
        self.vouchers.semantics.iter().chain(&self.vouchers.bounds).copied().collect()
    }
}

/// The reason why the machine code of a bundle is not used.
#[derive(Debug, thiserror::Error)]
pub enum BundleRefusal {
    /// The policy and the records do not agree.
    #[error(transparent)]
    Record(#[from] RecordRefusal),
    /// The module is not admitted for the record.
    #[error(transparent)]
    Module(#[from] Box<NodeError>),
    /// The code is not accepted or not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Returns the object file of vouched code, for the engine.
pub fn given_object(vouched: VouchedCode) -> GivenObject {
    let VouchedCode { object, inputs, bounds, features, .. } = vouched;
    GivenObject {
        object,
        features,
        isolated: IsolatedAccesses::from(&inputs.isolated_accesses),
        text: inputs.text.sha256.0,
        stack_bytes: bounds.stack_bytes,
    }
}

/// Reads the file of a module; `None` stands for a module that comes with weir.
pub(crate) fn read_file(module: &str, file: Option<Vec<u8>>) -> Result<Option<ModuleFile>, NodeError> {
    let failed = |error| NodeError::Bundle { module: module.to_owned(), error };
    file.map(ModuleFile::read).transpose().map_err(failed)
}

/// A module from which machine code was withdrawn.
pub(crate) struct WithdrawnCode {
    pub(crate) session: SessionId,
    pub(crate) module: Name,
    /// True if the module goes on in other code.
    pub(crate) has_other_code: bool,
    pub(crate) why: RecordRefusal,
}

impl Node {
    /// Returns the machine code of its bundle in which a module has begun.
    pub(crate) fn vouched(&self, session: &Name, module: &Name) -> Option<&VouchedModule> {
        self.sessions.get(session)?.modules.get(module)?.vouched.as_ref()
    }

    /// Withdraws machine code whose compiler is not trusted any more.
    pub(crate) fn withdraw_code(&self, trust: &CompilerTrust) -> Vec<WithdrawnCode> {
        let is_untrusted = |vouched: &&VouchedModule| trust.check_again(vouched).is_err();
        let stopping = self.sessions.values().flat_map(|state| state.stopping.values());
        // A module that is stopping still has to run `weir_stop`. The ledger will say that it was unloaded.
        let of_stopping = stopping.filter_map(|module| module.vouched.as_ref()).filter(is_untrusted);
        of_stopping.for_each(|vouched| vouched.withdrawal.withdraw());
        let modules = self.sessions.iter().flat_map(|(session, state)| {
            state.modules.iter().map(move |(module, state)| (session, module, state))
        });
        let withdraw = |(session, module, state): (&Name, &Name, &SessionModule)| {
            let vouched = state.vouched.as_ref().filter(|vouched| !vouched.withdrawal.is_withdrawn())?;
            let why = trust.check_again(vouched).err()?;
            vouched.withdrawal.withdraw();
            let (session, module) = (self.session_id(session)?, module.clone());
            Some(WithdrawnCode { session, module, has_other_code: vouched.has_other_code, why })
        };
        modules.filter_map(withdraw).collect()
    }
}
