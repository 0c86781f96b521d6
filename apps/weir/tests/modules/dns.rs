//! The module `dns` on generated packets and on real captures.
