;; weir_packet: unbounded: walk (byte ..): no counter was found that ends this loop: count the loop with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
;; The counter goes away from its end.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $i (i32.load (i32.const 128)))
  (local.set $n (i32.load (i32.const 132)))
  (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.gt_u (local.get $i) (i32.const 5))))
  (i32.const 0))
