"""Workers in one process, driven by hand: no torch, no processes."""

import numpy as np
import pytest

import spardl

pytestmark = pytest.mark.light


def gradients(size: int, n: int, seed: int = 0) -> list[np.ndarray]:
    """Whole numbers, so that sums are exact."""
    generators = [np.random.default_rng((seed, rank)) for rank in range(size)]
    return [g.integers(-50, 50, n).astype(np.float32) for g in generators]


def residual(worker: spardl.Worker) -> np.ndarray:
    out = np.zeros(worker.n, np.float32)
    if worker.keeps_residual:
        worker.read_residual(out)
    return out


@pytest.mark.parametrize("method", sorted(spardl.methods()))
def test_every_method_agrees_bit_for_bit(method: str) -> None:
    size, n = 3, 1000
    workers = [spardl.Worker(method, n, rank, size, density=0.05) for rank in range(size)]
    for step in range(4):
        arrays = gradients(size, n, step)
        assert spardl.allreduce(arrays, workers=workers) == "updated"
        assert all(np.array_equal(arrays[0], other) for other in arrays[1:])


@pytest.mark.parametrize("method", ["spardl", "ok-topk", "exdyna", "topk-a", "spardl-bf16"])
def test_nothing_is_lost(method: str) -> None:
    size, n = 4, 2000
    workers = [spardl.Worker(method, n, rank, size) for rank in range(size)]
    for step in range(5):
        arrays = gradients(size, n, step)
        before = sum(arrays) + sum(residual(worker) for worker in workers)
        spardl.allreduce(arrays, workers=workers, op="sum")
        after = arrays[0] + sum(residual(worker) for worker in workers)
        assert np.array_equal(before, after)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 300])
def test_density_one_is_the_mean_for_any_number_of_workers_and_any_length(size: int, n: int) -> None:
    arrays = gradients(size, n)
    mean = sum(arrays) / np.float32(size)
    spardl.allreduce(arrays, density=1.0)
    assert np.allclose(arrays[0], mean, rtol=1e-6)


def test_several_arrays_are_one_gradient() -> None:
    whole = gradients(2, 100)
    parts = [[g[:30].copy(), g[30:31].copy(), g[31:].copy().reshape(3, 23)] for g in whole]
    spardl.allreduce(whole, density=0.1)
    spardl.allreduce(parts, density=0.1)
    assert np.array_equal(np.concatenate([p.ravel() for p in parts[1]]), whole[0])


def test_sum_and_mean_differ_by_the_number_of_workers() -> None:
    mean, total = gradients(4, 100), gradients(4, 100)
    spardl.allreduce(mean, density=0.2)
    spardl.allreduce(total, density=0.2, op="sum")
    assert np.array_equal(mean[0] * 4, total[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_skips_the_step_on_all_workers(bad: float) -> None:
    workers = [spardl.Worker("spardl", 100, rank, 3, density=0.1) for rank in range(3)]
    spardl.allreduce(gradients(3, 100), workers=workers)
    before = [residual(worker) for worker in workers]
    arrays = gradients(3, 100, 1)
    arrays[1][7] = bad
    assert spardl.allreduce(arrays, workers=workers).startswith("skipped: ")
    assert {worker.outcome for worker in workers} == {workers[0].outcome}
    assert all(np.array_equal(a, residual(b)) for a, b in zip(before, workers))


def test_abort_leaves_everything_as_it_was() -> None:
    alone = spardl.Worker("spardl", 50, density=0.1)
    alone.begin(gradients(1, 50)[0])
    alone.abort()
    assert alone.step == 0 and not residual(alone).any()


def test_a_scale_is_applied_on_the_way_in() -> None:
    plain, scaled = gradients(2, 64), gradients(2, 64)
    one = [spardl.Worker("spardl", 64, rank, 2, density=0.1) for rank in range(2)]
    two = [spardl.Worker("spardl", 64, rank, 2, density=0.1) for rank in range(2)]
    rounds = [worker.begin(array * 4, scale=0.25) for worker, array in zip(two, scaled)]
    while rounds[0] is not None:
        sent = [dict(r.sends) for r in rounds]
        inboxes = [[sent[source][rank] for source, _ in r.receives] for rank, r in enumerate(rounds)]
        rounds = [worker.resume(inbox) for worker, inbox in zip(two, inboxes)]
    two[0].write(scaled[0])
    spardl.allreduce(plain, workers=one)
    assert np.array_equal(plain[0], scaled[0])


def test_the_residual_is_read_and_written_by_range() -> None:
    worker = spardl.Worker("spardl", 10)
    worker.write_residual(np.arange(4, dtype=np.float32), 3)
    worker.write_residual(np.ones(2, np.float32), 5, add=True)
    assert residual(worker).tolist() == [0, 0, 0, 0, 1, 3, 4, 0, 0, 0]
    assert worker.residual_norm == pytest.approx(26**0.5)
    with pytest.raises(spardl.ConfigError, match="outside a residual of 10 elements"):
        worker.read_residual(np.zeros(5, np.float32), 6)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 37, 1000])
