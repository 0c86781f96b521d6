//! The module `entropy` on generated packets and on real captures.
