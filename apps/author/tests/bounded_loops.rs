//! The bounded loops of weir.h and weir-guest: the analyser finds their bounds at every optimisation level.

use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::path::Path;
use std::process::Command;
use weir_admission::Admitted;
use weir_author::{BuildOptions, ModuleLanguage, OptLevel, build, new};
use weir_bounds::{Analysis, CostTable, EntryPoint, analyse};

const TOML: &str = "name = '{{name}}'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";

/// Builds a module of one source file, and analyses it.
fn analysed(lang: ModuleLanguage, source: &str, level: OptLevel) -> Analysis {
    analysed_with("", lang, source, level)
}

/// Builds a module with extra lines in its manifest, and analyses it.
fn analysed_with(manifest: &str, lang: ModuleLanguage, source: &str, level: OptLevel) -> Analysis {
    let home = tempfile::tempdir().unwrap();
    // The tests share cargo's target folder, where packages of the same name would overwrite each other.
    let name = format!("bounded{}", level.name());
    let dir = home.path().join(&name);
    new(&dir, lang).unwrap();
    std::fs::write(dir.join("weir.toml"), TOML.replace("{{name}}", &name) + manifest).unwrap();
    let (file, with) = match lang {
        ModuleLanguage::C => (format!("{name}.c"), options()),
        ModuleLanguage::Rust => ("src/lib.rs".to_owned(), rust_options()),
    };
    std::fs::write(dir.join(file), source).unwrap();
    let built = build(&dir, &BuildOptions { level: Some(level), ..with }).unwrap();
    assert_eq!(built.messages, "", "{lang:?} {level:?}");
    let bytes = std::fs::read(built.path).unwrap();
    let admitted = Admitted::admit(bytes, &[]).unwrap();
    analyse(admitted.module(), &admitted.environment(), &CostTable::standard()).unwrap()
}

/// Loops that only their bounds end: over a list that may be cyclic, over text without an end, up to a limit in memory. Some are nested,
/// two are on one line, and one is between `if` and `else`.
const C: &str = r#"
#include "weir.h"

static uint32_t next[256], limits[3], sum;
static uint8_t text[256];

static __attribute__((noinline)) uint32_t walk(uint32_t first)
{
    uint32_t steps = 0;
    WEIR_FOR(100, uint32_t i = first; i != 0; i = next[i & 255]) {
        if (next[i & 255] == 7)
            continue;
        if (next[i & 255] == 9)
            break;
        steps++;
    }
    return steps;
}

/* No code follows a loop without an end, and the compiler must not warn about a missing return value. */
static __attribute__((noinline)) uint32_t last(uint32_t at)
{
    WEIR_FOR(20, ;;) {
        if (next[at & 255] == 0)
            return at;
        at = next[at & 255];
    }
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    sum += last(limits[1]);
    const volatile uint8_t *begin = text;
    WEIR_FOR(1000, const volatile uint8_t *at = begin; *at != 0; at++)
        sum++;
    WEIR_FOR(64, uint32_t i = 0; i < limits[0]; i++)
        sum += next[i & 255];
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (p->flags & WEIR_TCP)
        WEIR_FOR(16, uint32_t i = 0, j = limits[2]; i < limits[0] && j != 1; i++, j--) WEIR_FOR(8, uint32_t k = 0; k < limits[1]; k++) sum += walk(i ^ k);
    else
        WEIR_WHILE(12, sum > limits[1] && sum != limits[2])
            sum = next[sum & 255];
    return WEIR_PASS;
}
"#;

const RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
use weir_guest::{BoundedIterator, Packet, Verdict};

struct Loops {
    next: [u32; 256],
    limits: [u32; 3],
    sum: u32,
}

impl Loops {
    #[inline(never)]
    fn walk(&self, first: u32) -> u32 {
        let (mut at, mut steps) = (first, 0);
        for _ in (0u32..).bounded::<100>() {
            if at == 0 {
                break;
            }
            at = self.next[at as usize & 255];
            if at != 7 {
                steps += 1;
            }
        }
        steps
    }

