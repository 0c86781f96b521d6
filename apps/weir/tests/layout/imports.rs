//! Tests of the imports inside a crate: which part may import which, and that no folders import each other in a cycle.
//!
//! An import is a path that begins with `crate`, `super` or `self` in code outside tests, in a `use` item or elsewhere.

use super::{
    Dense, assert_none, blank_out, find_words, in_all_sources, is_test_file, is_word, line_of,
    without_test_items,
};
use std::collections::{BTreeMap, BTreeSet};

/// A part of a crate, and the other parts that it may import.
type Row = (&'static str, &'static [&'static str]);

/// For each part of a crate, the other parts that it may import. A part is a folder or a file of the crate, without the
/// parts inside it that have a row of their own.
const MAY_IMPORT: &[(&str, &[Row])] = &[
    (
        "apps/node",
        &[
            ("log", &[]),
            ("sync", &["log"]),
            // Specifications and configuration: neither the protocol, nor sessions, nor the server.
            ("control", &["log"]),
            ("control/status", &["control"]),
            ("control/protocol", &["control", "control/status"]),
            // Decisions on requests, as pure functions.
            ("control/authority", &["control", "control/protocol"]),
            ("control/policy", &["control", "control/protocol"]),
            ("control/access", &["control/protocol"]),
            ("control/audit", &["control", "control/authority", "control/protocol"]),
            ("control/ledger_view", &["control", "control/authority", "control/protocol"]),
            ("core_thread", &["control", "log", "sync"]),
            // Session management: neither the protocol nor the server.
            ("sessions", &["control", "control/authority", "control/status", "core_thread", "log", "sync"]),
            (
                "server",
                &[
                    "control",
                    "control/access",
                    "control/audit",
                    "control/authority",
                    "control/ledger_view",
                    "control/policy",
                    "control/protocol",
                    "core_thread",
                    "log",
                    "sessions",
                    "sync",
                ],
            ),
            ("client", &["control/protocol"]),
            // Tests the server's and the client's side of the protocol.
            ("input_oracle", &["client", "control", "control/authority", "control/protocol", "server"]),
        ],
    ),
    (
        "edge/datapath",
        &[
            // All files without a folder of their own.
            ("", &["egress"]),
            ("egress", &[""]),
            ("receive", &["", "egress"]),
        ],
    ),
    ("edge/netio", &[("", &["live"]), ("live", &[""]), ("selection", &[""]), ("filter", &[])]),
    (
        "edge/sandbox",
        &[
            // The engine and the watchdog, which know both sides.
            ("", &["load", "run"]),
            ("load", &[]),
            ("run", &["", "load"]),
            ("process", &["", "run"]),
        ],
    ),
];

/// Folders whose subfolders must not import each other in a cycle.
const WITHOUT_CYCLES: &[&str] = &[
    "apps/author/src",
    "apps/node/src",
    "apps/node/src/control",
    "apps/report/src",
    "apps/weir/src",
    "apps/weir/src/cmd",
    "edge/datapath/src",
    "edge/ledger-files/src",
    "edge/netio/src",
    "edge/os/src",
    "edge/records/src",
    "edge/remote/src",
    "edge/sandbox/src",
];

/// A module's path from the root of its crate.
type ModulePath = Vec<String>;

/// An import of one module by another one of the same crate.
#[derive(Debug)]
struct Import {
    by: ModulePath,
    /// The imported module, or an item in it.
    path: ModulePath,
    /// The file and line of the import.
    place: String,
}

/// The modules of a crate and their imports.
#[derive(Debug, Default)]
struct CrateImports {
    modules: BTreeSet<ModulePath>,
    imports: Vec<Import>,
}

impl CrateImports {
    /// Adds a source file. `file` is its path from the crate's `src`.
    fn add(&mut self, file: &str, place: &str, source: &str) {
        let by = module_of(file);
        self.modules.insert(by.clone());
        let code = without_test_items(&blank_out(source));
        for (at, path) in paths(&code) {
            let path = resolved(&by, &path);
            let place = format!("{place}:{}", line_of(source, at));
            self.imports.extend(path.map(|path| Import { by: by.clone(), path, place }));
        }
    }

    /// Replaces items that the crate's root re-exports by their own paths.
    fn resolve_reexports(&mut self) {
        let root = self.imports.iter().filter(|import| import.by.is_empty() && import.path.len() > 1);
        let by_name: BTreeMap<String, ModulePath> =
            root.filter_map(|import| Some((import.path.last()?.clone(), import.path.clone()))).collect();
        for import in &mut self.imports {
            let first = import.path.first().filter(|_| !import.by.is_empty());
            let is_module = first.is_some_and(|first| self.modules.contains(std::slice::from_ref(first)));
            if let Some(path) = first.filter(|_| !is_module).and_then(|first| by_name.get(first)) {
                import.path.clone_from(path);
            }
        }
    }

    /// Returns the imports between two different parts: the importing one, the imported one, and the place. `part` names the
    /// part of a module.
    fn between<'a>(
        &'a self,
        part: impl Fn(&[String]) -> Option<String> + 'a,
    ) -> impl Iterator<Item = (String, String, &'a str)> + 'a {
        self.imports.iter().filter_map(move |import| {
            // The longest prefix of the path that is a module.
            let is_module = |len: &usize| self.modules.contains(&import.path[..*len]);
            let len = (1..=import.path.len()).rev().find(is_module)?;
            let (by, of) = (part(&import.by)?, part(&import.path[..len])?);
            (by != of).then_some((by, of, import.place.as_str()))
        })
    }
}

/// Returns the module of a file, such as `a::b` of `a/b.rs` and `a/b/mod.rs`.
fn module_of(file: &str) -> ModulePath {
    let mut module: ModulePath = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// Returns the path from the crate's root that `path` means in module `by`; none for a path into another crate.
fn resolved(by: &[String], path: &str) -> Option<ModulePath> {
    let mut names = path.split("::").peekable();
    let mut base = match *names.peek()? {
        "crate" => Vec::new(),
        "super" | "self" => by.to_vec(),
        _ => return None,
    };
    while let Some(first @ ("crate" | "super" | "self")) = names.peek().copied() {
        if first == "super" {
            base.pop();
        }
        names.next();
    }
    base.extend(names.filter(|name| *name != "self").map(str::to_owned));
    Some(base)
}

/// Returns the paths that begin with `crate`, `super` or `self`, with groups such as `a::{b, c}` written out.
fn paths(code: &str) -> Vec<(usize, String)> {
    let dense = Dense::new(code);
    let mut found = Vec::new();
    for first in ["crate", "super", "self"] {
        for at in find_words(&dense.text, first) {
            // The rest of a longer path, such as `super::super`, or `pub(crate)`.
            if dense.text[..at].ends_with("::") || !dense.text[at + first.len()..].starts_with("::") {
                continue;
            }
            let mut written_out = Vec::new();
            write_out(&dense.text[at..], "", &mut written_out);
            found.extend(written_out.into_iter().map(|path| (dense.origin[at], path)));
        }
    }
    found
}

/// Writes out the path at the start of `rest`. Returns the length that was read.
fn write_out(rest: &str, before: &str, found: &mut Vec<String>) -> usize {
    let len = rest.find(|c: char| !is_word(c) && c != ':').unwrap_or(rest.len());
    let path = format!("{before}{}", &rest[..len]);
    if !path.ends_with("::") || !rest[len..].starts_with('{') {
        // Generic arguments and the like end a path.
        found.push(path.trim_end_matches(':').to_owned());
        // Without the new name of `a as b`.
        return len + rest[len..].find([',', '}', ';']).unwrap_or(rest.len() - len);
    }
    let mut at = len + 1;
    while !rest[at..].starts_with('}') && at < rest.len() {
        at += write_out(&rest[at..], &path, found);
        at += usize::from(rest[at..].starts_with(','));
    }
    at + 1
}

/// Returns the part of a module: that with the longest name which contains the module.
fn part_of(module: &[String], parts: &[Row]) -> Option<String> {
    let path = module.join("/");
    let contains = |part: &str| path == part || path.starts_with(&format!("{part}/"));
    let named =
        parts.iter().map(|(part, _)| *part).filter(|part| contains(part)).max_by_key(|part| part.len());
    let rest = parts.iter().map(|(part, _)| *part).find(|part| part.is_empty());
    named.or(rest).map(str::to_owned)
}

/// Returns the imports that the table does not allow.
fn forbidden(imports: &CrateImports, parts: &[Row]) -> Vec<String> {
    let is_allowed =
        |by: &str, of: &str| parts.iter().any(|(part, may_import)| *part == by && may_import.contains(&of));
    let between = imports.between(|module| part_of(module, parts).filter(|_| !module.is_empty()));
    let broken = between.filter(|(by, of, _)| !is_allowed(by, of));
    let mut broken: Vec<String> = broken
        .map(|(by, of, place)| format!("{place}: `{by}` must not import `{of}`; the table is MAY_IMPORT"))
        .collect();
    let without_row = imports.modules.iter().filter(|module| module.len() == 1);
    let without_row = without_row.filter(|module| part_of(module, parts).is_none());
    broken.extend(without_row.map(|module| format!("`{}` has no row in MAY_IMPORT", module[0])));
    broken
}

/// Returns the cycles of imports through more than one subfolder of a folder. Files of the folder itself are links of a
/// cycle, too. `under` is the module of the folder.
fn cycles(imports: &CrateImports, under: &[String]) -> Vec<String> {
    let child = |module: &[String]| {
        module.strip_prefix(under).and_then(|below| below.first()).map(ToString::to_string)
    };
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (by, of, _) in imports.between(child) {
        edges.entry(by).or_default().insert(of);
    }
    let reached_from = |from: &String| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(one) = next.pop() {
            let unseen = edges.get(one).into_iter().flatten().filter(|of| reached.insert((*of).clone()));
            next.extend(unseen);
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|child| (child, reached_from(child))).collect();
    let is_folder = |child: &String| {
        let is_inside = |module: &ModulePath| module.len() > under.len() + 1;
        let mut inside =
            imports.modules.iter().filter(|module| is_inside(module) && module.starts_with(under));
        inside.any(|module| module[under.len()] == *child)
    };
    let folders: Vec<&String> = reached.keys().copied().filter(|child| is_folder(child)).collect();
    let mut broken = Vec::new();
    for (index, one) in folders.iter().enumerate() {
        for other in &folders[index + 1..] {
            if reached[one].contains(*other) && reached[other].contains(*one) {
                broken.push(format!("`{one}` and `{other}` import each other, perhaps through others"));
            }
        }
    }
    broken
}

/// Returns the imports of all crates, by their folders.
fn all_imports() -> BTreeMap<String, CrateImports> {
    let mut crates: BTreeMap<String, CrateImports> = BTreeMap::new();
    in_all_sources(|path, source| {
        if let Some((folder, file)) = path.split_once("/src/")
            && !is_test_file(path)
            && !file.starts_with("bin/")
        {
            crates.entry(folder.to_owned()).or_default().add(file, path, source);
        }
        Vec::new()
    });
    crates.values_mut().for_each(CrateImports::resolve_reexports);
    crates
}

#[test]
fn parts_of_a_crate_import_only_what_the_table_allows() {
    let crates = all_imports();
    let mut broken = Vec::new();
    for (folder, parts) in MAY_IMPORT {
        assert!(crates[*folder].imports.len() > 20, "{folder}: {}", crates[*folder].imports.len());
        broken.extend(forbidden(&crates[*folder], parts));
        for (part, _) in parts.iter().filter(|(part, _)| !part.is_empty()) {
            let module: ModulePath = part.split('/').map(str::to_owned).collect();
            assert!(crates[*folder].modules.contains(&module), "{folder} has no `{part}`: correct its row");
        }
    }
    assert_none(&broken);
}

#[test]
fn folders_of_a_crate_do_not_import_each_other_in_a_cycle() {
    let crates = all_imports();
    let mut broken = Vec::new();
    for folder in WITHOUT_CYCLES {
        let (folder, under) = folder.split_once("/src").unwrap_or((folder, ""));
        let under: ModulePath = under.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let found = cycles(&crates[folder], &under);
        broken.extend(found.into_iter().map(|what| format!("{folder}/src/{}: {what}", under.join("/"))));
    }
    assert_none(&broken);
}

#[test]
fn violations_of_the_import_rules_are_found() {
    let add = |files: &[(&str, &str)]| {
        let mut imports = CrateImports::default();
        files.iter().for_each(|(file, source)| imports.add(file, file, source));
        imports.resolve_reexports();
        imports
    };
    let parts: &[Row] = &[("a", &["b"]), ("a/inner", &[]), ("b", &[])];
    // Imports in comments, strings and tests do not count, and neither do paths inside a part.
    let sound = add(&[
        ("lib.rs", "mod a;\nmod b;\npub use b::Item;\npub use a::Other;"),
        ("a/mod.rs", "mod inner;\nuse crate::b::{self, deep::{One, Two as Three}};\nuse self::Own;"),
        (
            "a/inner.rs",
            "//! crate::b\nfn f() { \"crate::b\"; }\n#[cfg(test)]\nmod tests { use crate::b::One; }",
        ),
        ("b.rs", "pub(crate) mod deep;\nuse super::b::deep::One;"),
        ("b/deep.rs", "use super::Item;"),
    ]);
    assert_eq!(forbidden(&sound, parts), [""; 0]);
    assert_eq!(cycles(&sound, &[]), [""; 0]);

    let reverse = |source: &str| {
        add(&[
            ("lib.rs", "pub use crate::a::Other;"),
            ("a/mod.rs", "use crate::b::One;"),
            ("a/inner.rs", ""),
            ("b.rs", ""),
            ("b/deep.rs", source),
        ])
    };
    // In a group, by `super`, in an expression, and through a re-export of the root.
    for source in [
        "\nuse crate::{\n    a::Other,\n};",
        "\nuse super::super::a::Other;",
        "\nfn f() -> crate :: a\n    ::Other { }",
        "\nuse crate::Other;",
    ] {
        let wrong = reverse(source);
        let found = forbidden(&wrong, parts);
        assert_eq!(found, ["b/deep.rs:2: `b` must not import `a`; the table is MAY_IMPORT"], "{source}");
        assert_eq!(cycles(&wrong, &[]).len(), 1, "{source}");
    }
    assert_eq!(forbidden(&reverse("use crate::a::inner::It;"), parts).len(), 1);
    // A cycle through a file of the root, and one between folders inside a folder.
    let mut through_a_file = add(&[
        ("a/x.rs", "use crate::c::It;"),
        ("c.rs", "use crate::b::It;"),
        ("b/y.rs", "use crate::a::It;"),
    ]);
    through_a_file.modules.extend([vec!["a".to_owned()], vec!["b".to_owned()]]);
    assert_eq!(cycles(&through_a_file, &[]).len(), 1);
    let inside = add(&[
        ("a/mod.rs", ""),
        ("a/x/mod.rs", "use super::y::It;"),
        ("a/x/z.rs", ""),
        ("a/y/mod.rs", "use crate::a::x::z::It;"),
        ("a/y/z.rs", ""),
    ]);
    assert_eq!(cycles(&inside, &["a".to_owned()]).len(), 1);
    assert_eq!(cycles(&inside, &[]), [""; 0]);
    // A file without a row.
    assert_eq!(forbidden(&add(&[("c.rs", "")]), parts), ["`c` has no row in MAY_IMPORT"]);
}
