;; weir_packet: unbounded
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (loop $l
    (if (i32.load (i32.const 64)) (then (local.set $i (i32.add (local.get $i) (i32.const 1)))))
    (br_if $l (i32.lt_u (local.get $i) (i32.const 10))))
  (i32.const 0))
