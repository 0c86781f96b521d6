//! Virtual processors: each is guaranteed a slice of a core in each period.
