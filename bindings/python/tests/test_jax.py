"""Arrays of JAX come in by DLPack, where they are; JAX never lets anybody change them."""

import ctypes
from typing import Any

import numpy as np
import pytest

import spardl

pytestmark = pytest.mark.modern


def test_a_gradient_of_jax_is_read_where_it_is() -> None:
    import jax.numpy as jnp

    values = [np.random.default_rng(rank).integers(-50, 50, 5000).astype(np.float32) for rank in range(2)]
    arrays = [jnp.asarray(value) for value in values]
    workers = [spardl.Worker("spardl", 5000, rank, 2) for rank in range(2)]
    expected = [spardl.Worker("spardl", 5000, rank, 2) for rank in range(2)]
    plain = [value.copy() for value in values]
    spardl.allreduce(plain, workers=expected)

    out = [np.empty(5000, np.float32) for _ in range(2)]
    spardl.allreduce(arrays, workers=workers, out=out)
    assert np.array_equal(out[0], plain[0]) and np.array_equal(out[1], plain[1])
    assert all(np.array_equal(np.asarray(array), value) for array, value in zip(arrays, values)), "arrays stay as they were"


class Lent:
    """Passes on what an array lends, and keeps where it is."""

    def __init__(self, array: Any) -> None:
        self.array, self.addresses = array, []

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.array.__dlpack__(**options)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # The tensor comes first without a version; with one after its version, two pointers and the flags.
        versioned = "versioned" in repr(capsule)
        place = pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor") + (32 if versioned else 0)
        self.addresses.append(ctypes.c_void_p.from_address(place).value)
        return capsule


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_no_copy_is_made_of_it(dtype: str) -> None:
    import jax.numpy as jnp

    lent = Lent(jnp.arange(64, dtype=dtype))
    worker = spardl.Worker("spardl", 64, density=1.0)
    worker.begin(lent)
    out = np.empty(64, np.float32)
    worker.write(out)
    assert lent.addresses == [lent.array.unsafe_buffer_pointer()]
    assert out.tolist() == list(range(64))


def test_an_array_of_jax_is_never_written() -> None:
    import jax.numpy as jnp

    array = jnp.ones(100)
    worker = spardl.Worker("spardl", 100)
    worker.begin(array)
    with pytest.raises(spardl.ConfigError, match="read-only"):
        worker.write(array)
    assert float(array.sum()) == 100.0
