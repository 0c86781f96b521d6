//! Shares of a link, by virtual clocks.
