;; weir_packet: unbounded
(global $limit (mut i32) (i32.const 9))
(func $more (global.set $limit (i32.add (global.get $limit) (i32.const 2))))
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (call $more)
    (br_if $l (i32.lt_u (local.get $i) (global.get $limit))))
  (i32.const 0))
