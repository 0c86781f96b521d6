//! `weir build` as a small program, for rebuilding the shipped modules: `cargo run -p weir-author --example weir-build -- DIR...`.

#![forbid(unsafe_code)]

use weir_author::{BuildOptions, build};

fn main() -> std::process::ExitCode {
    let mut code = std::process::ExitCode::SUCCESS;
    for dir in std::env::args_os().skip(1) {
        match build(dir.as_ref(), &BuildOptions::default()) {
            Ok(built) => {
                eprint!("{}", built.messages);
                println!("{}: {}, {}", built.path.display(), built.size, built.toolchain);
            }
            Err(error) => {
                eprintln!("{error}");
                code = std::process::ExitCode::FAILURE;
            }
        }
    }
    code
}