    fn start(&mut self) -> bool {
        for index in (0..self.limits[0]).bounded::<64>() {
            self.sum = self.sum.wrapping_add(self.next[index as usize & 255]);
        }
        true
    }

    fn packet(&mut self, packet: &Packet) -> Verdict {
        for i in (0..self.limits[1]).bounded::<16>() {
            for k in (0..self.limits[2]).bounded::<8>() {
                self.sum = self.sum.wrapping_add(self.walk(i ^ k ^ packet.number));
            }
        }
        Verdict::Pass
    }

    fn stop(&mut self, now: u64) {
        self.next[now as usize & 255] = self.sum;
        self.limits[now as usize % 3] = now as u32;
    }
}

weir_guest::module! {
    state: Loops = Loops { next: [0; 256], limits: [0; 3], sum: 0 };
    start: Loops::start;
    packet: Loops::packet;
    stop: Loops::stop;
}
"#;

#[test]
fn the_analyser_finds_the_bounds_at_all_optimising_levels() {
    // At -O0, locals are in memory. Rust has fewer levels, as each compiles the library again.
    let c = [OptLevel::One, OptLevel::Two, OptLevel::Three, OptLevel::Size]
        .map(|level| (ModuleLanguage::C, C, level));
    let rust = [OptLevel::Three, OptLevel::Size].map(|level| (ModuleLanguage::Rust, RUST, level));
    for (lang, source, level) in c.into_iter().chain(rust) {
        if if lang == ModuleLanguage::C { has_c() } else { has_rust() } {
            let found = analysed(lang, source, level);
            for entry in [EntryPoint::Start, EntryPoint::Packet] {
                let bound = found.entry(entry).unwrap();
                assert!(bound.is_bounded(), "{lang:?} {level:?}: {:?}", bound.unbounded);
            }
            // At most 16 x 8 x 100 trips of less than 100 units of fuel each.
            let packet = found.entry(EntryPoint::Packet).unwrap().usage.fuel;
            assert!(packet.at(1500) < 16 * 8 * 100 * 100, "{lang:?} {level:?}: {packet}");
        }
    }
}

/// A loop that sets bits of a Bloom filter and tests whether all were set. Clang splits it into two loops with one counter; the inner one
/// runs while bits are set.
const BLOOM: &str = r#"
#include "weir.h"
#include "module.h"

static uint8_t bits[65536];
static uint64_t fresh, known;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint32_t hash = (uint32_t)p->flow_hash, step = (uint32_t)(p->flow_hash >> 32) | 1;
    bool seen = true;
    LOOP {
        const uint32_t at = (hash + (uint32_t)i * step) & 0x7FFFF, bit = 1u << (at & 7);
        if (!(bits[at >> 3] & bit)) {
            seen = false;
            bits[at >> 3] |= (uint8_t)bit;
        }
    }
    if (seen)
        known++;
    else
        fresh++;
    return WEIR_PASS;
}
"#;

const HASHES: &str =
    "[[parameter]]\nname = 'hashes'\ntype = 'u64'\ndefault = 4\nmin = 1\nmax = 16\nsummary = 's'\n";

#[test]
fn a_loop_that_the_compiler_splits_in_two_has_its_bound() {
    if !has_c() {
        return;
    }
    let mut split = 0;
    for counter in ["int64_t", "uint64_t", "int32_t", "uint32_t"] {
        for form in [
            "for (COUNTER i = 0; i < (COUNTER)param_hashes(); i++)",
            "const COUNTER n = (COUNTER)param_hashes(); WEIR_FOR(16, COUNTER i = 0; i < n; i++)",
            "WEIR_FOR(16, COUNTER i = 0; i < (COUNTER)param_hashes(); i++)",
            "for (COUNTER i = 0; i < 16; i++)",
        ] {
            let form = form.replace("COUNTER", counter);
            let found =
                analysed_with(HASHES, ModuleLanguage::C, &BLOOM.replace("LOOP", &form), OptLevel::Three);
            let bound = found.entry(EntryPoint::Packet).unwrap();
            assert!(bound.is_bounded(), "{form}: {:?}", bound.unbounded);
            split += usize::from(found.loops.len() == 2);
        }
    }
    assert!(split >= 4, "clang makes two loops of {split}");
}

