//! The module `quic` on generated packets and on real captures.
