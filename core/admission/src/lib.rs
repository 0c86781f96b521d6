//! Admission: a module's bytes, manifest and parameters become an [`Admitted`], the only thing that a sandbox loads, or a
//! [`Refusal`] that says what is wrong, where, and what to do.
//!
//! A module is admitted by a [`Profile`]: [`Assessment`] holds the bounds that `weir_bounds` finds against the profile's limits, and the outcome
//! picks the [`Tier`].
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
pub mod sources;
mod stream;
mod table;
mod tier;

pub use admit::{Admitted, Setting, manifest_of};
pub use assess::{Assessment, Terms};
pub use calibration::{CALIBRATION_BYTES_MAX, Calibration, CalibrationError, ShownTime};
pub use compare::{Comparison, Resource, Standing};
pub use complexity::Shape;
pub use excess::Excess;
pub use inspect::{Entry, Facts, MODULE_BYTES_MAX, Refusal, TABLE_ELEMENTS_MAX};
pub use manifest::{Kind, MANIFEST_BYTES_MAX, Manifest, ManifestError, Output, Parallel, Service, Tick};
pub use parameter::{Parameter, ParameterType, Prefix, Value, ValueError};
pub use profile::{PROFILE_BYTES_MAX, Profile, ProfileError};
pub use stream::{Field, FieldValue, Stream};
pub use table::{Access, Table};
pub use tier::{Limits, Tier};
pub use weir_units::{Name, NameError, is_plain, shown};

/// The most stack that a call of a module has, whatever its profile says: what the engine gives it.
pub const STACK_MAX: weir_units::Bytes = weir_units::Bytes(512 << 10);
