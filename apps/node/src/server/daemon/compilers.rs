//! Compilers: the node's own engine, the trusted keys of others, and the withdrawal of code whose compiler is not trusted any
//! more.

use super::{Daemon, DaemonError, LoadedConfig, Setup};
use crate::log;
use crate::server::trust::Trust;
use crate::sessions::compiler_trust::{CompilerTrust, WithdrawnCode};
use crate::sessions::module_loader::ModuleLoader;
use std::sync::Arc;
use std::time::Duration;
use weir_compilation::compiler_keys::CompilerPolicy;
use weir_ledger::{LedgerEvent, LedgerText};
use weir_sandbox::{Cache, CompileLimits, Engine, EngineOptions, LlvmUse};
use weir_trust::credential::DelegationId;

/// The processor time after which the watchdog aborts a call of a supervised or metered module.
const CALL_LIMIT: Duration = Duration::from_millis(500);

/// Creates the module loader of a node.
pub(super) fn new_module_loader(
    setup: &Setup,
    loaded: &LoadedConfig,
    cache: Option<Cache>,
) -> Result<ModuleLoader, DaemonError> {
    let cores = loaded.config.other_cores();
    let options = EngineOptions {
        call_limit: CALL_LIMIT,
        compile_in_child: Some(CompileLimits { cores, ..CompileLimits::default() }),
        llvm: LlvmUse::Later,
        compiles: loaded.config.compilation.compile,
        ..EngineOptions::default()
    };
    let engine = Arc::new(Engine::new(options, cache)?);
    let (default, profiles) = (loaded.default.clone(), loaded.profiles.clone());
    let blocking_max = loaded.config.cpu.blocking_max;
    let loader = ModuleLoader::new(engine, default, profiles, setup.shipped, blocking_max);
    Ok(loader.with_compilers(compiler_trust(&loaded.compilers, loaded.trust.as_deref())))
}

/// Returns the trusted compilers of a policy. `trust` has the revocations.
pub(super) fn compiler_trust(policy: &Arc<CompilerPolicy>, trust: Option<&Trust>) -> CompilerTrust {
    let revoked = policy.keys.iter().filter(|compiler| {
        let id = DelegationId::of_compiler(&compiler.key);
        let by = compiler.revoked_by.as_ref();
        trust.zip(by).is_some_and(|(trust, root)| trust.revocations().contains(root, &id))
    });
    CompilerTrust { revoked: revoked.map(|compiler| compiler.key).collect(), policy: Arc::clone(policy) }
}

impl Daemon {
    /// Returns the compilers that are trusted now.
    pub(super) fn compiler_trust(&self) -> CompilerTrust {
        let trust = self.trust();
        self.with_node(|node| compiler_trust(&node.loader.compilers.policy, trust.as_deref()))
    }

    /// Withdraws the machine code of bundles whose signers are not trusted any more: expired, revoked, or removed from the
    /// policy. The modules move to code of Cranelift before their next call, or end.
    pub(super) fn withdraw_untrusted_code(&self) {
        let trust = self.trust();
        // The node has the policy by which its modules were loaded, so a module is never judged by an earlier policy.
        let withdrawn = self.with_node(|node| {
            node.withdraw_code(&compiler_trust(&node.loader.compilers.policy, trust.as_deref()))
        });
        for WithdrawnCode { session, module, has_other_code, why } in withdrawn {
            let next = match has_other_code {
                true => "goes on in Cranelift's code",
                false => "ends, because this node has no other code of it",
            };
            let what = format_args!("session `{}`, module `{module}` {next}: {why}", session.name);
            log::session(&session.name).module(&module).warn(&what);
            let reason = LedgerText::new(&why.to_string());
            self.ledger.lock().append(LedgerEvent::CodeWithdrawn { session, module, reason });
        }
    }
}
