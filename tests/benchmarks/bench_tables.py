"""Cost of dividing a table of 10⁸ rows × 3 columns into 1,000 partitions, relative to the cost of reading the table.

Run with ``python tests/benchmarks/bench_tables.py [ROWS | --smallest]``. A table of normal variables is written to a
temporary folder in chunks of a million rows (2.4 GB, which compression reduces by a twentieth), with Zarr's default
compression and with a fast one. Two worker processes with one thread each read it through Dask, in alternating rounds
with and without the division, so that drifts of the machine's speed affect both; the result is the median of the
ratios. The file is in the page cache, so that reading is fast and the relative cost of the division is largest.
"""

import functools
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import zarr
from measuring import SMALLEST

from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_prior import FlatPrior
from mechanisms.regression.posterior import coefficient_posterior
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import Profile
from pipeline.tables.tables import open_table, reduce_rows
from studies.own_data.divided_rows import divide_rows

CHUNK, PARTITIONS, ROUNDS = (1_000, 100, 1) if SMALLEST else (1_000_000, 1_000, 3)
TWO_WORKERS = Profile("bench", kwargs={"processes": not SMALLEST, "n_workers": 2, "threads_per_worker": 1})
COMPRESSORS = {"lz4": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")}
if not SMALLEST:
    COMPRESSORS = {"zstd (Zarr's default)": "auto", **COMPRESSORS}


def write_table(path: Path, n_rows: int, compressor) -> float:
    """Write a table with normal columns a and b and y = 1 + 2a − b + normal noise; return its size on disk in GB."""
    array = zarr.create_array(
        path,
        shape=(n_rows, 3),
        chunks=(CHUNK, 3),
        dtype="f8",
        compressors=compressor,
        attributes={"columns": list("aby")},
    )

    def write(start: int) -> None:
        rows = np.random.default_rng(start).standard_normal((min(CHUNK, n_rows - start), 3))
        rows[:, 2] += 1 + rows[:, :2] @ [2.0, -1.0]
        array[start : start + len(rows)] = rows

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(0, n_rows, CHUNK)))
    return array.nbytes_stored() / 1e9


def count_rows(first: int, block: np.ndarray) -> int:
    return len(block)


def peak_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1000 for line in lines if line.startswith("VmHWM"))


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def compare_with_reading(rounds, read, n_rows, work, name):
    """Print the times of alternating rounds of reading and of work that reads; return their ratios and the result."""
    ratios = []
    for _ in range(rounds):
        (reading, n_read), (working, found) = timed(read), timed(work)
        assert n_read == n_rows
        ratios.append(working / reading)
        print(f"  read {reading:.2f} s, read and {name} {working:.2f} s: {ratios[-1]:.2f} times")
    return ratios, found


def main() -> None:
    sizes = [word for word in sys.argv[1:] if word != "--smallest"]
    n_rows = int(float(sizes[0])) if sizes else 100 * CHUNK
    partition = keyed_partition(np.random.default_rng(1), n_rows, PARTITIONS)
    for name, compressor in COMPRESSORS.items():
        with tempfile.TemporaryDirectory() as folder:
            free = shutil.disk_usage(folder).free
            if free < 30 * n_rows:
                sys.exit(f"{30 * n_rows / 1e9:.1f} GB of disk are needed at {folder}, {free / 1e9:.1f} GB are free")
            size = write_table(Path(folder) / "t.zarr", n_rows, compressor)
            print(f"{name}: {n_rows:,} rows x 3 columns, {24 * n_rows / 1e9:.2f} GB, {size:.2f} GB on disk")
            with connect(TWO_WORKERS) as client:
                rows = open_table(f"{folder}/t.zarr", "y", ["a", "b"]).rows
                read = functools.partial(reduce_rows, [rows], count_rows, sum, client)
                divide = functools.partial(divide_rows, [rows], partition, cluster=client)
                # Let the workers import all modules before the measured calls.
                reduce_rows([rows[: 2 * CHUNK]], count_rows, sum, cluster=client)
                divide_rows(
                    [rows[: 4 * CHUNK]], keyed_partition(np.random.default_rng(1), 4 * CHUNK, 1000), cluster=client
                )
                idle = client.run(peak_memory)
                ratios, found = compare_with_reading(ROUNDS, read, n_rows, divide, "divide")
                peaks = client.run(peak_memory)
        assert found.n_rows.sum() == n_rows
        assert np.ptp(found.n_rows) <= 1  # partitions of n rows differ by at most one row
        slope = coefficient_posterior(found.pool(), 1, FlatPrior()).mean().item()
        print(f"  read and divide / read: {statistics.median(ratios):.2f} (target: <= 2); slope {slope:.5f} (true: 2)")
        shown = ", ".join(f"{peaks[worker]} MB ({idle[worker]} after the first blocks)" for worker in peaks)
        print(f"  peak memory of each worker: {shown} (target: < 1000)")


if __name__ == "__main__":
    main()
