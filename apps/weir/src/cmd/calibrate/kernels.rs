//! Calibration kernels: one module for each kind of work that is measured. `weir calibrate` measures the time of their
//! calls.
//!
//! A call repeats the work in a loop. The loop has a constant trip count, and each trip takes the path of the greatest
//! cost, so a call uses the fuel of its bound, to within 1%.

use weir_bounds::EntryPoint;

/// A calibration kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The kernel's name.
    pub name: &'static str,
    /// A description of the work in one line.
    pub summary: &'static str,
    /// The entry point that contains the loop.
    pub entry: EntryPoint,
    /// The loop's trip count, chosen so that a call takes about a millisecond.
    trips: u32,
    /// The lines of the manifest that only this kernel has.
    manifest: &'static str,
    /// Imports, functions, globals, tables and the start function, as WebAssembly text.
    declarations: &'static str,
    /// The size of the memory in pages of 64 KiB.
    pages: u32,
    /// The work, as WebAssembly text. `$i` counts the trips; `$p` is an address, or the result of a call; `$a`, `$b`,
    /// `$x` and `$v` hold results. `$d` is the address of the descriptor, in a kernel that is called for a packet.
    body: &'static str,
    /// The number of copies of the work in the loop's body. More copies reduce the share of the loop's own cost.
    copies: usize,
}

/// The default values of a kernel's fields.
const DEFAULTS: Kernel = Kernel {
    name: "",
    summary: "",
    entry: EntryPoint::Tick,
    trips: 1,
    manifest: "",
    declarations: "",
    pages: 1,
    body: "",
    copies: 1,
};

