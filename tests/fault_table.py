"""Markdown table of the outcomes of injected faults.

``python -m tests.fault_table`` injects all faults, or those named; ``--soak 300 --seed 1`` injects 300 random faults
into one study instead. The exit code is 1 if an outcome is wrong.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.pipeline.faults.harness import NotPossibleError
from tests.pipeline.faults.scenarios import SCENARIOS
from tests.pipeline.faults.soak import soak
from tests.pipeline.faults.study import Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_table", description=__doc__.partition("\n")[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(SCENARIOS))
    parser.add_argument("--soak", type=int, metavar="N", help="inject N random faults")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random faults")
    given = parser.parse_args()
    os.environ.setdefault("DPSTUDIES_HOME", tempfile.mkdtemp(prefix="dpstudies-faults-"))
    if unknown := set(given.faults) - set(SCENARIOS):
        parser.error(f"unknown fault: {', '.join(unknown)}; allowed: {', '.join(SCENARIOS)}")
    if given.soak is not None:
        return _print_table({"soak": lambda folder: soak(folder, given.soak, given.seed)})
    return _print_table({name: SCENARIOS[name] for name in given.faults or SCENARIOS})


def _print_table(scenarios: dict[str, Callable[[Path], Outcome]]) -> int:
    print("| fault | what the user sees | in the store afterwards | right | seconds |\n|---|---|---|---|---|")
    n_wrong = 0
    for name, scenario in scenarios.items():
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = scenario(Path(folder))
            except NotPossibleError as reason:
                outcome = Outcome(name, "", f"not possible here: {reason}", True)
            except TimeoutError as error:
                outcome = Outcome(name, " ".join(str(error).split()), "unknown", False)
            seen = outcome.seen.replace(f"{folder}/", "").replace("|", "/")
        n_wrong += not outcome.right
        right = "yes" if outcome.right else "**no**"
        print(
            f"| {outcome.fault} | {seen} | {outcome.state} | {right} | {time.monotonic() - started:.0f} |", flush=True
        )
    return min(n_wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
