//! Arrays of other libraries, lent by DLPack: CPU memory of f32, bf16 or f16, contiguous, never copied.
//!
//! A capsule that is not consumed frees its tensor when Python drops it, so holding the capsule is holding the memory.

use std::ffi::{CStr, c_void};

use half::{bf16, f16};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};

use spardl_core::Source;

use crate::ConfigError;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const READ_ONLY: u64 = 1;
const CPU: i32 = 1;
const PINNED: i32 = 3;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct VersionedTensor {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

/// The element types that are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F32,
    Bf16,
    F16,
}

impl Dtype {
    const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// A lent array. The lender promises that nobody else writes it during the call it was passed to.
#[derive(Debug)]
pub(crate) struct Memory {
    data: *mut c_void,
    len: usize,
    dtype: Dtype,
    read_only: bool,
    _capsule: Py<PyCapsule>,
}

// SAFETY: the pointer is to memory that the capsule keeps alive, and capsules may be held by any thread.
unsafe impl Send for Memory {}
// SAFETY: as above; all access is through `&self` (shared) or `&mut self` (exclusive).
unsafe impl Sync for Memory {}

impl Memory {
    /// Borrows one array.
    pub(crate) fn borrow(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = lend(array)?;
        let name = capsule.name()?;
        // SAFETY: the name of a capsule lives as long as the capsule, which is alive here.
        let name = name.map(|name| unsafe { name.as_cstr() });
        // SAFETY: DLPack defines what a capsule of either name points to; it stays valid while the capsule is not consumed.
        let (tensor, flags) = unsafe {
            if name == Some(VERSIONED) {
                let managed = capsule
                    .pointer_checked(Some(VERSIONED))?
                    .cast::<VersionedTensor>()
                    .as_ref();
                if managed.major != 1 {
                    return Err(refused(
                        format!("DLPack {}", managed.major),
                        "DLPack 0 or 1",
                    ));
                }
                (&managed.tensor, managed.flags)
            } else {
                let tensor = capsule.pointer_checked(Some(PLAIN))?.cast::<Tensor>();
                (tensor.as_ref(), 0)
            }
        };
        let (len, dtype, data) = describe(tensor)?;
        Ok(Self {
            data,
            len,
            dtype,
            read_only: flags & READ_ONLY != 0 || is_of_jax(array)?,
            _capsule: capsule.unbind(),
        })
    }

    /// Borrows one array, or every array of a list or tuple.
    pub(crate) fn borrow_all(arrays: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        if arrays.is_instance_of::<PyList>() || arrays.is_instance_of::<PyTuple>() {
            let arrays = arrays.try_iter()?;
            return arrays.map(|array| Self::borrow(&array?)).collect();
        }
        Ok(vec![Self::borrow(arrays)?])
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn values(&self) -> Source<'_> {
        // SAFETY: `describe` checked type, alignment and contiguity; the capsule keeps the memory; see the type on writers.
        unsafe {
            match self.dtype {
                Dtype::F32 => Source::F32(slice(self.data, self.len)),
                Dtype::Bf16 => Source::Bf16(slice(self.data, self.len)),
                Dtype::F16 => Source::F16(slice(self.data, self.len)),
            }
        }
    }

    /// The elements as f32, to be changed in place.
    pub(crate) fn f32_mut(&mut self) -> PyResult<&mut [f32]> {
        self.check_writable()?;
        let dtype = self.dtype;
        self.as_f32_mut()
            .ok_or_else(|| refused(format!("an array of {dtype:?}"), "f32"))
    }

    /// The elements, if they are f32; the caller has checked that they may be changed.
    pub(crate) fn as_f32_mut(&mut self) -> Option<&mut [f32]> {
        // SAFETY: as in `values`; `&mut self` makes the access exclusive among ours.
        (self.dtype == Dtype::F32).then(|| unsafe { slice_mut(self.data, self.len) })
    }

    /// Refuses arrays that their owner does not let us change.
    pub(crate) fn check_writable(&self) -> PyResult<()> {
        if self.read_only {
            return Err(refused(
                "a read-only array".to_owned(),
                "one that can be written",
            ));
        }
        Ok(())
    }

    /// Sets every element to zero.
    pub(crate) fn clear(&mut self) {
        // SAFETY: all three types have `size` bytes an element and zero is all bits zero; exclusive as in `f32_mut`.
        unsafe { slice_mut::<u8>(self.data, self.len * self.dtype.size()) }.fill(0);
    }

