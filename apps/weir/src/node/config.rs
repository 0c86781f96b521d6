//! `weir config check`: whether a node can be started with a configuration, as far as that can be seen without starting one.

use super::{NodeError, read, show};
use crate::Failure;
use crate::policy::{now, shipped_bytes};
use crate::spec::Spec;
use crate::terms;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use weir_node::config::{CONFIG_BYTES_MAX, Config, ConfigError};
use weir_node::offers::obstacle;
use weir_node::policy::{Ground, Policy};
use weir_node::spec::{SessionSpec, SpecError};
use weir_node::tables::read_file;
use weir_session::{Name, Terms};
use weir_units::{Bytes, Nanos, Shown as _};

/// Says what a node would do with this configuration, and everything that is wrong with it.
pub fn check(out: &mut impl Write, path: &Path) -> Result<(), Failure> {
    let text = read(path, CONFIG_BYTES_MAX)?;
    let places = Places::of(&text);
    let config = Config::parse(&text).map_err(|error| {
        let line = places.of_error(&error).map_or_else(String::new, |line| format!("line {line}: "));
        NodeError::File { path: path.to_owned(), why: format!("{line}{error}") }
    })?;
    let machine = Machine::look();
    let found = Found::of(&config, path, &machine, &places);
    for (line, what) in &found.warnings {
        writeln!(out, "{}: warning: {}", place(path, *line), what.shown())?;
    }
    for (line, what) in &found.problems {
        let _ = writeln!(std::io::stderr(), "weir: {}: {}", place(path, *line), what.shown());
    }
    if !found.problems.is_empty() {
        let count = found.problems.len();
        return Err(Failure::Control(NodeError::Config { path: path.to_owned(), count }));
    }
    summary(out, &config, &machine)?;
    Ok(())
}

fn place(path: &Path, line: Option<usize>) -> String {
    line.map_or_else(|| path.shown().to_string(), |line| format!("{}:{line}", path.shown()))
}

/// Where the parts of a configuration stand: their lines, from 1.
#[derive(Debug, Default)]
struct Places {
    cpu: Option<usize>,
    node: Option<usize>,
    interfaces: BTreeMap<String, usize>,
    profiles: BTreeMap<String, usize>,
    sessions: BTreeMap<String, usize>,
    tables: BTreeMap<String, usize>,
}

impl Places {
    /// Of a text that may be no configuration: then what cannot be found has no line.
    fn of(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        #[derive(Deserialize)]
        struct Parts {
            cpu: Option<toml::Spanned<toml::Table>>,
            node: Option<toml::Spanned<toml::Table>>,
            #[serde(default)]
            interface: Vec<toml::Spanned<Named>>,
            #[serde(default)]
            profile: Vec<toml::Spanned<Named>>,
            #[serde(default)]
            session: Vec<toml::Spanned<Named>>,
            #[serde(default)]
            table: Vec<toml::Spanned<Named>>,
        }
        let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let lines = |parts: &[toml::Spanned<Named>]| {
            // Of two of one name the second is the one too many.
            parts.iter().map(|part| (part.get_ref().name.clone(), line(part.span().start))).collect()
        };
        let Ok(parts) = toml::from_str::<Parts>(text) else { return Self::default() };
        Self {
            cpu: parts.cpu.map(|part| line(part.span().start)),
            node: parts.node.map(|part| line(part.span().start)),
            interfaces: lines(&parts.interface),
            profiles: lines(&parts.profile),
            sessions: lines(&parts.session),
            tables: lines(&parts.table),
        }
    }

    fn session(&self, session: &Name) -> Option<usize> {
        self.sessions.get(session.as_str()).copied()
    }

    /// The line of what is wrong, where the error does not know it itself.
    fn of_error(&self, error: &ConfigError) -> Option<usize> {
        match error {
            ConfigError::Session(
                SpecError::Twice { session, .. }
                | SpecError::TooMany { session, .. }
                | SpecError::Half { session, .. }
                | SpecError::Range { session, .. }
                | SpecError::Missing { session, .. }
                | SpecError::Outgoing { session, .. },
            ) => self.session(session),
            ConfigError::Twice { what, name } => {
                let parts = match *what {
                    "interface" => &self.interfaces,
                    "profile" => &self.profiles,
                    "table" => &self.tables,
                    _ => &self.sessions,
                };
                parts.get(name).copied()
            }
            ConfigError::Published { second, .. } => self.session(second),
            ConfigError::Range { section: "cpu", .. } => self.cpu,
            ConfigError::Range { section: "node", .. } => self.node,
            _ => None,
        }
    }
}

