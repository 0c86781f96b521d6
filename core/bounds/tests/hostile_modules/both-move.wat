;; weir_packet: unbounded: walk (byte ..): both sides of the loop's test change, so that neither is a limit: count the loop with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
;; The counters meet, or pass each other.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $i (i32.load (i32.const 128)))
  (local.set $n (i32.load (i32.const 132)))
  (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1))) (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $l (i32.ne (local.get $i) (local.get $n))))
  (i32.const 0))
