;; weir_packet: unbounded: walk (byte ..): the counter has 8 bits and wraps around at 256, and the limit can be larger: make it uint32_t, or count the loop with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
;; The counter has 8 bits, and the limit 32.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $i (i32.load (i32.const 128)))
  (local.set $n (i32.load (i32.const 132)))
  (loop $l (local.set $i (i32.and (i32.add (local.get $i) (i32.const 1)) (i32.const 255))) (br_if $l (i32.lt_u (local.get $i) (local.get $n))))
  (i32.const 0))