/// What this machine has.
#[derive(Debug)]
struct Machine {
    cores: Vec<u16>,
    interfaces: Vec<String>,
}

impl Machine {
    fn look() -> Self {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        // Those of the network that this program is in: /sys can be of another one.
        let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
        let mut interfaces: Vec<String> = text.lines().skip(2).filter_map(name).collect();
        interfaces.sort();
        Self { cores: cores(&online), interfaces }
    }
}

/// The cores of a list such as `0-3,6`.
fn cores(list: &str) -> Vec<u16> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.trim().parse::<u16>().ok()?..=last.trim().parse::<u16>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// What is wrong, and what may be: each with its line.
#[derive(Debug, Default)]
struct Found {
    problems: Vec<(Option<usize>, String)>,
    warnings: Vec<(Option<usize>, String)>,
}

impl Found {
    fn of(config: &Config, path: &Path, machine: &Machine, places: &Places) -> Self {
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut found = Self::default();
        found.cores(config, machine, places);
        for interface in config.interfaces.iter().filter(|it| !machine.interfaces.contains(&it.name)) {
            let what =
                format!("there is no interface `{}` on this machine now", interface.name.escape_debug());
            found.warnings.push((places.interfaces.get(&interface.name).copied(), what));
        }
        let mut profiles = BTreeMap::new();
        for profile in &config.profiles {
            match terms::terms(Some(&folder.join(&profile.file))) {
                Ok(terms) => _ = profiles.insert(&profile.name, terms),
                Err(error) => {
                    let line = places.profiles.get(profile.name.as_str()).copied();
                    found.problems.push((line, format!("profile `{}`: {error}", profile.name)));
                }
            }
        }
        let policy = found.policy(config, path);
        for (name, profile) in policy.iter().flat_map(|policy| &policy.profiles) {
            let terms = Terms { profile: profile.clone(), calibration: terms::calibration() };
            profiles.entry(name).or_insert(terms);
        }
        for table in &config.tables {
            if let Err(error) = read_file(&folder.join(&table.file)) {
                let line = places.tables.get(table.name.as_str()).copied();
                found.problems.push((line, format!("table `{}`: {error}", table.name)));
            }
        }
        let own = terms::terms(None).ok();
        for session in &config.sessions {
            if let (Some(profile), Some(policy)) = (&session.profile, &policy)
                && !policy.profiles.contains_key(profile)
            {
                let what = format!("session `{}`: there is no profile `{profile}`", session.name);
                found.problems.push((places.session(&session.name), what));
            }
            let terms = match &session.profile {
                // What is wrong with its profile was said.
                Some(profile) => profiles.get(profile),
                None => own.as_ref(),
            };
            found.modules(session, terms, folder, places);
            for what in session.uses.iter().filter_map(|used| obstacle(session, used, &config.sessions)) {
                found
                    .warnings
                    .push((places.session(&session.name), format!("session `{}`: {what}", session.name)));
            }
        }
        found.room(config, machine, places);
        found
    }

    /// The operator's policy, and whether it can be used: nothing where it cannot, or what is wrong was said before.
    fn policy(&mut self, config: &Config, path: &Path) -> Option<Policy> {
        if !self.problems.is_empty() || (config.policy.is_none() && config.remote.is_none()) {
            return None;
        }
        let policy = match Policy::of(config, path, shipped_bytes) {
            Ok(policy) => policy,
            Err(error) => {
                self.problems.push((None, error.to_string()));
                return None;
            }
        };
        let node = match config.name() {
            Ok(node) => node,
            Err(error) => {
                self.problems.push((None, error.to_string()));
                return Some(policy);
            }
        };
        for finding in policy.findings(Some((config, &node)), now()) {
            let what = format!("{}: {}", finding.file.shown(), finding.what);
            let list = if finding.is_contradiction { &mut self.problems } else { &mut self.warnings };
            list.push((None, what));
        }
        let ground = Ground { node: &node, config: Some(config), shipped: shipped_bytes };
        for trial in policy.try_cases(&ground) {
            if let Some(wrong) = trial.wrong {
                let (file, line, name) = (trial.file.shown(), trial.line, weir_units::shown(&trial.name));
                self.problems.push((None, format!("{file}:{line}: case `{name}` does not hold: {wrong}")));
            }
        }
        Some(policy)
    }

