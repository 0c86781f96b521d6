//! Charges holders for their requests.

use super::Daemon;
use crate::control::authority::{self, RequestRefusal, Requester};
use crate::control::protocol::ControlRequest;
use crate::server::request_usage::RequestUsage;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::ModuleHash;

impl Daemon {
    /// Charges a holder for the part of a request's processor time that was charged to no session.
    ///
    /// The time appears in the ledger and is debited from the slices of the holder's oldest session. It has to be paid from
    /// the holder's own share before the holder or a descendant can compile again.
    pub(crate) fn charge_request(&self, holder: &VerifiedCredential, usage: RequestUsage) {
        self.requests.with(|requests| requests.add(holder, usage));
        self.compile_queue.charge_outside(holder, usage.cpu);
    }

    /// Binds the calling thread to the cores that run no modules, if there are any.
    pub(crate) fn bind_to_other_cores(&self) {
        if let Some(cores) = &self.cores {
            // Binding fails if a core is offline. The thread then runs on any core.
            _ = cores.bind();
        }
    }

    /// Decides on a request to load an uploaded module by its hash, without reading its bytes.
    pub(crate) fn permit_known(
        &self,
        requester: &Requester,
        request: &ControlRequest,
        hash: &ModuleHash,
    ) -> Result<(), RequestRefusal> {
        let permitted = self.permit(requester, request.clone(), None)?;
        if let (ControlRequest::Load { module, signatures, .. }, Some(owner)) =
            (&permitted.request, &permitted.owner)
        {
            authority::check_by_hash(&owner.credential, module, hash, signatures)?;
        }
        Ok(())
    }
}