    /// Writes `value(i)` to the elements `i` of `indices`, rounded to the array's type.
    pub(crate) fn set(&mut self, entries: impl Iterator<Item = (usize, f32)>) {
        // SAFETY: as in `f32_mut`.
        unsafe {
            match self.dtype {
                Dtype::F32 => put(slice_mut(self.data, self.len), entries, |value| value),
                Dtype::Bf16 => put(slice_mut(self.data, self.len), entries, bf16::from_f32),
                Dtype::F16 => put(slice_mut(self.data, self.len), entries, f16::from_f32),
            }
        }
    }
}

/// The number of elements of several arrays.
pub(crate) fn total(arrays: &[Memory]) -> usize {
    arrays.iter().map(Memory::len).sum()
}

fn lend<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = array.py();
    let Ok(export) = array.getattr("__dlpack__") else {
        let message = format!(
            "expected an array with __dlpack__ (torch, NumPy, JAX), got {}",
            array.get_type().name()?
        );
        return Err(PyTypeError::new_err(message));
    };
    let arguments = PyDict::new(py);
    arguments.set_item("max_version", (1, 0))?;
    let capsule = match export.call((), Some(&arguments)) {
        // Exporters older than DLPack 1 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => export.call0(),
        other => other,
    }?;
    Ok(capsule.cast_into::<PyCapsule>()?)
}

/// Arrays of JAX are immutable, but their capsules do not say so.
fn is_of_jax(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = array.get_type().module()?.to_string();
    let package = module.split('.').next();
    Ok(matches!(package, Some("jax" | "jaxlib")))
}

fn describe(tensor: &Tensor) -> PyResult<(usize, Dtype, *mut c_void)> {
    if tensor.device_type != CPU && tensor.device_type != PINNED {
        let device = format!("an array on device type {}", tensor.device_type);
        return Err(refused(device, "CPU memory"));
    }
    let dtype = match (tensor.code, tensor.bits, tensor.lanes) {
        (2, 32, 1) => Dtype::F32,
        (4, 16, 1) => Dtype::Bf16,
        (2, 16, 1) => Dtype::F16,
        (code, bits, _) => {
            return Err(refused(
                format!("an array of DLPack type code {code} with {bits} bits"),
                "float32, bfloat16 or float16",
            ));
        }
    };
    let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
    // SAFETY: DLPack: `shape` has `ndim` elements, `strides` too unless it is null.
    let (shape, strides) = unsafe {
        let shape: &[i64] = slice(tensor.shape.cast(), ndim);
        let strides: Option<&[i64]> =
            (!tensor.strides.is_null()).then(|| slice(tensor.strides.cast(), ndim));
        (shape, strides)
    };
    let len = shape
        .iter()
        .try_fold(1usize, |len, &side| {
            len.checked_mul(usize::try_from(side).ok()?)
        })
        .ok_or_else(|| refused("an array of impossible shape".to_owned(), "a real one"))?;
    if len > 0 && !strides.is_none_or(|strides| is_contiguous(shape, strides)) {
        return Err(refused("a strided array".to_owned(), "a contiguous one"));
    }
    let data = tensor.data.wrapping_byte_add(tensor.byte_offset as usize);
    if len > 0 && !data.addr().is_multiple_of(dtype.size()) {
        return Err(refused("an unaligned array".to_owned(), "an aligned one"));
    }
    Ok((len, dtype, data))
}

fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&side, &stride)| {
        let fits = side == 1 || stride == expected;
        expected *= side;
        fits
    })
}

fn refused(got: String, expected: &str) -> PyErr {
    ConfigError::new_err(format!("got {got}, expected {expected}"))
}

fn put<T>(array: &mut [T], entries: impl Iterator<Item = (usize, f32)>, round: impl Fn(f32) -> T) {
    for (index, value) in entries {
        array[index] = round(value);
    }
}

/// # Safety
/// `data` points to `len` elements of `T`, aligned, that live for `'a` and are not written meanwhile; it may be null when `len` is 0.
unsafe fn slice<'a, T>(data: *mut c_void, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// # Safety
/// As [`slice`], and nothing else reads the elements meanwhile.
unsafe fn slice_mut<'a, T>(data: *mut c_void, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(data.cast(), len) }
}
