;; weir_packet: unbounded
;; Packet bytes overwrite the cell.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (i32.store (i32.const 64) (i32.const 9))
  (memory.copy (i32.const 0) (i32.const 128) (i32.const 128))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (i32.load (i32.const 64)))))
  (i32.const 0))
