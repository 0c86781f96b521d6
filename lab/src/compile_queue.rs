//! The time to load a holder's module while the node compiles large modules for two holders with smaller shares.

use crate::figure::synthetic;
use crate::floods::{AT, EXPIRES, Target};
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
use weir_trust::grant::{Ceilings, CpuShare, Grant, Second};
use weir_trust::key::Identity;
use weir_units::Bytes;

/// Rounds, each with new holders: after seconds of compiling a holder's share is exhausted for minutes.
const ROUNDS: usize = 5;
/// The share of a core in percent and the functions of the module: for each of the two holders, and for the third.
const SMALL: (u64, usize) = (1, 300);
const THIRD: (u64, usize) = (5, 20);
/// The time after which the two holders' modules are being compiled.
const HEAD_START: Duration = Duration::from_secs(2);
/// The promised limit of the time to load the third holder's module, in seconds.
const TIME_MAX: f64 = 3.0;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The table of loading times, on an idle node and while the node compiles for others.
pub(crate) fn table(target: &Target) -> Result<Table, Failure> {
    let mut table = Table::new(
        "modules of one holder | while there are | loaded | took, s: median | quartiles | longest | promised | kept",
    );
    let mut row = |among: &str, took: &Sample| {
        table.row(format_args!("{ROUNDS} | {among} | {}", took.waits(ROUNDS, TIME_MAX)));
    };
    let mut alone = Sample::default();
    for round in 0..ROUNDS {
        alone.push(Holder::new(target, THIRD, 10 * round)?.load()?);
    }
    row("no others", &alone);
    let (mut among, mut was_before) = (Sample::default(), 0);
    for round in 0..ROUNDS {
        let [one, two, third] = [(SMALL, 1), (SMALL, 2), (THIRD, 3)]
            .map(|(kind, number)| Holder::new(target, kind, 1000 + 10 * round + number));
        let (one, two, third) = (one?, two?, third?);
        let done = AtomicUsize::new(0);
        let took = std::thread::scope(|scope| {
            for small in [&one, &two] {
                let done = &done;
                // The node may abort this one: compiling has a limit of ten seconds.
                scope.spawn(move || {
                    _ = small.load();
                    done.fetch_add(1, Ordering::AcqRel);
                });
            }
            std::thread::sleep(HEAD_START);
            let took = third.load();
            was_before += usize::from(done.load(Ordering::Acquire) == 0);
            took
        })?;
        among.push(took);
    }
    let among_two =
        format!("two holders with less of a core, still compiling afterwards in {was_before} rounds");
    row(&among_two, &among);
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
        let grant = Grant { expires: Second::new(EXPIRES), ceilings, ..Grant::default() };
        let credential = Credential::mint(&target.root, identity.public(), grant, None, &mut OsRng)?;
        let node = target.as_seen_by(&identity, credential.as_bytes(), AT.into());
        let session: SessionSpec = toml::from_str(&format!(
            "name = 'study'\nmemory = '8 MiB'\nchannel = [{{ interface = 'b' }}]\ncpu = [{{ period = '10ms', slice = '{}us' }}]\n",
            percent * 100
        ))?;
        Client::connect_to(&node)?.execute(ControlRequest::Create(session), &[])?;
        let module = synthetic::assemble("hard", "", &hard(functions, number))?;
        Ok(Self { node, module })
    }

    /// Loads the module as `weir load` does. Returns the duration in seconds.
    fn load(&self) -> Result<f64, Failure> {
        let begin = Instant::now();
        let module: ModuleSpec = toml::from_str("module = 'hard'")?;
        let session = "study".parse()?;
        let request = ControlRequest::Load { session, module, signatures: Vec::new() };
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

/// The text of a module with functions that take some milliseconds each to compile. It differs for each number and
/// process, so it is not cached.
fn hard(functions: usize, number: usize) -> String {
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
    fn hard_modules_are_valid_and_never_the_same() {
        let [one, two] = [1, 2].map(|number| synthetic::assemble("hard", "", &hard(2, number)).unwrap());
        assert_ne!(one, two);
        assert!(weir_admission::Admitted::admit(one, &[]).is_ok());
    }
}
