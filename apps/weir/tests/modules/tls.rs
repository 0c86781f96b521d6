//! The module `tls` on generated packets and on real captures.
