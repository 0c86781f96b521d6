//! The module `http` on generated packets and on real captures.
