"""Budgets of a run: limits on failing trials and on tasks that cannot be committed."""

from collections import Counter
from collections.abc import Collection

from pipeline.blocks.evaluate import BUDGET, ENDED_COST, Block
from pipeline.declare.study import Study
from pipeline.errors import ExecutionError
from pipeline.execution.work import Receipt, Work

_FEWEST_TRIALS = 10  # minimum length of a block whose failure stops the run; a shorter block may fail by chance
_MOST_FAILED_TASKS = 10  # number of consecutive tasks that exhaust their retries before a run stops


class Budget:
    """Counts of failures in this run, and limits for settings under which no trial has succeeded."""

    def __init__(self, study: Study, lifted: bool = False) -> None:
        self._study, self._lifted = study, lifted
        # number of failed trials after which `evaluate_block` skips the rest of a block
        self.of_block = None if lifted else BUDGET
        self._succeeded: set[tuple[str, int]] = set()
        self._n_failed: Counter[tuple[str, int]] = Counter()
        self._spent: Counter[tuple[str, int]] = Counter()
        self._failed: dict[Block, set[int]] = {}

    def note_receipt(self, receipt: Receipt) -> tuple[int, ...]:
        """Record the trials of a receipt; return the settings to recompute without a budget."""
        panel, again = receipt.work.block.panel, []
        for k, tally in zip(receipt.work.settings, receipt.tallies, strict=True):
            place = panel, k
            if tally.n_ok:
                self._succeeded.add(place)
            self._n_failed[place] += tally.n_failed
            self._spent[place] += tally.n_failed + (ENDED_COST - 1) * tally.n_ended
            if self._lifted:
                continue
            if place in self._succeeded:
                again += [k] if tally.n_pending else []
            elif self._spent[place] >= BUDGET:
                cause = f" ({tally.cause})" if tally.cause else ""
                self._stop(place, f"failed on all {self._n_failed[place]:,} computed trials{cause}")
        is_long = len(receipt.work.block.trials) >= _FEWEST_TRIALS
        if is_long and not self._lifted and panel not in {name for name, _ in self._succeeded}:
            self._note_failed_block(receipt)
        return tuple(again)

    def _note_failed_block(self, receipt: Receipt) -> None:
        """Record a failed block; raise `ExecutionError` when all its trials have failed under each setting."""
        block = receipt.work.block
        failed = self._failed.setdefault(block, set())
        failed.update(receipt.work.settings)
        causes = [tally.cause for tally in receipt.tallies if tally.n_failed]
        if causes and len(failed) == len(self._study.panel(block.panel).settings()):
            raise ExecutionError(
                f"every trial of the first block of panel {block.panel} failed ({causes[0]}): the run stops; correct "
                "the study, or compute every trial with --allow-failures"
            )

    def _stop(self, place: tuple[str, int], text: str) -> None:
        name, k = place
        label = self._study.panel(name).settings()[k].label
        raise ExecutionError(
            f"method {label} of panel {name} {text}: the run stops; correct or omit it, or compute every trial with "
            "--allow-failures"
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
        """Record the transient error of a task; an empty string means no error."""
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
