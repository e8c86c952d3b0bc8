"""The codec by itself: chunked top-k with error feedback, packed to bytes."""

import numpy as np
import pytest

import spardl

pytestmark = pytest.mark.light


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 32767, 32768, 65535, 65537])
@pytest.mark.parametrize("value_type", ["f32", "bf16", "q8", "q4", "q2", "q1"])
def test_what_is_packed_and_what_is_left_make_the_gradient(n: int, value_type: str) -> None:
    gradient = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    residual, out = np.zeros(n, np.float32), np.full(n, 9.0, np.float32)
    payload = spardl.encode(gradient, residual, density=0.1, chunk=64, value_type=value_type)
    count = spardl.decode(payload, out)
    assert count == np.count_nonzero(out)
    exact = value_type in ("f32", "bf16")
    assert np.array_equal(out + residual, gradient) if exact else np.allclose(out + residual, gradient, atol=1e-6)


def test_every_chunk_sends_its_largest() -> None:
    gradient = np.arange(1, 101, dtype=np.float32)
    out = np.zeros_like(gradient)
    assert spardl.decode(spardl.encode(gradient, density=0.2, chunk=10), out) == 20
    assert np.flatnonzero(out).tolist() == [c + i for c in range(0, 100, 10) for i in (8, 9)]


def test_the_residual_goes_out_later() -> None:
    gradient, residual = np.ones(100, np.float32), np.zeros(100, np.float32)
    total = np.zeros(100, np.float32)
    for _ in range(20):
        spardl.decode(spardl.encode(gradient, residual, density=0.1, chunk=50), total, add=True)
    assert np.array_equal(total + residual, gradient * 20)
    assert total.min() > 0


def test_ties_go_to_the_lower_index() -> None:
    out = np.zeros(8, np.float32)
    spardl.decode(spardl.encode(np.full(8, -3.0, np.float32), density=0.5, chunk=8), out, scale=2.0)
    assert out.tolist() == [-6.0] * 4 + [0.0] * 4


@pytest.mark.parametrize("payload", [b"", b"\1\0", b"\2\0\4\0\0\0", b"\1\0\4\0\0\0\xff\xff\xff\xff\0"])
def test_a_damaged_payload_is_an_error(payload: bytes) -> None:
    with pytest.raises(spardl.ProtocolError, match="the payload is damaged"):
        spardl.decode(payload, np.zeros(4, np.float32))


def test_every_truncation_of_a_payload_is_an_error() -> None:
    gradient = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    payload = bytes(spardl.encode(gradient, density=0.1, chunk=100))
    for length in range(len(payload)):
        with pytest.raises(spardl.SpardlError):
            spardl.decode(payload[:length], np.zeros(300, np.float32))


def test_what_cannot_be_is_refused() -> None:
    array = np.zeros(4, np.float32)
    with pytest.raises(spardl.ConfigError, match="expected 4"):
        spardl.encode(array, np.zeros(3, np.float32))
    with pytest.raises(spardl.ConfigError, match="NaN or an infinity"):
        spardl.encode(np.full(4, np.nan, np.float32), array)
    with pytest.raises(spardl.ConfigError, match="at least one element"):
        spardl.encode(array, chunk=0)
    with pytest.raises(spardl.ConfigError, match="array of 4 elements, expected 5"):
        spardl.decode(spardl.encode(array), np.zeros(5, np.float32))
    array.flags.writeable = False
    with pytest.raises((spardl.ConfigError, BufferError), match="(?i)read.?only"):
        spardl.encode(np.zeros(4, np.float32), array)
