"""Division of panels into blocks."""

from collections import deque
from collections.abc import Iterator

from pipeline.blocks.evaluate import Block
from pipeline.declare.panel import Panel


def iterate_blocks(panel: Panel) -> Iterator[Block]:
    """Yield the blocks of a panel, from the last cell, which tends to be the most expensive, to the first."""
    for cell in reversed(range(len(panel.cells()))):
        yield from iterate_cell_blocks(panel, cell)


def iterate_cell_blocks(panel: Panel, cell: int) -> Iterator[Block]:
    """Yield the blocks of a cell in order."""
    return (block_at(panel, cell, number) for number in range(panel.n_blocks))


def block_at(panel: Panel, cell: int, number: int) -> Block:
    """Return a block of a cell by its number, from 0."""
    start = number * panel.block_trials
    return Block(panel.name, cell, range(start, min(start + panel.block_trials, panel.n_trials)))


def spread_out(n_cells: int, most: int | None = None) -> list[int]:
    """Return an order of the cells whose first entries are spread out: both ends, then midpoints of the gaps."""
    order = [0, n_cells - 1] if n_cells > 1 else [0]
    gaps = deque([(0, n_cells - 1)])
    while gaps and (most is None or len(order) < most):
        low, high = gaps.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            gaps.extend([(low, middle), (middle, high)])
    return order
