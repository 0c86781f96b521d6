//! Requests of holders: what they cost, who pays, and what is refused before it costs much.

use super::{Daemon, lock};
use crate::control::authority::{self, Asker, RequestRefusal};
use crate::control::protocol::ControlRequest;
use crate::server::requests::RequestPermit;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::ModuleHash;

impl Daemon {
    /// Charges a holder for a request that took processor time which is on the bill of no session. The time is on the holder's account, missing in the slices of their oldest session, and
    /// paid from their own share before they, or their descendants, have something compiled again.
    pub(crate) fn asked(&self, holder: &VerifiedCredential, work: RequestPermit) {
        lock(&self.requests).add(holder, work);
        self.turns.charge_outside(holder, work.cpu);
    }

    /// Has the calling thread work for holders: on cores that no module runs on, where there are any.
    pub(crate) fn work_beside_modules(&self) {
        if let Some(cores) = &self.cores {
            // Without these cores (one may have been switched off) requests are answered on any core.
            _ = cores.bind();
        }
    }

    /// Decides on a request to load a module whose bytes are there, and have this hash, without looking at them.
    pub(crate) fn permit_known(
        &self,
        asker: &Asker,
        ask: &ControlRequest,
        hash: &ModuleHash,
    ) -> Result<(), RequestRefusal> {
        let permitted = self.permit(asker, ask.clone(), None)?;
        if let (ControlRequest::Load { module, signatures, .. }, Some(owner)) =
            (&permitted.ask, &permitted.owner)
        {
            authority::hold_known(&owner.credential, &module.module, hash, signatures)?;
        }
        Ok(())
    }
}
