;; weir_packet: unbounded
;; Waits for a packet byte to become 0.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (loop $l (br_if $l (i32.load8_u (i32.load offset=8 (local.get $d)))))
  (i32.const 0))
