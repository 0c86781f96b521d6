//! The module `talkers` on generated packets and on real captures.
