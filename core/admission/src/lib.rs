//! Admission: the check of a module's bytes, manifest and parameters against a [`Profile`]. The result is an
//! [`Admitted`], the only type that a sandbox loads, or a [`ModuleRefusal`], which says what is wrong, where, and what
//! to do.
//!
//! [`Assessment`] compares the bounds that `weir_bounds` finds with the profile's limits. The outcome is the [`Tier`].
//!
//! Pure: bytes and text in, values out.

#![forbid(unsafe_code)]

mod admit;
mod assess;
mod calibration;
mod compare;
mod complexity;
mod environment;
mod excess;
mod inspect;
mod manifest;
mod parameter;
mod profile;
mod semantic;
pub mod sources;
mod state;
mod stream;
mod table;
mod tcp;
mod tier;

pub use admit::{Admitted, ParameterSetting, manifest_of};
pub use assess::{Assessment, CalibratedProfile};
pub use calibration::{CALIBRATION_BYTES_MAX, Calibration, CalibrationError, TimeBound};
pub use compare::{Comparison, LimitStatus, LimitedResource};
pub use complexity::ComplexityLimit;
pub use excess::Excess;
pub use inspect::{EntryKind, MODULE_BYTES_MAX, ModuleInfo, ModuleRefusal, TABLE_ELEMENTS_MAX};
pub use manifest::{
    DeclaredOutput, DeclaredService, ENUM_VALUES_MAX, MANIFEST_BYTES_MAX, Manifest, ManifestError,
    ModuleKind, Parallel, TickPeriod,
};
pub use parameter::{ModuleParameter, ParameterType, ParameterValue, Prefix, ValueError};
pub use profile::{PROFILE_BYTES_MAX, Profile, ProfileError, VerifiedUse};
pub use semantic::{SEMANTICS, Semantic, SemanticKind};
pub use state::DeclaredState;
pub use stream::{DeclaredStream, FieldValue, StreamField};
pub use table::{DeclaredTable, TableAccess};
pub use tcp::{DeclaredLayer, DeclaredTcp, ManifestValue, TcpPorts, TcpSettings};
pub use tier::{FuelLimits, Tier};
pub use weir_units::{Name, NameError, escaped, is_plain};

/// The stack that the engine has for a call. It is the maximum and the default of a profile's limit on the stack.
pub const STACK_MAX: weir_units::Bytes = weir_units::Bytes(512 << 10);
