;; weir_packet: bounded, at most 100
;; One branch leaves six blocks and two loops: neither loop repeats.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (block $out
    (loop $a (block (block (block (loop $b (block (block (block
      (br_table $out $out $out (i32.load (i32.const 64)))
    ))) (br $b)))))
    (br $a)))
  (i32.const 0))
