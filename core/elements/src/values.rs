//! Values of handlers, read as arguments are.

use weir_graph::Landmark;
use weir_graph::arguments::{ArgumentContext, ArgumentValue, NoNames};
use weir_graph::engine::Reason;

/// Reads the value of a write handler.
///
/// # Errors
///
/// Fails with a reason if the text is no value of the type.
pub fn read<T: ArgumentValue>(text: &str) -> Result<T, Reason> {
    let landmark = Landmark { file: "handler".into(), line: 0 };
    let context = ArgumentContext { element: "", class: "", landmark: &landmark, names: &NoNames };
    T::parse_argument(text.trim(), &context).map_err(|fault| fault.to_string())
}
