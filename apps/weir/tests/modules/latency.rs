//! The module `latency` on generated packets and on real captures.
