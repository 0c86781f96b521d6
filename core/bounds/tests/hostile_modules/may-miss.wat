;; weir_packet: unbounded: walk (byte ..): the counter can step over its end and wrap around, unless it begins below it, which does not show here: count with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or cut the limit to a constant just before the loop, as in n < MAX ? n : MAX (compilers make != of <, so that to write < does not always help)
;; Up to a number that may be below where it begins.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (local.set $i (i32.load (i32.const 64)))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 3)))
    (br_if $l (i32.ne (local.get $i) (i32.const 100))))
  (i32.const 0))
