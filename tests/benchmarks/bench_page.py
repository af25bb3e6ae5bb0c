"""Time to write the page about a study, and its size, for pages with more and more figures.

    python tests/benchmarks/bench_page.py [FOLDER | --smallest]

With a folder of ``dpstudies run all``, the page about the folder is written instead; it should take at most 15 s on two
idle cores and have at most 6 MB. CPU time is printed next to the wall time, which other programs affect.
"""

import sys
import tempfile
import time
from pathlib import Path

import pipeline
from studies import STUDIES
from studies.folders import configure
from studies.report import write_collection, write_report

NAMES = ("gibbs-traces", "hellinger-limits", "privacy-audit", "renyi-utility")


def measure(label: str, page: Path, write) -> None:
    """Write a page, and print its times and size."""
    wall, cpu = time.perf_counter(), time.process_time()
    write(page)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{label}: {wall:.1f} s, {cpu:.1f} s of CPU, {page.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Print one line per page."""
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        if arguments and arguments != ["--smallest"]:
            measure(arguments[0], page, lambda page: write_collection(arguments[0], page))
            return
        for name in NAMES[:1] if arguments else NAMES:
            how = configure(STUDIES[name], "quick")
            store = pipeline.run(STUDIES[name], Path(folder, f"{name}.zarr"), progress=False, **how)
            study = STUDIES[name].configure(**how)
            label = f"{name}, {len(study.figures)} figures"
            measure(label, page, lambda page, store=store, study=study: write_report(store, study, page))


if __name__ == "__main__":
    main()
