;; weir_packet: unbounded: walk (byte ..): walk calls itself: write it as a loop over a stack with the arguments of its calls, WEIR_STACK in C or containers::Stack in Rust
(func $walk (param i32) (if (local.get 0) (then (call $walk (i32.sub (local.get 0) (i32.const 1))))))
(func (export "weir_packet") (param $d i32) (result i32)
  (call $walk (i32.const 5))
  (i32.const 0))
