;; weir_packet: unbounded
;; Two loops advance one counter from 0. The limit on one path is the largest number, so the counter wraps around.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (block $out
    (loop $outer
      (block $rare
        (loop $inner
          (br_if $rare (i32.load8_u (i32.const 64)))
          (br_if $inner (i32.le_s (local.tee $i (i32.add (local.get $i) (i32.const 3))) (i32.const 0x7fffffff))))
        (br $out))
      (br_if $outer (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 8)))))
  (i32.const 0))
