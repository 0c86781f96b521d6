;; weir_packet: unbounded: walk (byte ..): the counter can step over its end and wrap around, because the code does not show that it begins below its end: count with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or cut the limit to a constant just before the loop, as in n < MAX ? n : MAX (compilers turn < into !=, so writing < does not always help)
;; The counter goes up to a limit that may be below its first value.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (local.set $i (i32.load (i32.const 64)))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 3)))
    (br_if $l (i32.ne (local.get $i) (i32.const 100))))
  (i32.const 0))
