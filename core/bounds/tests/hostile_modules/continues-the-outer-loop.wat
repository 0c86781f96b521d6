;; weir_packet: unbounded
;; The inner loop branches to the header of the outer one, whose counter then does not advance.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $j i32)
  (loop $outer
    (local.set $j (i32.const 0))
    (loop $inner
      (br_if $outer (i32.load (i32.const 64)))
      (br_if $inner (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 8))))
    (br_if $outer (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 8))))
  (i32.const 0))