/// All kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "arithmetic",
        summary: "additions, shifts and exclusive ors, each of which needs the previous result",
        trips: 16_000,
        declarations: "",
        pages: 1,
        body: "(local.set $a (i64.rotl (i64.xor (i64.add (local.get $a) (i64.const 0x9e3779b97f4a7c15)) (local.get $b)) (i64.const 7)))",
        copies: 8,
        ..DEFAULTS
    },
    Kernel {
        name: "multiply",
        summary: "multiplications, each of which needs the previous result",
        trips: 16_000,
        declarations: "",
        pages: 1,
        body: "(local.set $a (i64.add (i64.mul (local.get $a) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))",
        copies: 8,
        ..DEFAULTS
    },
    Kernel {
        name: "divide",
        summary: "divisions of 64 bits",
        trips: 8_000,
        declarations: "",
        pages: 1,
        body: "(local.set $a (i64.div_u (i64.const 0x7fffffffffffffff) (i64.or (i64.and (local.get $a) (i64.const 0xffff)) (i64.const 1))))",
        copies: 8,
        ..DEFAULTS
    },
    Kernel {
        name: "float",
        summary: "products, sums and a square root",
        trips: 12_000,
        declarations: "",
        pages: 1,
        body: "(local.set $x (f64.sqrt (f64.add (f64.mul (local.get $x) (f64.const 1.5)) (f64.const 0.25))))",
        copies: 4,
        ..DEFAULTS
    },
    Kernel {
        name: "branches",
        summary: "branches that no processor predicts",
        trips: 8_000,
        declarations: "",
        pages: 1,
        body: "(local.set $b (i64.xor (local.get $b) (i64.shl (local.get $b) (i64.const 13)))) \
               (local.set $b (i64.xor (local.get $b) (i64.shr_u (local.get $b) (i64.const 7)))) \
               (local.set $b (i64.xor (local.get $b) (i64.shl (local.get $b) (i64.const 17)))) \
               (if (i64.lt_s (local.get $b) (i64.const 0)) \
                 (then (i64.store8 (i32.const 8) (local.get $a)) (local.set $a (i64.add (local.get $a) (local.get $b)))) \
                 (else (i64.store8 (i32.const 9) (local.get $b)) (local.set $a (i64.xor (local.get $a) (local.get $b)))))",
        copies: 4,
        ..DEFAULTS
    },
    Kernel {
        name: "calls",
        summary: "calls of a function that contains a loop",
        trips: 2_000,
        declarations: "(func $long (param $x i64) (result i64) (local $y i64) \
                         (block $out (br_if $out (i64.eqz (local.get $x))) \
                           (loop $once (local.set $y (i64.add (local.get $y) (local.get $x))))) \
                         (i64.xor (local.get $y) (local.get $x)))",
        pages: 1,
        body: "(local.set $a (i64.or (call $long (local.get $a)) (i64.const 1)))",
        copies: 32,
        ..DEFAULTS
    },
    Kernel {
        name: "indirect",
        summary: "indirect calls of small functions",
        trips: 12_000,
        declarations: "(type $f (func (param i64) (result i64))) (table funcref (elem $f0 $f1 $f2 $f3)) \
                       (func $f0 (type $f) (i64.add (local.get 0) (i64.const 1))) \
                       (func $f1 (type $f) (i64.xor (local.get 0) (i64.const 3))) \
                       (func $f2 (type $f) (i64.sub (local.get 0) (i64.const 5))) \
                       (func $f3 (type $f) (i64.rotl (local.get 0) (i64.const 9)))",
        pages: 1,
        body: "(local.set $a (call_indirect (type $f) (local.get $a) (i32.and (local.get $i) (i32.const 3))))",
        copies: 4,
        ..DEFAULTS
    },
    Kernel {
        name: "globals",
        summary: "counters in globals",
        trips: 24_000,
        declarations: "(global $g (mut i64) (i64.const 0)) (global $h (mut i64) (i64.const 0))",
        pages: 1,
        body: "(global.set $g (i64.add (global.get $g) (local.get $b))) (global.set $h (i64.xor (global.get $h) (global.get $g)))",
        copies: 4,
        ..DEFAULTS
    },
    Kernel {
        name: "read",
        summary: "sums over 16 KiB of memory",
        trips: 24_000,
        declarations: "",
        pages: 2,
        body: "(local.set $p (i32.and (i32.add (local.get $p) (i32.const 8)) (i32.const 16376))) \
               (local.set $a (i64.add (local.get $a) (i64.load offset=4096 (local.get $p))))",
        copies: 8,
        ..DEFAULTS
    },
    Kernel {
        name: "update",
        summary: "counters in 16 KiB of memory",
        trips: 12_000,
        declarations: "",
        pages: 2,
        body: "(local.set $p (i32.and (i32.add (local.get $p) (i32.const 72)) (i32.const 16376))) \
               (i64.store offset=4096 (local.get $p) (i64.add (i64.load offset=4096 (local.get $p)) (local.get $b)))",
        copies: 8,
        ..DEFAULTS
    },
    Kernel {
        name: "table",
        summary: "counters of flows: a hashed key selects a counter in 32 MiB",
        trips: 8_000,
        declarations: "",
        pages: 520,
        body: "(local.set $b (i64.add (i64.mul (local.get $b) (i64.const 6364136223846793005)) (i64.const 1442695040888963407))) \
               (local.set $a (i64.xor (local.get $b) (i64.shr_u (local.get $b) (i64.const 33)))) \
               (local.set $a (i64.mul (local.get $a) (i64.const 0xff51afd7ed558ccd))) \
               (local.set $a (i64.xor (local.get $a) (i64.shr_u (local.get $a) (i64.const 33)))) \
               (local.set $a (i64.mul (local.get $a) (i64.const 0xc4ceb9fe1a85ec53))) \
               (local.set $a (i64.xor (local.get $a) (i64.shr_u (local.get $a) (i64.const 33)))) \
               (local.set $p (i32.and (i32.wrap_i64 (local.get $a)) (i32.const 0x1ffffc0))) \
               (i64.store offset=65536 (local.get $p) (i64.add (i64.load offset=65536 (local.get $p)) (i64.const 1))) \
               (i64.store offset=65544 (local.get $p) (i64.add (i64.load offset=65544 (local.get $p)) (local.get $b))) \
               (i64.store offset=65552 (local.get $p) (local.get $a)) \
               (if (i64.eqz (i64.load offset=65560 (local.get $p))) \
                 (then (i64.store offset=65568 (local.get $p) (local.get $b))) \
                 (else (i64.store offset=65576 (local.get $p) (local.get $a))))",
        copies: 1,
        ..DEFAULTS
    },
    Kernel {
        name: "vectors",
        summary: "16 bytes at a time over 16 KiB of memory",
        trips: 16_000,
        declarations: "",
        pages: 2,
        body: "(local.set $p (i32.and (i32.add (local.get $p) (i32.const 16)) (i32.const 16368))) \
               (local.set $v (i8x16.add (local.get $v) (v128.xor (v128.load offset=4096 (local.get $p)) (v128.const i64x2 3 5))))",
        copies: 8,
        ..DEFAULTS
    },
    Kernel {
        name: "copy",
        summary: "copies of 256 bytes of memory",
        trips: 3_000,
        declarations: "",
        pages: 2,
        body: "(local.set $p (i32.and (i32.add (local.get $p) (i32.const 256)) (i32.const 16128))) \
               (memory.copy (i32.add (local.get $p) (i32.const 32768)) (i32.add (local.get $p) (i32.const 4096)) (i32.const 256))",
        copies: 4,
        ..DEFAULTS
    },
    Kernel {
        name: "hash",
        summary: "the host's hash of 40 bytes, the length of a flow's key",
        trips: 6_000,
        declarations: r#"(import "weir" "hash" (func $hash (param i32 i32 i64) (result i64)))"#,
        pages: 1,
        body: "(local.set $a (call $hash (i32.const 64) (i32.const 40) (local.get $a)))",
        copies: 4,
        ..DEFAULTS
    },
    Kernel {
        name: "find",
        summary: "the host's search for two patterns in 512 bytes",
        trips: 600,
        declarations: r#"(import "weir" "find" (func $find (param i32 i32 i32) (result i64)))
                         (import "weir" "find_compile" (func $find_compile (param i32 i32 i32) (result i32)))
                         (data (i32.const 1024) "\05\00\00\00/bin/\07\00\00\00HTTP/1.")
                         (data (i32.const 4096) "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt")
                         (func (export "weir_start") (result i32)
                           (i32.store (i32.const 80) (call $find_compile (i32.const 1024) (i32.const 20) (i32.const 0)))
                           (i32.lt_s (i32.load (i32.const 80)) (i32.const 0)))"#,
        pages: 1,
        body: "(local.set $a (i64.add (local.get $a) (call $find (i32.load (i32.const 80)) (i32.const 4096) (i32.const 512))))",
        copies: 1,
        ..DEFAULTS
    },
    Kernel {
        name: "emit",
        summary: "emitting records of 24 bytes",
        trips: 4_000,
        declarations: r#"(import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))"#,
        pages: 1,
        body: "(i64.store (i32.const 64) (local.get $b)) (i64.store (i32.const 72) (local.get $a)) \
               (local.set $p (call $emit (i32.const 0) (i32.const 64) (i32.const 24)))",
        copies: 1,
        ..DEFAULTS
    },
    Kernel {
        name: "send",
        summary: "sending frames of 1000 bytes",
        trips: 2_000,
        manifest: r"[[output]]\nname='frames'\n",
        declarations: r#"(import "weir" "send" (func $send (param i32 i32 i32) (result i32)))"#,
        body: "(if (call $send (i32.const 0) (i32.const 4096) (i32.const 1000)) (then (unreachable)))",
        ..DEFAULTS
    },
    Kernel {
        name: "keep",
        summary: "keeping and releasing a packet",
        entry: EntryPoint::Packet,
        trips: 1_000,
        manifest: r"keep=4\n",
        declarations: r#"(import "weir" "keep" (func $keep (param i32) (result i32)))
                         (import "weir" "release" (func $release (param i32) (result i32)))"#,
        body: "(if (call $release (call $keep (local.get $d))) (then (unreachable)))",
        ..DEFAULTS
    },
    Kernel {
        name: "publish",
        summary: "publishing a table of 1 KiB",
        trips: 60,
        manifest: r"[[table]]\nname='t'\naccess='publish'\nbytes='1 KiB'\n",
        declarations: r#"(import "weir" "publish" (func $publish (param i32 i32 i32) (result i32)))"#,
        body: "(if (call $publish (i32.const 0) (i32.const 4096) (i32.const 1024)) (then (unreachable)))",
        ..DEFAULTS
    },
    Kernel {
        name: "publish-long",
        summary: "publishing a table of 1 MiB",
        trips: 2,
        manifest: r"[[table]]\nname='t'\naccess='publish'\nbytes='1 MiB'\n",
        declarations: r#"(import "weir" "publish" (func $publish (param i32 i32 i32) (result i32)))"#,
        pages: 17,
        body: "(if (call $publish (i32.const 0) (i32.const 4096) (i32.const 1048576)) (then (unreachable)))",
        ..DEFAULTS
    },
];

