//! `weir new` and `weir build`: from an empty folder to an admitted module.

use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::collections::BTreeSet;
use std::path::Path;
use weir_admission::Admitted;
use weir_author::{
    BuildError, BuildOptions, ModuleLanguage, NewError, Tools, build, c_header, generate_includes, new,
};
use weir_bounds::EntryPoint;

const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";

/// Builds a folder with these files.
fn build_c(files: &[(&str, &str)]) -> Result<weir_author::BuiltModule, BuildError> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    build(dir.path(), &options())
}

fn error_of(files: &[(&str, &str)]) -> String {
    build_c(files).unwrap_err().to_string()
}

#[test]
fn a_new_module_in_c_builds_without_a_warning_and_is_admitted() {
    if !has_c() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("my-first");
    let created = new(&dir, ModuleLanguage::C).unwrap();
    assert_eq!(created.name.as_str(), "my-first");
    let built = build(&dir, &options()).unwrap();
    assert_eq!((built.messages.as_str(), &built.path), ("", &dir.join("my-first.wasm")));
    assert!(built.toolchain.contains("clang version"), "{}", built.toolchain);
    let settings = [("interval".to_owned(), vec!["5s".to_owned()])];
    let admitted = Admitted::admit(std::fs::read(&built.path).unwrap(), &settings).unwrap();
    assert_eq!(admitted.tick_period().map(|tick| tick.0), Some(5_000_000_000));
    assert!(admitted.info().stack_pointer.is_some() && admitted.info().entries.has(EntryPoint::Stop));
    assert!(admitted.analysis().is_bounded(), "a new module shows how to be proved");
    assert!(built.size.0 < 4096, "{}", built.size);
    assert!(c_header(&dir).unwrap().contains("struct protocols_row {"));
}

#[test]
fn a_new_module_in_rust_builds_without_a_warning_and_is_admitted() {
    if !has_rust() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("my-first");
    new(&dir, ModuleLanguage::Rust).unwrap();
    let built = build(&dir, &rust_options()).unwrap();
    assert_eq!(built.messages, "");
    let admitted = Admitted::admit(std::fs::read(&built.path).unwrap(), &[]).unwrap();
    assert_eq!(admitted.tick_period().map(|tick| tick.0), Some(1_000_000_000));
    assert!(admitted.info().stack_pointer.is_some() && admitted.info().entries.has(EntryPoint::Stop));
    assert!(admitted.analysis().is_bounded(), "a new module shows how to be proved");
    assert!(built.size.0 < 16_384, "{}", built.size);
}

/// The texts of two files, such as paths, that only one of them has.
fn differing_texts(files: &[Vec<u8>; 2]) -> String {
    let texts = files.each_ref().map(|bytes| {
        let printable = bytes.split(|byte| !byte.is_ascii_graphic()).filter(|text| text.len() > 6);
        printable.map(|text| String::from_utf8_lossy(text).into_owned()).collect::<BTreeSet<_>>()
    });
    texts[0].symmetric_difference(&texts[1]).cloned().collect::<Vec<_>>().join(", ")
}

#[test]
fn builds_do_not_depend_on_the_path_of_the_folder() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (lang, present, options) in
        [(ModuleLanguage::C, has_c(), options()), (ModuleLanguage::Rust, has_rust(), rust_options())]
    {
        if !present {
            continue;
        }
        // All folders exist before the first build, so nothing in the second one is newer than what the first build made.
        let dirs = homes.each_ref().map(|home| {
            let dir = home.path().join(format!("deep-{lang:?}").to_lowercase()).join("same");
            new(&dir, lang).unwrap();
            if lang == ModuleLanguage::C {
                // `__FILE__` is the usual way for a path to get into the code.
                let source = dir.join("same.c");
                let text = std::fs::read_to_string(&source).unwrap();
                std::fs::write(
                    source,
                    text.replace("return 0;", "weir_log(2, __FILE__, sizeof __FILE__); return 0;"),
                )
                .unwrap();
            }
            dir
        });
        let bytes = dirs.map(|dir| std::fs::read(build(&dir, &options).unwrap().path).unwrap());
        assert!(bytes[0] == bytes[1], "{lang:?}: {}", differing_texts(&bytes));
        let place = homes[0].path().to_string_lossy().into_owned();
        assert!(!bytes[0].windows(place.len()).any(|window| window == place.as_bytes()), "{lang:?}");
    }
}