    fn cores(&mut self, config: &Config, machine: &Machine, places: &Places) {
        if machine.cores.is_empty() {
            return;
        }
        for core in
            config.cpu.cores.iter().chain(&config.cpu.receive).filter(|core| !machine.cores.contains(core))
        {
            self.problems.push((
                places.cpu,
                format!("[cpu]: there is no core {core}; there is {}", listed(&machine.cores)),
            ));
        }
        let own = own_cores(config, machine);
        for session in &config.sessions {
            for cpu in &session.processors {
                if let Some(core) = cpu.core.filter(|core| !own.contains(core)) {
                    let what = format!(
                        "session `{}`, virtual processor `{}`: core {core} is none of the node's: {}",
                        session.name,
                        cpu.name,
                        listed(&own)
                    );
                    self.problems.push((places.session(&session.name), what));
                }
            }
        }
    }

    /// Modules that are not there, or that are not admitted.
    fn modules(&mut self, session: &SessionSpec, terms: Option<&Terms>, folder: &Path, places: &Places) {
        let Some(terms) = terms else { return };
        for module in &session.modules {
            let is_shipped = crate::shipped::find(&module.module).is_some();
            let name = if is_shipped {
                module.module.clone()
            } else {
                folder.join(&module.module).to_string_lossy().into_owned()
            };
            if let Err(error) = (Spec { name, settings: module.settings() }).admit(terms) {
                self.problems
                    .push((places.session(&session.name), format!("session `{}`: {error}", session.name)));
            }
        }
    }

    /// What is reserved, beside what there is. The node places virtual processors on cores, and may find room for fewer.
    fn room(&mut self, config: &Config, machine: &Machine, places: &Places) {
        let memory = config.sessions.iter().map(|session| session.memory.0).fold(0, u64::saturating_add);
        if memory > config.node.memory.0 {
            let what = format!(
                "sessions reserve {} of memory; the node has {} for them",
                Bytes(memory),
                config.node.memory
            );
            self.problems.push((places.node, what));
        }
        let own = own_cores(config, machine);
        let each = u64::from(config.cpu.reservable) * 10_000;
        let mut all = 0;
        let mut pinned: BTreeMap<u16, u64> = BTreeMap::new();
        for cpu in config.sessions.iter().flat_map(|session| &session.processors) {
            let ppm = cpu.reservation().map_or(0, ppm);
            all += ppm;
            if let Some(core) = cpu.core {
                *pinned.entry(core).or_default() += ppm;
            }
        }
        for (core, ppm) in pinned.into_iter().filter(|(_, ppm)| *ppm > each) {
            let what = format!(
                "sessions reserve {} of core {core}; {} can be",
                show::percent(ppm),
                show::percent(each)
            );
            self.problems.push((places.cpu, what));
        }
        let room = each.saturating_mul(own.len() as u64);
        if !own.is_empty() && all > room {
            let what = format!(
                "sessions reserve {} of a core together; {} can be",
                show::percent(all),
                show::percent(room)
            );
            self.problems.push((places.cpu, what));
        }
    }
}

/// Millionths of a core.
fn ppm((period, slice): (Nanos, Nanos)) -> u64 {
    // At most a million: a slice is no longer than its period, which is not zero.
    u64::try_from(u128::from(slice.0) * 1_000_000 / u128::from(period.0.max(1))).unwrap_or(u64::MAX)
}

/// The cores on which modules run: those that are named, or the machine's last.
fn own_cores(config: &Config, machine: &Machine) -> Vec<u16> {
    if config.cpu.cores.is_empty() {
        machine.cores.last().copied().into_iter().collect()
    } else {
        config.cpu.cores.clone()
    }
}

