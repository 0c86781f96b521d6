;; weir_packet: unbounded: calls itself: write it as a loop over a stack with the arguments of its calls, WEIR_STACK in C or containers::Stack in Rust
(type $f (func (param i32)))
(table funcref (elem $walk))
(func $walk (type $f) (call_indirect (type $f) (local.get 0) (i32.const 0)))
(func (export "weir_packet") (param $d i32) (result i32)
  (call $walk (i32.const 5))
  (i32.const 0))