#[test]
fn the_bound_includes_clearing_the_used_scratch_memory() {
    if !has_c() {
        return;
    }
    let taking = |bytes: u32| {
        let source = format!(
            "#include \"weir.h\"\nstatic uint8_t room[65536];\n\
             WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{{\n\
             \x20   struct weir_scratch scratch = weir_scratch_begin(room, sizeof room);\n\
             \x20   uint8_t *taken = weir_scratch_take(&scratch, {bytes});\n\
             \x20   return taken != NULL && taken[p->cap_len & 511] != 0;\n}}\n"
        );
        let found = analysed(ModuleLanguage::C, &source, OptLevel::Three);
        let bound = found.entry(EntryPoint::Packet).unwrap();
        assert!(bound.is_bounded(), "{:?}", bound.unbounded);
        bound.usage.fuel.constant
    };
    let byte = u64::from(CostTable::standard().bulk_byte());
    let (small, large) = (taking(1024), taking(65_536));
    assert!(small >= 1024 * byte, "{small}");
    assert!(large >= small + (65_536 - 1024) * byte && large < small + 65_536 * byte, "{small} {large}");
}

/// A native program that tests its loops. Its exit status is 0, or the line of the failed test.
const NATIVE: &str = r#"
#include "weir.h"

uint8_t *weir_native_base;
struct weir_native_parameter weir_native_parameters[WEIR_PARAMETERS];

#define EXPECT(condition) do { if (!(condition)) return __LINE__; } while (0)

static uint32_t half(uint32_t n)
{
    WEIR_FOR(32, ;;) {
        if (n % 2 == 1)
            return n;
        n /= 2;
    }
}

static uint32_t steps(uint32_t n)
{
    WEIR_WHILE(3, true)
        WEIR_FOR(4, ;;) {
            if (n > 40)
                return n;
            if (++n % 4 == 3)
                break;
        }
}

int main(int argc, char **argv)
{
    (void)argv;
    EXPECT(half(40) == 5 && steps(36) == 41);
    const uint32_t n = (uint32_t)argc - 1; /* 0, and 1 where the last loop is to go past its bound */
    uint32_t sum = 0, trips = 0;
    WEIR_FOR(10, uint32_t i = 0; i < 10; i++) {
        if (i == 3)
            continue;
        if (i == 8)
            break;
        sum += i;
    }
    EXPECT(sum == 0 + 1 + 2 + 4 + 5 + 6 + 7);
    uint32_t left = 10;
    WEIR_WHILE(10, left > n) left--;
    EXPECT(left == n);
    if (n > 1)
        WEIR_FOR(1, ; sum != 0;) sum = 0;
    else
        WEIR_FOR(3, uint32_t i = 0, j = 0; i + j < 6; i++, j++) WEIR_FOR(2, uint32_t k = 0; k < 2; k++) trips++;
    EXPECT(trips == 6 && sum == 25);
    WEIR_FOR(0, ; false;) EXPECT(false);
    WEIR_FOR(trips, uint32_t i = 0; i < 6 + n; i++) trips = i;
    EXPECT(trips == 5);
    return 0;
}
"#;

#[test]
fn in_native_builds_bounded_loops_trap_past_their_bound() {
    if Command::new("cc").arg("--version").output().is_err() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("loops.c");
    std::fs::write(&source, NATIVE).unwrap();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/sdk-c");
    for level in OptLevel::ALL {
        let program = home.path().join(format!("loops{}", level.name()));
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-DWEIR_NATIVE", "-I"]).arg(&sdk);
        cc.arg(format!("-O{}", level.name())).arg(&source).arg("-o").arg(&program);
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let within = Command::new(&program).status().unwrap();
        assert_eq!(within.code(), Some(0), "{level:?}: the line of what was not as expected");
        let past = Command::new(&program).arg("one more").status().unwrap();
        assert_eq!(past.code(), None, "{level:?}: ended by a signal");
    }
}
