"""Check that the metadata of a root describe the arrays of its spec, and nothing else.

A store may come from somebody else. Zarr and this package read, write and remove files under the paths in the metadata,
allocate memory for the shapes, and load the codecs, so that each of them must follow from the spec.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipeline.declare.factors import Measure, require_integer, require_name, require_text
from pipeline.declare.panel import MAX_BLOCKS, MAX_TRIALS, require_block_size
from pipeline.errors import BadInputError
from pipeline.redact import short_repr

_ROLES = ("factors", "method_factors", "outputs", "constants")
_SHARDS = ("sharding_indexed",)
_NUMBERS, _TEXTS = ("bytes", "zstd", "crc32c"), ("vlen-utf8", "zstd", "crc32c")
_OF_TRIALS = ("bytes", "blosc", "crc32c")
_KEYS = ({"name": "default"}, {"name": "default", "configuration": {"separator": "/"}})
_COORDINATES = ("int64", "float64", "string")
_MOST_PER_CHUNK = 2**20  # values of a coordinate
_Array = tuple[str, list[str], list[int], list[int] | None, tuple[str, ...]]


def refuse_other_layout(url: str, root: Mapping[str, Any]) -> list[str]:
    """Return the folders of all arrays; raise `BadInputError` unless the metadata of a root describe its spec."""
    try:
        spec = json.loads(root["attributes"]["spec"])
        panels = spec["panels"]
        require_text("the name of a study", spec["study"])
        expected: dict[str, list[_Array]] = {name: [] for name in panels}
        for name, spec in panels.items():
            for array in _arrays(name, spec):
                expected.setdefault(array[0], []).append(array)
        metadata = root["consolidated_metadata"]["metadata"]
        wrong = sorted(metadata.keys() ^ expected.keys())
        wrong += [path for path in expected if not wrong and not _is_one_of(metadata[path], expected[path])]
        problem = f"its metadata differ from its spec at {short_repr(wrong[0])}" if wrong else ""
    except BadInputError as error:
        problem = str(error)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError) as error:
        problem = f"its metadata are invalid ({type(error).__name__})"
    if problem:
        raise BadInputError(
            f"the store {url} cannot have been written by this package, since {problem}; compute it again, or obtain "
            "it again from its origin"
        )
    # the chunk of an array without dimensions is a file at this place
    return [f"{path}/c" if arrays[0][1] else path for path, arrays in expected.items() if arrays]


def _arrays(name: str, spec: Mapping[str, Any]) -> Iterator[_Array]:
    """Yield path, dimensions, shape, chunks and possible data types of each array that a panel may have.

    A measure has two alternatives, since the spec does not contain whether it is per trial.
    """
    require_name("the name of a panel", name)
    values = {axis: found for role in _ROLES for axis, found in spec[role].items()}
    for axis in (*values, *spec["dims"], *spec["measures"]):
        require_name(f"a name in panel {name}", axis)
    for text in (*spec["method_order"], *(one for found in values.values() for one in found if isinstance(one, str))):
        require_text(f"a label in panel {name}", text)
    sizes = dict.fromkeys(spec["dims"], len(spec["method_order"])) | {axis: len(one) for axis, one in values.items()}
    trials = {} if spec["trials"] is None else {"trial": require_integer("trials", spec["trials"], 1, MAX_TRIALS)}
    block = require_integer("block_trials", spec["block_trials"], 1, MAX_TRIALS)
    n_blocks = math.prod(sizes[dim] for dim in spec["dims"]) * -(-trials.get("trial", 1) // block)
    require_integer(f"the number of blocks of panel {name}", n_blocks, 1, MAX_BLOCKS)
    for axis in (*spec["dims"], *spec["outputs"]):
        yield f"{name}/{axis}", [axis], [sizes[axis]], None, _COORDINATES
    for axis in spec["constants"]:
        yield f"{name}/{axis}", [], [], None, _COORDINATES
    if trials:
        yield f"{name}/trial", ["trial"], [*trials.values()], None, ("int64",)

    def variable(which: str, outputs: list[str], along: Mapping[str, int], dtype: str) -> _Array:
        dims = [*spec["dims"], *along, *outputs]
        chunks = [*(1 for _ in spec["dims"]), *(block for _ in along), *(sizes[dim] for dim in outputs)]
        return f"{name}/{which}", dims, [(sizes | trials)[dim] for dim in dims], chunks, (dtype,)

    yield variable("error", [], trials, "string")
    yield variable("status", [], trials, "int8")
    measures = {
        key: Measure(key, "", dims=tuple(one["dims"]), dtype=one["dtype"]) for key, one in spec["measures"].items()
    }
    require_block_size(name, block, measures.values(), sizes)
    for key, measure in measures.items():
        for along in (trials, {}):
            yield variable(key, [*measure.dims], along, np.dtype(measure.dtype).name)


def _is_one_of(document: Mapping[str, Any], arrays: list[_Array]) -> bool:
    """Return True for the metadata of one of some arrays or, without arrays, of a group."""
    if (
        not isinstance(document["attributes"], dict)
        or document["zarr_format"] != 3
        or document["node_type"] != ("array" if arrays else "group")
    ):
        return False
    return not arrays or any(_is_of(document, *array) for array in arrays)


def _is_of(
    document: Mapping[str, Any],
    path: str,
    dims: list[str],
    shape: list[int],
    chunks: list[int] | None,
    dtypes: tuple[str, ...],
) -> bool:
    kind, codecs, chunk = (
        document["data_type"],
        document["codecs"],
        document["chunk_grid"]["configuration"]["chunk_shape"],
    )
    if codecs[0]["name"] in _SHARDS:
        outer, inner = chunk, codecs[0]["configuration"]
        codecs, chunk = inner["codecs"], inner["chunk_shape"]
        if len(document["codecs"]) > 1 or any(whole % size for whole, size in zip(outer, chunk, strict=True)):
            return False
    names = tuple(codec["name"] for codec in codecs)
    return (
        kind in dtypes
        and document["shape"] == shape
        and [*(document.get("dimension_names") or ())] == dims
        and (chunk == chunks if chunks is not None else 0 < math.prod(chunk) <= _MOST_PER_CHUNK)
        and names == (_TEXTS if kind == "string" else _OF_TRIALS if path.endswith("/trial") else _NUMBERS)
        and document["chunk_key_encoding"] in _KEYS
        and not document.get("storage_transformers")
    )
