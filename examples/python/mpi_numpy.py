"""NumPy arrays over MPI: a worker says what to exchange, mpi4py moves it.

    mpiexec -n 4 python examples/python/mpi_numpy.py
"""

import numpy as np
from mpi4py import MPI

import spardl

world = MPI.COMM_WORLD
rank, size, n = world.rank, world.size, 100_000


class Receive:
    """A receive under way: the message may be shorter than the room for it."""

    def __init__(self, source: int, max_bytes: int) -> None:
        self.message = spardl.Message(max_bytes)
        self.request = world.Irecv([self.message, MPI.BYTE], source)

    def wait(self) -> spardl.Message:
        self.request.Wait()
        return self.message


class Send:
    """A send under way; keeps the message until it is gone."""

    def __init__(self, target: int, message: spardl.Message) -> None:
        self.message = message
        self.request = world.Isend([message, MPI.BYTE], target)

    def wait(self) -> None:
        self.request.Wait()


worker = spardl.Worker("spardl", n, rank, size, density=0.01)
for step in range(5):
    gradient = np.random.default_rng((step, rank)).standard_normal(n, dtype=np.float32)
    outcome = spardl.drive(worker, Send, Receive, gradient)
    worker.write(gradient)  # the mean over workers, zeros where nothing was delivered
    worker.commit()
    updates = world.gather(gradient.tobytes())
    if updates is not None:
        same = all(update == updates[0] for update in updates)
        stats = worker.stats()
        print(f"step {step}: {outcome}, {stats['nnz']} entries, {stats['bytes_sent']} bytes sent, agreed: {same}")
