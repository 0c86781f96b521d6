//! The module `loss` on generated packets and on real captures.
