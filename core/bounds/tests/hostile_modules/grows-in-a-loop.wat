;; weir_packet: bounded, at least 640000
;; At most sixteen pages can be added, and each has to be cleared; a refused request costs only the call.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (loop $l
    (drop (memory.grow (i32.const 1)))
    (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100))))
  (i32.const 0))
