;; weir_packet: bounded, at most 1100000
;; A length beyond any memory traps before a byte is written.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (memory.fill (i32.const 0) (i32.const 3) (i32.load (i32.const 64)))
  (i32.const 0))
