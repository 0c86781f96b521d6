;; weir_packet: bounded, at most 100
;; Endless loops that are unreachable.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (block $out (br $out) (loop $l (br $l)))
  (if (i32.const 0) (then (return (i32.const 1)) (loop $l (br $l))))
  (return (i32.const 0))
  (loop $l (br $l))
  (unreachable))