def test_the_norm_of_the_residual_is_that_of_all_its_elements(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n).astype(np.float32)
    worker = spardl.Worker("spardl", n)
    worker.write_residual(values)
    assert worker.residual_norm == pytest.approx(float(np.linalg.norm(values.astype(np.float64))))


@pytest.mark.parametrize("method", ["spardl", "ok-topk", "exdyna", "gaussian-k"])
def test_a_saved_state_goes_on_bit_for_bit(method: str) -> None:
    def fresh() -> list[spardl.Worker]:
        return [spardl.Worker(method, 500, rank, 3, density=0.05) for rank in range(3)]

    workers = fresh()
    for step in range(3):
        spardl.allreduce(gradients(3, 500, step), workers=workers)
    copies = fresh()
    for worker, copy in zip(workers, copies):
        copy.write_residual(residual(worker))
        copy.set_method_state(worker.method_state())
        copy.step = worker.step
    for step in range(3, 6):
        one, two = gradients(3, 500, step), gradients(3, 500, step)
        spardl.allreduce(one, workers=workers)
        spardl.allreduce(two, workers=copies)
        assert np.array_equal(one[0], two[0])


@pytest.mark.parametrize("method", ["spardl", "spardl-q4", "exdyna", "ok-topk", "power-sgd", "dense"])
def test_a_worker_goes_on_bit_for_bit_from_its_bytes(method: str) -> None:
    def make() -> list[spardl.Worker]:
        return [spardl.Worker(method, 999, rank, 3, density=0.05) for rank in range(3)]

    old, new = make(), make()
    for step in range(4):
        spardl.allreduce(gradients(3, 999, step), workers=old)
    for one, other in zip(old, new):
        other.load_bytes(one.to_bytes())
        assert other.step == 4 and other.to_bytes() == one.to_bytes()
    for step in range(4, 7):
        mine, theirs = gradients(3, 999, step), gradients(3, 999, step)
        spardl.allreduce(mine, workers=old)
        spardl.allreduce(theirs, workers=new)
        assert all(np.array_equal(a, b) for a, b in zip(mine, theirs))


@pytest.mark.parametrize("value_type", ["f32", "bf16", "q8", "q4", "q2", "q1"])
def test_a_value_type_is_a_keyword_or_part_of_the_name_and_loses_nothing(value_type: str) -> None:
    by_keyword = [spardl.Worker("spardl", 3000, rank, 3, density=0.05, value_type=value_type) for rank in range(3)]
    by_name = [spardl.Worker(f"spardl-{value_type}", 3000, rank, 3, density=0.05) for rank in range(3)]
    came, went = np.zeros(3000), np.zeros(3000)
    for step in range(5):
        one, two = gradients(3, 3000, step), gradients(3, 3000, step)
        came += np.sum(one, axis=0)
        spardl.allreduce(one, workers=by_keyword, op="sum")
        spardl.allreduce(two, workers=by_name, op="sum")
        assert np.array_equal(one[0], two[0])
        went += one[0]
    held = np.sum([residual(worker).astype(np.float64) for worker in by_name], axis=0)
    assert np.allclose(came, went + held, atol=1e-3)


def test_bytes_of_another_worker_or_damaged_ones_are_refused() -> None:
    saved = spardl.Worker("spardl", 100).to_bytes()
    with pytest.raises(spardl.ConfigError, match="expected `spardl .*` with \\[99\\]"):
        spardl.Worker("spardl", 99).load_bytes(saved)
    with pytest.raises(spardl.ConfigError, match="expected `topk-a"):
        spardl.Worker("topk-a", 100).load_bytes(saved)
    for length in range(0, len(saved), 7):
        with pytest.raises(spardl.ConfigError, match="not a saved state"):
            spardl.Worker("spardl", 100).load_bytes(saved[:length])


