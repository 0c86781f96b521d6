//! `weir test`: native builds of modules, in which checks and coverage watch the replay of a sandbox's calls. Those of modules in C
//! have sanitizers.
//!
//! A [`NativeScript`] has the calls and the sandbox's answers. [`NativeBuild`] compiles the module with
//! `apps/author/native/player.c`, which takes the place of weir, and [`NativeBuild::play`] runs the script. A [`ReplayStep`] is
//! what the module did. [`Coverage`] tells which lines of the source have run.

mod build;
mod coverage;
mod script;
mod steps;
mod stubs;

pub use build::{NativeBuild, NativeEnd, Played};
pub use coverage::{Coverage, FileCoverage};
pub use script::{NativeScript, ScriptPacket};
pub use steps::{ReplayCall, ReplayStep, ReplaySteps};
