;; weir_packet: unbounded
;; The cell with the limit is initially 9 and is overwritten through an unknown pointer.
(data (i32.const 64) "\09\00\00\00")
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (i32.store (i32.and (i32.load offset=16 (local.get $d)) (i32.const 124)) (i32.const -1))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (i32.load (i32.const 64)))))
  (i32.const 0))
