//! The benchmark: `make bench`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    weir_lab::bench::main()
}
