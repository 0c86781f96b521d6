;; weir_packet: unbounded: walk (byte ..): the counter is multiplied, so that it can stay 0 or wrap around: count the iterations beside it, as in i < 32 for 32 bits with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
;; The counter may be 0.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $i (i32.load (i32.const 128)))
  (local.set $n (i32.load (i32.const 132)))
  (loop $l (local.set $i (i32.shl (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
  (i32.const 0))
