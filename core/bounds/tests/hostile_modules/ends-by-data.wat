;; weir_packet: unbounded: walk (byte ..): the loop ends by what each iteration reads or computes, which can be anything: count the loop with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
;; A linked list in memory, which may be circular.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $node i32)
  (local.set $node (i32.const 64))
  (loop $l (br_if $l (local.tee $node (i32.load (local.get $node)))))
  (i32.const 0))