#[test]
fn modules_of_one_name_in_a_shared_target_folder_are_not_confused() {
    if !has_rust() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let marks = ["mark-of-the-first", "mark-of-the-second"];
    // Both exist before the first build, so neither is newer than what the other build made.
    let dirs = marks.map(|mark| {
        let dir = home.path().join(mark).join("twin");
        new(&dir, ModuleLanguage::Rust).unwrap();
        let source = "#![cfg_attr(target_arch = \"wasm32\", no_std)]\nuse weir_guest::{log, Level, Packet, Verdict};\n\
            struct S;\nimpl S {\nfn packet(&mut self, _: &Packet) -> Verdict {\nlog(Level::Info, \"MARK\");\nVerdict::Pass\n}\n}\n\
            weir_guest::module! {\n    state: S = S;\n    packet: S::packet;\n}\n";
        std::fs::write(dir.join("src/lib.rs"), source.replace("MARK", mark)).unwrap();
        dir
    });
    for index in [0, 1, 0, 1] {
        let bytes = std::fs::read(build(&dirs[index], &rust_options()).unwrap().path).unwrap();
        let has = |mark: &str| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
        assert!(has(marks[index]) && !has(marks[1 - index]), "{}", marks[index]);
    }
}

#[test]
fn a_module_carries_the_lines_of_its_source_as_paths_from_its_folder() {
    let home = tempfile::tempdir().unwrap();
    for (lang, present, options) in
        [(ModuleLanguage::C, has_c(), options()), (ModuleLanguage::Rust, has_rust(), rust_options())]
    {
        if !present {
            continue;
        }
        let dir = home.path().join(format!("lines-{lang:?}").to_lowercase());
        let created = new(&dir, lang).unwrap();
        // A trailing slash makes no difference.
        let bytes = std::fs::read(build(&dir.join(""), &options).unwrap().path).unwrap();
        let module = weir_bounds::ParsedModule::parse(bytes.clone()).unwrap();
        let lines = weir_bounds::Lines::new(&module);
        let source = created.files.iter().find(|file| file.ends_with("src/lib.rs") || is_c(file)).unwrap();
        let text = std::fs::read_to_string(dir.join(source)).unwrap();
        let named: Vec<(String, u32)> =
            lines.rows().filter_map(|(_, line)| line).map(|(file, line)| (file.to_owned(), line)).collect();
        let of_source = named.iter().filter(|(file, _)| Path::new(file) == source);
        assert!(of_source.clone().count() > 10, "{lang:?}: {named:?}");
        assert!(of_source.clone().all(|(_, line)| *line as usize <= text.lines().count()), "{named:?}");
        assert!(named.iter().all(|(file, _)| !file.starts_with('/') && !file.contains("..")), "{named:?}");
        // Addresses are in order.
        let addresses: Vec<u32> = lines.rows().map(|(address, _)| address).collect();
        assert!(addresses.is_sorted(), "{lang:?}");
        let sections: Vec<String> = custom_sections(&bytes);
        assert_eq!(sections, ["name", ".debug_line", "weir.manifest"], "{lang:?}");
    }
}

#[test]
fn a_loop_has_its_first_line_even_if_inlined_or_hoisted_code_precedes_it() {
    if !has_c() {
        return;
    }
    let source = "#include \"weir.h\"\nstatic volatile uint32_t table[64];\n\
        WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{\n\
        const uint8_t *b = weir_bytes(p);\nuint32_t at = 0, sum = 0;\nwhile (b[at] != 0)\nat += b[at];\n\
        for (uint32_t i = 0; i < table[3]; i++)\nsum += table[i & 63];\nif (p->flags & WEIR_TCP)\nfor (;;)\ntable[sum++ & 63]++;\n\
        for (uint32_t i = 0; i < 500; i++)\ntable[i & 63] += 3;\nreturn (int32_t)(at + sum) & 1;\n}\n";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("weir.toml"), MANIFEST).unwrap();
    std::fs::write(dir.path().join("m.c"), source).unwrap();
    let bytes = std::fs::read(build(dir.path(), &options()).unwrap().path).unwrap();
    let module = weir_bounds::ParsedModule::parse(bytes.clone()).unwrap();
    let lines = weir_bounds::Lines::new(&module);
    let named: Vec<_> = loops(&bytes).into_iter().map(|offset| lines.line(offset).unwrap().line).collect();
    let is_loop = |text: &str| text.starts_with("while") || text.starts_with("for");
    let written: Vec<u32> =
        (1..).zip(source.lines()).filter(|(_, text)| is_loop(text)).map(|(number, _)| number).collect();
    assert_eq!(named, written);
}

