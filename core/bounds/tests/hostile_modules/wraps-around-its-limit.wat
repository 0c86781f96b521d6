;; weir_packet: unbounded
;; Steps of 64 towards a limit that the last step passes by wrapping.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (local.set $i (i32.const 1))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 64)))
    (br_if $l (i32.lt_u (local.get $i) (i32.const -1))))
  (i32.const 0))
