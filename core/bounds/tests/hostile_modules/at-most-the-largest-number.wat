;; weir_packet: unbounded
;; A comparison "less or equal" with the largest number is always true.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $n (i32.or (i32.load (i32.const 64)) (i32.const -4)))
  (local.set $i (i32.const -8))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.le_u (local.get $i) (local.get $n))))
  (i32.const 0))
