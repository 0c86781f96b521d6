;; weir_packet: unbounded
;; The operator sets a string parameter; here its contents become the limit.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (i32.store (i32.const 64) (i32.const 9))
  (drop (call $param_bytes (i32.const 1) (i32.const 64) (i32.const 4)))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (i32.load (i32.const 64)))))
  (i32.const 0))