def test_drive_runs_a_step_over_any_pair_of_functions() -> None:
    class Done:
        def __init__(self, value: object = None) -> None:
            self.value = value

        def wait(self) -> object:
            return self.value

    worker = spardl.Worker("spardl", 30, density=0.1)
    array = gradients(1, 30)[0]
    outcome = spardl.drive(worker, lambda to, m: Done(), lambda source, n: Done(b""), array)
    assert outcome == "updated" and worker.stats()["bytes_sent"] == 0
    worker.commit()
    assert worker.step == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: spardl.Worker("spardle", 3), "unknown method 'spardle': did you mean 'spardl'? There are spardl, "),
        (lambda: spardl.Worker("spardl", 3, 2, 2), "rank 2 is not in a world of 2 workers"),
        (lambda: spardl.Worker("spardl", 3, density=2.0), "density 2 is not a number from 0 to 1"),
        (lambda: spardl.Worker("spardl", 3, options={"teams": "x"}), "option teams = 'x'"),
        (lambda: spardl.Worker("spardl", 3, 0, 4, options={"teams": "3"}), "do not divide 4 workers"),
        (lambda: spardl.Worker("spardl", 3, value_type="f8"), "unknown value type 'f8'"),
        (lambda: spardl.Worker("spardl", 3).begin(np.zeros(4, np.float32)), "has 4 elements"),
        (lambda: spardl.Worker("spardl", 3).write(np.zeros(4, np.float32)), "have 4 elements"),
        (lambda: spardl.Worker("spardl", 3).begin(np.zeros(3)), "expected float32"),
        (lambda: spardl.Worker("spardl", 3).begin(np.zeros(6, np.float32)[::2]), "a strided array"),
        (lambda: spardl.Worker("spardl", 3).commit(), "commit was called while"),
        (lambda: spardl.allreduce([], workers=[spardl.Worker("spardl", 3)]), "expected the workers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call: object, words: str) -> None:
    with pytest.raises(spardl.ConfigError) as error:
        call()
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_damaged_message_is_an_error_that_names_the_sender() -> None:
    worker = spardl.Worker("spardl", 100, 0, 2, density=0.1)
    round = worker.begin(gradients(1, 100)[0])
    with pytest.raises(spardl.ProtocolError, match="rank 1"):
        worker.resume([b"\0" * 64 for _ in round.receives])
    with pytest.raises(spardl.ProtocolError, match="call abort"):
        worker.resume([])
    worker.abort()
    assert worker.begin(gradients(1, 100)[0]) is not None


def test_messages_have_the_buffer_protocol() -> None:
    round = spardl.Worker("topk-a", 100, 0, 2, density=0.1).begin(gradients(1, 100)[0])
    message = round.sends[0][1]
    assert len(bytes(message)) == len(message) == memoryview(message).nbytes > 0


def test_methods_explain_themselves() -> None:
    for name, summary in spardl.methods().items():
        assert summary and "Rounds:" in spardl.explain(name)
    assert "teams" in spardl.explain("spardl")


def test_costs_are_bounds() -> None:
    cost = spardl.cost("spardl", 10_000, 4)
    workers = [spardl.Worker("spardl", 10_000, rank, 4) for rank in range(4)]
    spardl.allreduce(gradients(4, 10_000), workers=workers)
    for worker in workers:
        stats = worker.stats()
        assert cost["rounds_min"] <= stats["rounds"] <= cost["rounds_max"]
        assert stats["bytes_sent"] <= cost["bytes_max"] < cost["dense_bytes"]


def test_the_bits_are_the_same_for_any_number_of_threads() -> None:
    results = []
    for threads in (1, 2, 3):
        workers = [spardl.Worker("spardl", 1_000_000, rank, 2, threads=threads) for rank in range(2)]
        arrays = gradients(2, 1_000_000)
        spardl.allreduce(arrays, workers=workers)
        results.append((arrays[0], residual(workers[0])))
    for update, left in results[1:]:
        assert np.array_equal(update, results[0][0]) and np.array_equal(left, results[0][1])


@pytest.mark.parametrize("density", [0.0, 0.01])
def test_a_bucket_that_is_not_empty_has_an_entry_in_every_step(density: float) -> None:
    """The rule of the library: none starves."""
    workers = [spardl.Worker("topk-a", 50, rank, 2, density=density) for rank in range(2)]
    arrays = [np.arange(50, dtype=np.float32) for _ in range(2)]
    spardl.allreduce(arrays, workers=workers)
    assert arrays[0][49] == 49.0 and np.count_nonzero(arrays[0]) == 1