const MANIFEST: &str = "name='kernel'\\nversion='1'\\nabi=2\\nlicense='MIT'\\nsummary='a piece of work'\\nmemory='64 MiB'\\ntick='1s'\\n";
const STREAM: &str =
    "[[stream]]\\nname='rows'\\nfield=[{name='a',type='u64'},{name='b',type='u64'},{name='c',type='u64'}]\\n";

impl Kernel {
    /// Returns the module as WebAssembly text.
    pub fn text(&self) -> String {
        let (imports, others): (Vec<&str>, Vec<&str>) =
            self.declarations.lines().partition(|line| line.trim_start().starts_with("(import"));
        let (imports, others) = (imports.join("\n"), others.join("\n"));
        let body = [self.body].repeat(self.copies).join("\n");
        let Self { pages, trips, manifest, .. } = self;
        let (unused_packet_entry, signature, initialization, result_value) = match self.entry {
            EntryPoint::Packet => (
                "",
                r#"(export "weir_packet") (param $d i32) (result i32)"#,
                "(local.set $a (i64.const 1)) (local.set $b (i64.const 0x9e3779b97f4a7c15))",
                "(i32.const 0)",
            ),
            _ => (
                r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#,
                r#"(export "weir_tick") (param i64 i64)"#,
                "(local.set $a (local.get 0)) (local.set $b (i64.or (local.get 1) (i64.const 0x9e3779b97f4a7c15)))",
                "",
            ),
        };
        format!(
            r#"(module {imports}
              (memory (export "memory") {pages})
              {others}
              {unused_packet_entry}
              (func {signature}
                (local $i i32) (local $p i32) (local $a i64) (local $b i64) (local $x f64) (local $v v128)
                {initialization}
                (loop $again
                  {body}
                  (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {trips}))))
                (i64.store (i32.const 0) (local.get $a)) (i64.store (i32.const 16) (local.get $b))
                (i32.store (i32.const 24) (local.get $p)) (f64.store (i32.const 32) (local.get $x))
                (v128.store (i32.const 48) (local.get $v))
                {result_value})
              (@custom "weir.manifest" "{MANIFEST}{manifest}{STREAM}"))"#
        )
    }
}
