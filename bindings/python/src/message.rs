//! Bytes that leave by the buffer protocol, and bytes that come in by it.

use std::ffi::{c_int, c_void};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes to send; has the buffer protocol, so nothing is copied: ``memoryview(message)``, ``torch.frombuffer(message, ...)``.
///
/// ``Message(len)`` is room to receive into.
#[pyclass(frozen, module = "spardl")]
#[derive(Debug)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

#[pymethods]
impl Message {
    /// Room for a message of `len` bytes, to receive into.
    #[new]
    fn empty(len: usize) -> PyResult<Self> {
        let mut bytes = Vec::<u8>::new();
        if bytes.try_reserve_exact(len).is_err() {
            return Err(PyMemoryError::new_err(format!(
                "no room for a message of {len} bytes"
            )));
        }
        // Zeros from the allocator: pages are touched only when they are written.
        drop(bytes);
        Ok(Self(vec![0; len]))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("Message({} bytes)", self.0.len())
    }

    /// # Safety
    /// Called by Python with a valid view.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is null"));
        }
        let bytes = &slf.get().0;
        let len = ffi::Py_ssize_t::try_from(bytes.len())?;
        // The bytes are not read again on our side, so they are lent as writable: torch wraps nothing else without a warning.
        let read_only = 0;
        // SAFETY: the vector never moves (the class is frozen) and the view holds a reference to the object.
        let status = unsafe {
            let data = bytes.as_ptr().cast_mut().cast::<c_void>();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, len, read_only, flags)
        };
        if status == -1 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

/// Messages lent by Python for one call.
#[derive(Debug)]
pub(crate) struct Lent(Vec<PyBuffer<u8>>);

impl Lent {
    /// Borrows `bytes`, memoryviews, arrays of uint8 and whatever else has contiguous bytes.
    pub(crate) fn borrow(messages: &[Bound<'_, PyAny>]) -> PyResult<Self> {
        let buffers = messages.iter().map(|message| {
            let buffer = PyBuffer::<u8>::get(message)?;
            if buffer.is_c_contiguous() {
                return Ok(buffer);
            }
            Err(PyBufferError::new_err("a message must be contiguous bytes"))
        });
        Ok(Self(buffers.collect::<PyResult<_>>()?))
    }

    /// The bytes. Nobody may write them while they are borrowed.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|buffer| {
            let len = buffer.len_bytes();
            if len == 0 {
                return &[][..];
            }
            // SAFETY: a contiguous buffer has `len` bytes at its pointer and keeps them until it is released.
            unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), len) }
        })
    }
}