fn listed(cores: &[u16]) -> String {
    cores.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

fn summary(out: &mut impl Write, config: &Config, machine: &Machine) -> std::io::Result<()> {
    let Config { node, cpu, interfaces, sessions, .. } = config;
    writeln!(out, "node `{}`: socket {}, state in {}", node.name, node.socket.shown(), node.state.shown())?;
    if let Some(address) = node.metrics {
        writeln!(out, "metrics: http://{address}/metrics")?;
    }
    let own = own_cores(config, machine);
    writeln!(out, "cores: {}, {} % of each can be reserved", listed(&own), cpu.reservable)?;
    for interface in interfaces {
        writeln!(out, "interface {}: {} for its packets", interface.name.escape_debug(), interface.arena)?;
    }
    let mut rows = Vec::new();
    for session in sessions {
        let all = session.processors.iter().filter_map(|cpu| cpu.reservation()).map(ppm).sum::<u64>();
        let modules: Vec<String> =
            session.modules.iter().map(|module| module.module.escape_debug().to_string()).collect();
        rows.push(vec![
            format!("session {}", session.name),
            if all == 0 { "no reservation".to_owned() } else { format!("{} of a core", show::percent(all)) },
            session.memory.to_string(),
            format!("{} channels", session.channels.len()),
            if modules.is_empty() { "no modules".to_owned() } else { modules.join(", ") },
        ]);
    }
    show::table(out, &rows, &[0, 4])?;
    writeln!(out, "a node can be started with it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Found {
        let machine = Machine { cores: vec![0, 1], interfaces: vec!["eth0".to_owned()] };
        Found::of(&Config::parse(text).unwrap(), Path::new("/nowhere/node.toml"), &machine, &Places::of(text))
    }

    #[test]
    fn what_the_machine_lacks_is_found_with_its_line() {
        for (text, line, says) in [
            ("\n[cpu]\ncores = [7]", 2, "there is no core 7; there is 0, 1"),
            ("[cpu]\nreceive = 9", 1, "there is no core 9"),
            ("[[session]]\nname = \"a\"\ncpu = [{ core = 0 }]", 1, "core 0 is none of the node's: 1"),
            (
                "[[profile]]\nname = \"p\"\nfile = \"p.toml\"",
                1,
                "/nowhere/p.toml: the profile cannot be read",
            ),
            (
                "[[interface]]\nname = \"eth0\"\n[[session]]\nname = \"a\"\nchannel = [{ interface = \"eth0\" }]\nmodule = [{ module = \"x.wasm\" }]",
                3,
                "session `a`: /nowhere/x.wasm: No such file",
            ),
            (
                "[[interface]]\nname = \"eth0\"\n[[session]]\nname = \"a\"\nchannel = [{ interface = \"eth0\" }]\nmodule = [{ module = \"rtt\", set = { no = 1 } }]",
                3,
                "session `a`: rtt:",
            ),
            (
                "[node]\nmemory = \"64 MiB\"\n[[session]]\nname = \"a\"\nmemory = \"65 MiB\"",
                1,
                "reserve 65 MiB of memory; the node has 64 MiB",
            ),
            (
                "[cpu]\n[[session]]\nname = \"a\"\ncpu = [{ period = \"10ms\", slice = \"6ms\" }]\n[[session]]\nname = \"b\"\ncpu = [{ period = \"10ms\", slice = \"4ms\" }]",
                1,
                "reserve 100.0 % of a core together; 90.0 % can be",
            ),
            (
                "[cpu]\ncores = [0, 1]\n[[session]]\nname = \"a\"\ncpu = [{ core = 1, period = \"1ms\", slice = \"950us\" }]",
                1,
                "reserve 95.0 % of core 1; 90.0 % can be",
            ),
        ] {
            let found = found(text);
            let is_said = found.problems.iter().any(|(at, what)| *at == Some(line) && what.contains(says));
            assert!(is_said, "{text}\n{:?}", found.problems);
        }
        for (text, line, says) in [
            ("[[interface]]\nname = \"eth7\"", 1, "no interface `eth7`"),
            (
                "[[session]]\nname = \"asn\"\noffer = [{ service = \"lookup\", callers = [\"bob\"] }]\n\
                 [[session]]\nname = \"alice\"\nuse = [{ service = \"lookup\", of = \"asn\" }]",
                4,
                "session `alice`: it uses service `lookup`, which session `asn` does not offer to it",
            ),
        ] {
            let found = found(text);
            assert_eq!((found.problems.len(), found.warnings.len(), found.warnings[0].0), (0, 1, Some(line)));
            assert!(found.warnings[0].1.contains(says), "{:?}", found.warnings);
        }
    }

    #[test]
    fn what_a_session_has_wrong_is_on_its_line() {
        for (text, line) in [
            ("[[session]]\nname = \"a\"\n\n[[session]]\nname = \"b\"\ncpu = [{ period = \"1ms\" }]", 4),
            ("[[session]]\nname = \"a\"\n[[session]]\nname = \"a\"", 3),
            ("# \n[cpu]\nreservable = 0", 2),
            ("[node]\ninterval = \"1ms\"", 1),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert_eq!(Places::of(text).of_error(&error), Some(line), "{text}: {error}");
        }
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(cores("0-3,6\n"), [0, 1, 2, 3, 6]);
        assert_eq!(cores("x,5-,-1,\n"), Vec::<u16>::new());
    }
}
