//! The module `flows` on generated packets and on real captures.
