;; weir_packet: unbounded
;; A counter of eight bits never reaches 300.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (loop $l
    (local.set $i (i32.and (i32.add (local.get $i) (i32.const 1)) (i32.const 255)))
    (br_if $l (i32.lt_u (local.get $i) (i32.const 300))))
  (i32.const 0))
