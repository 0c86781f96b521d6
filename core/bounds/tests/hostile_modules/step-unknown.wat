;; weir_packet: unbounded: walk (byte ..): the counter's step can be any number: cut it before the loop, as in s < 1 ? 1 : s > 255 ? 255 : s, or count the loop with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
;; The step is a number of memory.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $i (i32.load (i32.const 128)))
  (local.set $n (i32.load (i32.const 132)))
  (loop $l (local.set $i (i32.add (local.get $i) (i32.load (i32.const 64)))) (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
  (i32.const 0))
