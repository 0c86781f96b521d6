//! Findings: rows of a stream with the name `findings`.

/// Values of the field `severity`: severity_id of the Open Cybersecurity Schema Framework (OCSF).
pub mod severity {
    /// A fact worth knowing; no action is needed.
    pub const INFORMATIONAL: u8 = 1;
    /// An action is a matter of choice.
    pub const LOW: u8 = 2;
    /// An action is needed, but not at once.
    pub const MEDIUM: u8 = 3;
    /// An action is needed at once.
    pub const HIGH: u8 = 4;
    /// An action is needed at once, and much is affected.
    pub const CRITICAL: u8 = 5;
}
