//! Prints a sample page with fabricated data: `cargo run -p weir-report --example sample > sample.html`.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

#[path = "../tests/page/fabricated.rs"]
mod fabricated;

fn main() {
    let (report, capture, modules) = fabricated::run();
    print!("{}", report.render(&capture, &modules));
}
