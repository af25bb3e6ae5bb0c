"""Budgets of a run: limits on failing trials and on tasks that cannot be committed."""

from collections import Counter
from collections.abc import Collection

from pipeline.blocks.evaluate import BUDGET
from pipeline.declare.study import Study
from pipeline.execution.in_flight import ExecutionError
from pipeline.execution.tasks import DATA
from pipeline.execution.work import Receipt, Work

_MOST_ENDS = 10  # trials of a setting that terminate their worker, if no trial returns
_MOST_FAILED_TASKS = 10  # consecutive tasks that exhaust their retries


class BudgetError(ExecutionError):
    """Error for a setting that fails on all trials; computed trials are stored, the others remain pending."""


class Budget:
    """Failures of settings without a successful trial in this run.

    Parameters
    ----------
    study : Study
        The configured study.
    lifted : bool
        True to compute every trial, regardless of failures.
    """

    def __init__(self, study: Study, lifted: bool = False) -> None:
        self._study, self._lifted = study, lifted
        self._succeeded: set[tuple[str, int]] = set()
        self._n_failed: Counter[tuple[str, int]] = Counter()
        self._n_ends: Counter[tuple[str, int]] = Counter()

    @property
    def of_block(self) -> int | None:
        """Budget of one block for `pipeline.blocks.evaluate.evaluate_block`, or None for no limit."""
        return None if self._lifted else BUDGET

    def note_receipt(self, receipt: Receipt) -> tuple[int, ...]:
        """Record the trials of a receipt; return the settings to recompute without a budget.

        Raises
        ------
        BudgetError
            If a setting has used up its budget and no trial was ok.
        """
        panel, again = receipt.work.block.panel, []
        for k, tally in zip(receipt.work.settings, receipt.tallies, strict=True):
            place = panel, k
            if tally.n_ok:
                self._succeeded.add(place)
                self._succeeded.add((panel, DATA))
            self._n_failed[place] += tally.n_failed
            if self._lifted:
                continue
            if place in self._succeeded:
                again += [k] if tally.n_pending else []
            elif self._n_failed[place] >= BUDGET:
                cause = f" ({tally.cause})" if tally.cause else ""
                self._stop(place, f"failed on all {self._n_failed[place]:,} computed trials{cause}")
        return tuple(again)

    def note_survival(self, panel: str, setting: int) -> None:
        """Record that a trial of a setting, or of the simulation, did not terminate its worker."""
        self._succeeded.add((panel, setting))

    def note_end(self, panel: str, setting: int) -> None:
        """Record that a trial terminated its worker or exceeded the time limit.

        Raises
        ------
        BudgetError
            If no trial of the setting has succeeded and the number of such trials reaches the budget.
        """
        place = panel, setting
        self._n_ends[place] += 1
        if self._n_ends[place] >= _MOST_ENDS and place not in self._succeeded and not self._lifted:
            self._stop(place, f"terminated its worker or exceeded the time limit on all {_MOST_ENDS} computed trials")

    def _stop(self, place: tuple[str, int], text: str) -> None:
        name, k = place
        what = "the simulation" if k == DATA else f"method {self._study.panel(name).settings()[k].label}"
        raise BudgetError(
            f"{what} of panel {name} {text}: the run stops; correct or omit it, or compute every trial "
            "with --allow-failures"
        )


class UnfinishedWork:
    """Work items that remain pending after this run, counted by reason."""

    def __init__(self) -> None:
        self._n_blocks: Counter[str] = Counter()
        self._n_in_a_row = 0

    def add(self, works: Collection[Work], reason: str) -> None:
        """Record work items that remain pending."""
        self._n_blocks[reason] += len(works)

    def note_task(self, transient: str) -> None:
        """Record the transient error of a task; an empty string means no error.

        Raises
        ------
        ExecutionError
            If many consecutive tasks failed transiently, which indicates that the store is unavailable.
        """
        self._n_in_a_row = self._n_in_a_row + 1 if transient else 0
        if self._n_in_a_row >= _MOST_FAILED_TASKS:
            raise ExecutionError(
                f"{self._n_in_a_row} consecutive tasks failed, each after several attempts: {transient}"
            )

    def raise_if_any(self) -> None:
        """Raise an `ExecutionError` with the most common reason if any work remains pending."""
        if not self._n_blocks:
            return
        (reason, _), *others = self._n_blocks.most_common()
        more = f", and {len(others)} more reasons" if others else ""
        raise ExecutionError(f"{self._n_blocks.total():,} blocks remain pending: {reason}{more}")
