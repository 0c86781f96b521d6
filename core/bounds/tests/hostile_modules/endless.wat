;; weir_packet: unbounded: walk (byte ..): this loop has no way out: add one, or remove the loop
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (loop $l (br $l))
  (i32.const 0))
