;; weir_packet: unbounded
;; The counter is an operand of the loop, and decreases by a value from memory.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (i32.const 100)
  (loop $l (param i32) (result i32)
    (i32.sub (i32.load (i32.const 64)))
    (br_if $l (i32.load (i32.const 68))))
  (drop)
  (i32.const 0))
