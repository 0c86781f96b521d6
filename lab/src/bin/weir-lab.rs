//! The experiments: `make figures`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    weir_lab::figure::program::main()
}
