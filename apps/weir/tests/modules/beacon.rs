//! The module `beacon` on generated packets and on real captures.