/// Offsets of the `loop` instructions.
fn loops(bytes: &[u8]) -> Vec<u64> {
    let bodies = wasmparser::Parser::new(0).parse_all(bytes).filter_map(|payload| match payload.unwrap() {
        wasmparser::Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    });
    let operators = bodies.flat_map(|body| body.get_operators_reader().unwrap().into_iter_with_offsets());
    let is_loop = |operator: &wasmparser::Operator<'_>| matches!(operator, wasmparser::Operator::Loop { .. });
    operators
        .map(Result::unwrap)
        .filter(|(operator, _)| is_loop(operator))
        .map(|(_, offset)| offset)
        .collect()
}

fn is_c(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "c")
}

fn custom_sections(bytes: &[u8]) -> Vec<String> {
    wasmparser::Parser::new(0)
        .parse_all(bytes)
        .filter_map(|payload| match payload.unwrap() {
            wasmparser::Payload::CustomSection(section) => Some(section.name().to_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn generated_files_exist_before_the_first_build_and_git_ignores_them() {
    let home = tempfile::tempdir().unwrap();
    for lang in [ModuleLanguage::C, ModuleLanguage::Rust] {
        let dir = home.path().join(format!("{lang:?}").to_lowercase());
        let created = new(&dir, lang).unwrap();
        assert!(created.files.iter().all(|file| dir.join(file).is_file()), "{:?}", created.files);
        let generated: &[&str] = match lang {
            ModuleLanguage::C => &["weir.h", "module.h"],
            ModuleLanguage::Rust => &["module.rs", "weir-guest/Cargo.toml", "weir-guest/src/lib.rs"],
        };
        assert!(generated.iter().all(|file| dir.join(".weir").join(file).is_file()));
        assert_eq!(std::fs::read_to_string(dir.join(".weir/.gitignore")).unwrap(), "*\n");

        // A change of the manifest reaches the editor without a build.
        let toml = std::fs::read_to_string(dir.join("weir.toml")).unwrap();
        std::fs::write(dir.join("weir.toml"), toml.replace("\"protocols\"", "\"renamed\"")).unwrap();
        generate_includes(&dir).unwrap();
        let header =
            dir.join(".weir").join(generated.iter().find(|file| file.starts_with("module")).unwrap());
        assert!(std::fs::read_to_string(header).unwrap().to_lowercase().contains("renamed"));
    }
}

#[test]
fn symbolic_links_in_the_generated_folder_are_refused_and_not_followed() {
    use std::os::unix::fs::symlink;
    let files = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    for place in [".weir", ".weir/weir.h", ".weir/weir-guest", ".weir/target/wasm32-unknown-unknown/release"]
    {
        for to_file in [false, true] {
            let home = tempfile::tempdir().unwrap();
            let (dir, elsewhere) = (home.path().join("m"), home.path().join("elsewhere"));
            std::fs::create_dir(&elsewhere).unwrap();
            let kept = elsewhere.join("kept");
            std::fs::write(&kept, "kept").unwrap();
            let link = dir.join(place);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::fs::write(dir.join("weir.toml"), MANIFEST).unwrap();
            std::fs::write(dir.join("m.c"), "").unwrap();
            symlink(if to_file { &kept } else { &elsewhere }, &link).unwrap();
            for error in [build(&dir, &options()).unwrap_err(), generate_includes(&dir).unwrap_err()] {
                let expected = format!("{} is neither a file nor a folder", link.display());
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
            assert_eq!((files(&elsewhere), std::fs::read(&kept).unwrap()), (1, b"kept".to_vec()), "{place}");
            assert!(!dir.join("m.wasm").exists());
        }
    }
}

#[test]
fn a_new_module_overwrites_no_existing_file() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("taken");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("thesis"), "years of work").unwrap();
    let error = new(&dir, ModuleLanguage::C).unwrap_err();
    assert!(
        matches!(error, NewError::Exists(_)) && error.to_string().contains("not an empty folder"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    assert!(matches!(new(&dir.join("thesis"), ModuleLanguage::C), Err(NewError::Exists(_))));

    std::fs::create_dir(home.path().join("empty")).unwrap();
    assert!(new(&home.path().join("empty"), ModuleLanguage::C).is_ok());

    let error = new(&home.path().join("My Module"), ModuleLanguage::C).unwrap_err().to_string();
    assert!(error.contains("`My Module` is not a name: use lower-case letters"), "{error}");
    assert!(!home.path().join("My Module").exists());
}

#[test]
fn the_error_for_an_incomplete_folder_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let error = |dir: &Path| build(dir, &options()).unwrap_err().to_string();
    assert!(
        error(home.path()).contains("there is no weir.toml here; give the folder of a module, or create one")
    );
    assert!(error(&home.path().join("nowhere")).contains("there is no weir.toml here"));

    let toml = home.path().join("weir.toml");
    std::fs::write(&toml, "name = 'm'\nabi = 2\n").unwrap();
    let printed = error(home.path());
    assert!(
        printed.contains("weir.toml: the manifest cannot be read") && printed.contains("missing field"),
        "{printed}"
    );
    std::fs::write(&toml, format!("{MANIFEST}tick = '5'\n")).unwrap();
    assert!(error(home.path()).contains("weir.toml: tick: must be a duration of at least 1 us"));

    std::fs::write(&toml, MANIFEST).unwrap();
    assert!(error(home.path()).contains("there is nothing to compile: put a .c file beside weir.toml"));
    std::fs::create_dir(home.path().join("src")).unwrap();
    std::fs::write(home.path().join("src/lib.rs"), "").unwrap();
    assert!(error(home.path()).contains("there is src/lib.rs, but no Cargo.toml"));
    std::fs::write(home.path().join("Cargo.toml"), "").unwrap();
    std::fs::write(home.path().join("m.c"), "").unwrap();
    assert!(error(home.path()).contains("a module is written in one language"));
}

#[test]
fn compiler_errors_are_shown_with_file_and_line() {
    if !has_c() {
        return;
    }
    let printed = error_of(&[("weir.toml", MANIFEST), ("m.c", "#include \"weir.h\"\nint x = ;\n")]);
    assert!(printed.contains("/m.c:2:9: error: expected expression"), "{printed}");
    assert!(printed.contains("clang could not build "), "{printed}");
}

#[test]
fn an_undefined_function_is_named() {
    if !has_c() {
        return;
    }
    let source = "#include \"weir.h\"\nunsigned strlen(const char *);\n\
        WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{ return (int)strlen((const char *)weir_bytes(p)); }\n";
    let printed = error_of(&[("weir.toml", MANIFEST), ("m.c", source)]);
    assert!(printed.contains("undefined: `strlen`. There is no C library in a module"), "{printed}");
    assert!(!printed.contains("build-"), "the temporary folder is of no interest: {printed}");
}

#[test]
fn functions_of_the_c_library_are_refused_with_those_of_weir() {
    if !has_c() {
        return;
    }
    let packet =
        "WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{ uint8_t first[4];";
    let copies =
        format!("#include \"weir.h\"\n{packet} memcpy(first, weir_bytes(p), 4); return first[0]; }}\n");
    let includes = "#include <string.h>\n#include \"weir.h\"\n";
    for source in [copies.as_str(), includes] {
        let printed = error_of(&[("weir.toml", MANIFEST), ("m.c", source)]);
        let last = printed.lines().last().unwrap();
        assert!(
            last.ends_with(
                "weir_copy, weir_fill and weir_equal of weir.h stand for memcpy, memset and memcmp"
            ),
            "{printed}"
        );
    }
    let other = error_of(&[("weir.toml", MANIFEST), ("m.c", "int x = ;\n")]);
    assert!(!other.contains("weir_copy"), "{other}");
}

#[test]
fn a_module_that_weir_run_would_refuse_is_not_built() {
    if !has_c() {
        return;
    }
    let packet =
        "WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p) { (void)p; return 0; }\n";
    for (manifest, source, message) in [
        (
            "",
            "__attribute__((import_module(\"env\"), import_name(\"system\"))) int system(const char *);\n\
             WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now) { (void)now; system(\"rm\"); }\n",
            "the module imports `env.system`, which weir does not offer",
        ),
        (
            "",
            "WEIR_EXPORT(weir_tick) void weir_tick(uint32_t now) { (void)now; }\n",
            "the export `weir_tick` is (i32) -> (), but must be (i64, i64) -> ()",
        ),
        (
            "memory = '128 KiB'\n",
            "static uint8_t table[1 << 20];\nWEIR_EXPORT(weir_stop) void weir_stop(uint64_t now) { table[now & 7]++; }\n\
             WEIR_EXPORT(weir_start) int32_t weir_start(void) { return table[3]; }\n",
            "of memory, but its manifest allows 128 KiB",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("weir.toml"), format!("{MANIFEST}{manifest}")).unwrap();
        std::fs::write(dir.path().join("m.c"), format!("#include \"weir.h\"\n{packet}{source}")).unwrap();
        std::fs::write(dir.path().join("m.wasm"), "the last one that worked").unwrap();
        let printed = build(dir.path(), &options()).unwrap_err().to_string();
        assert!(printed.contains(message), "{printed}\n  should say: {message}");
        assert_eq!(std::fs::read(dir.path().join("m.wasm")).unwrap(), b"the last one that worked");
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 4, "weir.toml, m.c, m.wasm, .weir: {left:?}");
    }
    let printed = error_of(&[("weir.toml", MANIFEST), ("m.c", "#include \"weir.h\"\n")]);
    assert!(printed.contains("exports none of them; it must export exactly one"), "{printed}");
}

#[test]
fn several_c_files_are_one_module() {
    if !has_c() {
        return;
    }
    let built = build_c(&[
        ("weir.toml", MANIFEST),
        ("a.c", "#include \"weir.h\"\nint32_t table(void);\nWEIR_EXPORT(weir_start) int32_t weir_start(void) { return table() != 0; }\n"),
        (
            "b.c",
            "#include \"weir.h\"\nint32_t table(void);\nint32_t table(void) { return weir_alloc(8) != NULL; }\n\
             WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p) { (void)p; return WEIR_DROP; }\n",
        ),
    ])
    .unwrap();
    assert_eq!(built.manifest.name.as_str(), "m");
}

#[test]
fn a_tick_without_a_period_or_an_entry_point_gives_a_warning() {
    if !has_c() {
        return;
    }
    let packet = "#include \"weir.h\"\nWEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p) { (void)p; return 0; }\n";
    let tick = "WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t n) { (void)now; (void)n; }\n";
    let messages =
        |manifest: &str, source: &str| build_c(&[("weir.toml", manifest), ("m.c", source)]).unwrap().messages;
    assert!(
        messages(&format!("{MANIFEST}tick = '1s'\n"), packet).contains("the module exports no weir_tick")
    );
    assert!(
        messages(MANIFEST, &format!("{packet}{tick}")).contains("weir_tick is never called; set its period")
    );
    assert_eq!(messages(&format!("{MANIFEST}tick = '1s'\n"), &format!("{packet}{tick}")), "");
}

#[test]
fn language_keywords_can_name_fields_and_parameters() {
    let manifest = |lang: &str| {
        format!(
            "{MANIFEST}[[parameter]]\nname = 'type'\ntype = 'u64'\ndefault = 1\n[[parameter]]\nname = 'self'\ntype = 'prefix'\ndefault = '::/0'\n\
             [[parameter]]\nname = 'list'\ntype = 'u64-list'\ndefault = [1]\n[[parameter]]\nname = 'words'\ntype = 'string-list'\ndefault = ['a']\n\
             [[parameter]]\nname = 'text'\ntype = 'string'\ndefault = 'a'\n[[parameter]]\nname = 'ratio'\ntype = 'f64'\ndefault = 1.0\n\
             [[parameter]]\nname = 'yes'\ntype = 'bool'\ndefault = true\n[[parameter]]\nname = 'int'\ntype = 'i64'\ndefault = -1\n\
             [[stream]]\nname = 'self'\nsummary = '*/ {lang} \"'\nfield = [{{ name = 'default', type = 'u8' }}, {{ name = 'self', type = 'ip' }}, \
             {{ name = 'match', type = 'string' }}, {{ name = 'int', type = 'bool' }}, {{ name = 'big', type = 'f64' }}, {{ name = 'd', type = 'duration' }}]\n"
        )
    };
    if has_c() {
        let source = "#include \"weir.h\"\n#include \"module.h\"\n\
            WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{\n\
            struct self_row row = { .default_ = (uint8_t)param_type(), .match = weir_string(weir_bytes(p), 1), .int_ = 1 };\n\
            return emit_self(&row) < 0;\n}\n";
        let built = build_c(&[("weir.toml", &manifest("C")), ("m.c", source)]).unwrap();
        assert_eq!(built.messages, "");
    }
    if has_rust() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("keywords");
        new(&dir, ModuleLanguage::Rust).unwrap();
        std::fs::write(dir.join("weir.toml"), manifest("Rust")).unwrap();
        std::fs::write(
            dir.join("src/lib.rs"),
            "#![cfg_attr(target_arch = \"wasm32\", no_std)]\n#![forbid(unsafe_code)]\n#[path = \"../.weir/module.rs\"]\nmod module;\n\
             use weir_guest::{Batch, Case, Drops, Level, Patterns, Str};\nstruct S(Patterns);\nimpl S {\n\
             fn start(&mut self) -> bool {\nlet mut room = [0; 64];\nlet Ok(words) = module::param::words(&mut room) else { return false };\n\
             let Ok(patterns) = Patterns::compile(words, Case::Ignore) else { return false };\nself.0 = patterns;\n\
             let mut list = [0; 8];\nmodule::param::list(&mut list).is_ok_and(|list| list.contains(&1)) && module::param::yes()\n}\n\
             fn batch(&mut self, batch: Batch) -> Drops {\nlet mut drops = Drops::NONE;\nfor p in batch {\n\
             let Some(src) = p.src() else { continue };\nif module::param::self_().contains(src) && self.0.find(p.payload()).is_some() {\ndrops.add(&p);\n\
             weir_guest::log!(Level::Info, \"{}\", module::param::r#type());\n\
             weir_guest::emit(&module::Self_ { default: 1, self_: src, r#match: Str::new(p.payload()), int: true, big: module::param::ratio(), d: 1 });\n}\n}\ndrops\n}\n}\n\
             weir_guest::module! {\nstate: S = S(Patterns::NONE);\nstart: S::start;\nbatch: S::batch;\n}\n",
        )
        .unwrap();
        let built = build(&dir, &rust_options()).unwrap();
        assert_eq!(built.messages, "");
    }
}

#[test]
fn without_a_compiler_the_error_says_what_to_install() {
    let home = tempfile::tempdir().unwrap();
    let nothing = BuildOptions { tools: Tools::default(), ..options() };
    let c = home.path().join("c");
    new(&c, ModuleLanguage::C).unwrap();
    let error = build(&c, &nothing).unwrap_err();
    assert!(matches!(error, BuildError::NoClang { .. }), "{error}");
    assert!(error.to_string().contains("apt-get install clang-19 lld-19"), "{error}");

    let rust = home.path().join("rust");
    new(&rust, ModuleLanguage::Rust).unwrap();
    let error = build(&rust, &nothing).unwrap_err();
    assert!(matches!(error, BuildError::NoRust { .. }), "{error}");
    assert!(error.to_string().contains("rustup target add wasm32-unknown-unknown"), "{error}");

    let named = BuildOptions {
        tools: Tools { clang: Some("clang-0".into()), ..Tools::from_environment() },
        ..options()
    };
    let error = build(&c, &named).unwrap_err().to_string();
    assert!(error.contains("no C compiler for WebAssembly: there is no clang-0"), "{error}");
}

#[test]
fn rustc_errors_are_shown_unchanged() {
    if !has_rust() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("wrong");
    new(&dir, ModuleLanguage::Rust).unwrap();
    let source = dir.join("src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, text.replace("packet: Counter::packet", "packet: Counter::tick")).unwrap();
    let printed = build(&dir, &rust_options()).unwrap_err().to_string();
    assert!(printed.contains("mismatched types") && printed.contains("src/lib.rs:"), "{printed}");

    std::fs::write(&source, text.replace("packet: Counter::packet", "paket: Counter::packet")).unwrap();
    let printed = build(&dir, &rust_options()).unwrap_err().to_string();
    assert!(printed.contains("weir does not call `paket`"), "{printed}");

    let cargo = dir.join("Cargo.toml");
    std::fs::write(&source, text).unwrap();
    let toml = std::fs::read_to_string(&cargo).unwrap();
    std::fs::write(&cargo, toml.replace("crate-type = [\"cdylib\"]", "crate-type = [\"rlib\"]")).unwrap();
    let printed = build(&dir, &rust_options()).unwrap_err().to_string();
    assert!(printed.contains("`crate-type = [\"cdylib\"]`"), "{printed}");
}
