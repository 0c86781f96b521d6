;; weir_packet: unbounded
;; Two loops change one counter, as compilers split a loop. The outer path takes back the step of the inner one.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i64)
  (block $out
    (loop $outer
      (block $rare
        (loop $inner
          (br_if $rare (i32.load8_u (i32.const 64)))
          (br_if $inner (i64.lt_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 8))))
        (br $out))
      (br_if $outer (i64.lt_s (local.tee $i (i64.sub (local.get $i) (i64.const 1))) (i64.const 8)))))
  (i32.const 0))
