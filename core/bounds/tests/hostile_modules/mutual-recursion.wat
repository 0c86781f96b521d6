;; weir_packet: unbounded: odd (byte ..): even calls itself through odd: write it as a loop over a stack with the arguments of its calls, WEIR_STACK in C or containers::Stack in Rust
(func $even (param i32) (result i32)
  (if (result i32) (local.get 0) (then (call $odd (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 1))))
(func $odd (param i32) (result i32)
  (if (result i32) (local.get 0) (then (call $even (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 0))))
(func (export "weir_packet") (param $d i32) (result i32)
  (call $even (local.get $d)))
