//! Admission: a module's bytes, manifest and parameters become an [`Admitted`], the only thing that a sandbox loads, or a
//! [`Refusal`] that says what is wrong, where, and what to do.
//!
//! Pure: bytes and text in, values out.

#![forbid(unsafe_code)]

mod admit;
mod calibration;
mod environment;
mod inspect;
mod manifest;
mod name;
mod parameter;
mod profile;
mod records;
pub mod sources;
mod stream;
mod tier;

pub use admit::{Admitted, Setting, manifest_of};
pub use calibration::{CALIBRATION_BYTES_MAX, Calibration, CalibrationError, ShownTime};
pub use inspect::{Entry, Facts, MODULE_BYTES_MAX, Refusal, TABLE_ELEMENTS_MAX};
pub use manifest::{Kind, MANIFEST_BYTES_MAX, Manifest, ManifestError, Parallel, Tick};
pub use name::{Name, NameError};
pub use parameter::{Parameter, ParameterType, Prefix, Value, ValueError};
pub use profile::{PROFILE_BYTES_MAX, Profile, ProfileError};
pub use records::{Order, Record, Records};
pub use stream::{Field, FieldValue, Stream};
pub use tier::{Limits, Tier};
pub use weir_units::{is_plain, shown};
