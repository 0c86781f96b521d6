;; weir_packet: bounded, at least 4080
;; The byte is small at the first load; the loop uses a later load, which gives up to 255.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $p i32) (local $i i32)
  (local.set $p (i32.load offset=8 (local.get $d)))
  (if (i32.gt_u (i32.load8_u (local.get $p)) (i32.const 3)) (then (return (i32.const 0))))
  (loop $l
    (drop (call $log (i32.const 2) (i32.const 0) (i32.const 0)))
    (drop (i32.div_u (i32.const 1) (i32.const 3)))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (i32.load8_u (local.get $p)))))
  (i32.const 0))
