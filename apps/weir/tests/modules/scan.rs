//! The module `scan` on generated packets and on real captures.
