//! The native half of the Python package `spardl`: workers, methods and the codec, without torch, NumPy or MPI.
//!
//! Arrays come in by DLPack and are never copied; messages leave by the buffer protocol. The GIL is released wherever an array is
//! walked. What users read stands in `_native.pyi` for their editors and in
//! the comments here for `help()`; a test holds the two together.

mod codec;
mod memory;
mod message;
mod methods;
mod threads;
mod tune;
mod worker;

use pyo3::prelude::*;

pyo3::create_exception!(
    spardl,
    SpardlError,
    pyo3::exceptions::PyException,
    "The root of the errors of this package."
);
pyo3::create_exception!(
    spardl,
    ConfigError,
    SpardlError,
    "Something was asked for that cannot be; the message says what can."
);
pyo3::create_exception!(
    spardl,
    ProtocolError,
    SpardlError,
    "A peer, or the wire between us, broke the plan; abort brings back the state before the step."
);

/// The library's errors as Python exceptions with the same words.
fn config(error: impl std::fmt::Display) -> PyErr {
    ConfigError::new_err(error.to_string())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("SpardlError", py.get_type::<SpardlError>())?;
    module.add("ConfigError", py.get_type::<ConfigError>())?;
    module.add("ProtocolError", py.get_type::<ProtocolError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<message::Message>()?;
    module.add_class::<worker::Round>()?;
    module.add_class::<worker::Worker>()?;
    module.add_class::<tune::Tuning>()?;
    module.add_function(wrap_pyfunction!(tune::tune, module)?)?;
    module.add_function(wrap_pyfunction!(methods::methods, module)?)?;
    module.add_function(wrap_pyfunction!(methods::explain, module)?)?;
    module.add_function(wrap_pyfunction!(methods::cost, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decode, module)?)
}
