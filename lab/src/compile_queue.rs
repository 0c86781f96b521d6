//! The time to load a holder's module while the node compiles large modules for two holders with smaller shares of a
//! core. A table of the part `floods` of the benchmark.

use crate::figure::synthetic;
use crate::floods::{EXPIRES, NODE_ADDRESS, Target};
use crate::statistics::Sample;
use crate::table::Table;
use rand_core::OsRng;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::{Client, NodeLocation, Upload};
use weir_node::control::protocol::ControlRequest;
use weir_node::control::spec::{ModuleSpec, SessionSpec};
use weir_trust::credential::Credential;
use weir_trust::grant::{Ceilings, CpuShare, Grant, UnixSecond};
use weir_trust::key::Identity;
use weir_units::Bytes;

/// The number of rounds. Each has new holders, because some seconds of compiling exhaust a holder's share for minutes.
const ROUNDS: usize = 5;
/// Each of the two holders with a large module: the share of a core in percent, and the number of functions of the module.
const LARGE_MODULE: (u64, usize) = (1, 300);
/// The measured holder, likewise: a larger share, and a smaller module.
const MEASURED: (u64, usize) = (5, 20);
/// The time after which the modules of the two other holders are being compiled.
const HEAD_START: Duration = Duration::from_secs(2);
/// The promised limit of the time to load the measured holder's module, in seconds.
const TIME_MAX: f64 = 3.0;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The table of loading times, on an idle node and while the node compiles for others.
pub(crate) fn table(target: &Target) -> Result<Table, Failure> {
    let mut table = Table::new(
        "modules of one holder | during | loaded | took, s: median | quartiles | longest | promised | kept",
    );
    let mut row = |during: &str, took: &Sample| {
        table.row(format_args!("{ROUNDS} | {during} | {}", took.wait_cells(ROUNDS, TIME_MAX)));
    };
    let mut alone = Sample::default();
    for round in 0..ROUNDS {
        alone.push(Holder::new(target, MEASURED, 10 * round)?.load()?);
    }
    row("no compilation for others", &alone);
    let (mut contended, mut finished_first) = (Sample::default(), 0);
    for round in 0..ROUNDS {
        let [one, two, third] = [(LARGE_MODULE, 1), (LARGE_MODULE, 2), (MEASURED, 3)]
            .map(|(kind, number)| Holder::new(target, kind, 1000 + 10 * round + number));
        let (one, two, third) = (one?, two?, third?);
        let done = AtomicUsize::new(0);
        let took = std::thread::scope(|scope| {
            for other in [&one, &two] {
                let done = &done;
                // The node may abort this compilation, which has a limit of ten seconds.
                scope.spawn(move || {
                    _ = other.load();
                    done.fetch_add(1, Ordering::AcqRel);
                });
            }
            std::thread::sleep(HEAD_START);
            let took = third.load();
            finished_first += usize::from(done.load(Ordering::Acquire) == 0);
            took
        })?;
        contended.push(took);
    }
    let during =
        format!("compilation for two holders with smaller shares, unfinished in {finished_first} rounds");
    row(&during, &contended);
    Ok(table)
}

/// A holder with a session, and a module that the node has not compiled before.
struct Holder {
    node: NodeLocation,
    module: Vec<u8>,
}

impl Holder {
    fn new(target: &Target, (percent, functions): (u64, usize), number: usize) -> Result<Self, Failure> {
        let identity = Identity::generate(&mut OsRng);
        let ceilings = Ceilings {
            cpu: Some(CpuShare(percent * 10_000)),
            memory: Some(Bytes(64 << 20)),
            ..Ceilings::default()
        };
        let grant = Grant { expires: UnixSecond::new(EXPIRES), ceilings, ..Grant::default() };
        let credential = Credential::mint(&target.root, identity.public(), grant, None, &mut OsRng)?;
        let node = target.location_for(&identity, credential.as_bytes(), NODE_ADDRESS.into());
        let session: SessionSpec = toml::from_str(&format!(
            "name = 'study'\nmemory = '8 MiB'\nchannel = [{{ interface = 'b' }}]\ncpu = [{{ period = '10ms', slice = '{}us' }}]\n",
            percent * 100
        ))?;
        Client::connect_to(&node)?.execute(ControlRequest::Create(session), &[])?;
        let module = synthetic::assemble("hard", "", &costly_module(functions, number))?;
        Ok(Self { node, module })
    }

    /// Loads the module as `weir load` does. Returns the duration in seconds.
    fn load(&self) -> Result<f64, Failure> {
        let begin = Instant::now();
        let module: ModuleSpec = toml::from_str("module = 'hard'")?;
        let session = "study".parse()?;
        let request = ControlRequest::Load { session, module, signatures: Vec::new(), replace: None };
        let connect = || Client::connect_to(&self.node);
        match Upload::new(&self.module) {
            None => connect()?.execute(request, &self.module)?,
            Some(upload) => upload
                .send(&mut || connect(), &mut std::thread::sleep, &mut |_| ())?
                .execute_with_file(request, upload.hash())?,
        };
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// The text of a module whose functions take some milliseconds each to compile. The text differs for each number and
/// process, so the node has no cached compilation of it.
fn costly_module(functions: usize, number: usize) -> String {
    let mut text = String::from("(module (memory (export \"memory\") 1)\n");
    let seed = usize::try_from(std::process::id()).unwrap_or_default() * 7919 + number * 1_000_003;
    for function in 0..functions {
        _ = write!(text, "(func $f{function} (param i32) (result i32) (local $a i32) (local $b i32)");
        for step in 0..300 {
            _ = write!(
                text,
                "(local.set $a (i32.xor (i32.mul (local.get $b) (i32.const {})) (local.get 0)))\
                 (local.set $b (i32.rotl (i32.add (local.get $a) (local.get $b)) (i32.const {})))",
                (seed + function * 301 + step) % 2_000_000_011,
                step % 31
            );
        }
        text.push_str("(local.get $a))\n");
    }
    text.push_str("(func (export \"weir_packet\") (param i32) (result i32) (drop (call $f0 (i32.const 1))) (i32.const 0)))");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_modules_are_valid_and_differ_by_their_number() {
        let [one, two] =
            [1, 2].map(|number| synthetic::assemble("hard", "", &costly_module(2, number)).unwrap());
        assert_ne!(one, two);
        assert!(weir_admission::Admitted::admit(one, &[]).is_ok());
    }
}
