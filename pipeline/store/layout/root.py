"""Root of a store: a file and its copy, each with a checksum that is verified when the store is opened.

The root, ``zarr.json``, contains the spec and the consolidated metadata of all arrays, so a single changed bit
could change the meaning of every number. The root and its copy have the SHA-256 of their content as an attribute.

A store may come from somebody else. Zarr and this package read, write and remove files under the paths in the metadata,
allocate memory for the shapes, and load the codecs, so that each of them must follow from the spec.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.declare.factors import Measure, require_integer, require_name, require_text
from pipeline.declare.panel import MAX_BLOCKS, MAX_TRIALS, require_block_size
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError
from pipeline.redact import short_repr
from pipeline.store.codec.chunk_digests import ChunkDigests
from pipeline.store.codec.missing import FILL, describe_array
from pipeline.store.files.access import Files
from pipeline.store.files.locations import ROOT, STATE

STORE_FORMAT = 9
"""Version of the layout of new stores, increased when earlier versions of this package would misread them."""
COMPACT_FORMATS = {5: 6, 7: 8, STORE_FORMAT: 10}
"""Version of the layout of compact copies, which have shards and can only be read, by that of the original."""
_MARKED_FORMAT = 7  # the first one whose arrays mark missing integers, see `pipeline.store.codec.missing`
_LABELLED_FORMAT = 9  # the first one whose statuses state their cell, see `pipeline.store.codec.chunk_digests`
COPY = f"{STATE}/root.json"
AUDITS = "audits"
"""Attribute of the root, and of the dimension of the methods, with results of audits as JSON."""
_SEAL = "content_sha256"
_ROLES = ("factors", "method_factors", "outputs", "constants")
_NUMBERS, _TEXTS = ("bytes", "zstd", "crc32c"), ("vlen-utf8", "zstd", "crc32c")
_OF_TRIALS = ("bytes", "blosc", "crc32c")
_KEYS = ({"name": "default"}, {"name": "default", "configuration": {"separator": "/"}})
_COORDINATES = ("int64", "float64", "string")
_MOST_PER_CHUNK = 2**20  # values of a coordinate
# path, dimensions, shape, chunks, dtypes, and the mark of missing values
_Array = tuple[str, list[str], list[int], list[int] | None, tuple[str, ...], int | None]
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # escape of half a character


@dataclass(frozen=True)
class Root:
    """Verified root of a store."""

    content: bytes  # in the form that Zarr reads
    is_in_place: bool = True  # False if only the copy exists: the store is being created, or its root was lost
    problem: str = ""  # damage to the root or its copy; empty if both are intact

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group."""
        return json.loads(self.content)["attributes"]


def seal(document: Mapping[str, Any], key: str = "") -> bytes:
    """Return a JSON document as bytes, with the SHA-256 of its content added to it or to its mapping `key`."""
    plain = _without_seal(document, key)
    digest = {_SEAL: sha256(canonical_json(plain))}
    sealed = {**plain, key: {**plain[key], **digest}} if key else {**plain, **digest}
    return json.dumps(sealed, indent=2).encode()


def unseal(content: bytes | None, key: str = "") -> dict[str, Any] | None:
    """Return a sealed document without its checksum, or None if it is missing, was changed, or is not Unicode text."""
    try:
        document = json.loads(content or b"")
        if _SURROGATE.search(content or b""):
            json.dumps(document, ensure_ascii=False).encode()  # raises ValueError for a lone surrogate
        held = document[key] if key else document
        plain = _without_seal(document, key)
        return plain if held[_SEAL] == sha256(canonical_json(plain)) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _without_seal(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    held = document[key] if key else document
    plain = {name: value for name, value in held.items() if name != _SEAL}
    return {**document, key: plain} if key else plain


def seal_root(content: bytes) -> bytes:
    """Return the content of a root, with its checksum added to its attributes."""
    return seal(json.loads(content), "attributes")


def read_root(files: Files) -> Root | None:
    """Read the root of a store and its copy; return None if there is no store yet."""
    stored, copy = files.read(ROOT), files.read(COPY)
    intact, copied = unseal(stored, "attributes"), unseal(copy, "attributes")
    if stored is None and copy is None:
        return None
    if intact is not None:
        assert stored is not None
        state = "missing" if copy is None else "damaged" if copied is None else "another one" if copy != stored else ""
        problem = f"the copy of the root, {COPY}, is {state}" if state else ""
        root = Root(stored, problem=problem)
    elif copied is not None:
        assert copy is not None
        problem = "" if stored is None else f"the root, {ROOT}, is damaged; its copy is intact"
        root = Root(copy, is_in_place=stored is not None, problem=problem)
    else:
        raise BadInputError(_refuse(files.url, stored, copy))
    document = intact or copied
    assert document is not None
    _refuse_other_format(files.url, document["attributes"].get("store_format"))
    files.require_folders(refuse_other_layout(files.url, document))
    return root


def _refuse(url: str, stored: bytes | None, copy: bytes | None) -> str:
    """Return the error message for a location that has neither an intact root nor an intact copy."""
    try:
        attributes = json.loads(stored or b"")["attributes"]
        is_of_format_1 = {"spec", "spec_sha256", "sessions"} <= attributes.keys() and _SEAL not in attributes
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_of_format_1 = False
    if is_of_format_1:
        _refuse_other_format(url, 1)
    if copy is not None or b"store_format" in (stored or b""):
        return (
            f"the root of the store {url} and its copy ({COPY}) are damaged; restore one of the two files from a "
            "backup: no other file was changed"
        )
    return f"{url} exists but is not a result store; choose another path"


def _refuse_other_format(url: str, stated: Any) -> None:
    readable = sorted([*COMPACT_FORMATS, *COMPACT_FORMATS.values()])
    if stated not in readable:
        advice = (
            f"read it with plain xarray, or use dpstudies {'0.1' if stated < 3 else '0.2'} for it, or rerun the study "
            "with another --store path"
            if isinstance(stated, int) and stated < readable[0]
            else "install the version of dpstudies that wrote it, or a later one"
        )
        raise BadInputError(
            f"the store {url} has format {stated}, and this version reads formats {readable[0]} to {readable[-1]}; "
            + advice
        )


def marks_missing(attributes: Mapping[str, Any]) -> bool:
    """Return True for the attributes of a store whose arrays mark missing integers and booleans."""
    return bool(attributes.get("store_format", STORE_FORMAT) >= _MARKED_FORMAT)


def has_labels(attributes: Mapping[str, Any]) -> bool:
    """Return True for the attributes of a store whose statuses have a checksum of the cell and the setting."""
    return bool(attributes.get("store_format", STORE_FORMAT) >= _LABELLED_FORMAT)


def refuse_other_layout(url: str, root: Mapping[str, Any]) -> list[str]:
    """Return the folders of all arrays; raise `BadInputError` unless the metadata of a root describe its spec."""
    try:
        spec = json.loads(root["attributes"]["spec"])
        panels = spec["panels"]
        require_text("the name of a study", spec["study"])
        require_integer("the seed", spec["seed"], 0, 2**63 - 1)
        ChunkDigests.of(spec, is_labelled=has_labels(root["attributes"]))
        for audits in json.loads(root["attributes"].get(AUDITS, "{}")).values():
            for audit in audits.values():
                audit.keys()  # raises AttributeError for another type
        expected: dict[str, list[_Array]] = {name: [] for name in panels}
        for name, spec in panels.items():
            for array in _arrays(name, spec, marks_missing(root["attributes"])):
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


def _arrays(name: str, spec: Mapping[str, Any], is_marked: bool) -> Iterator[_Array]:
    """Yield the layouts of arrays: for a measure, those per trial and per cell."""
    require_name("the name of a panel", name)
    values = {axis: labels for role in _ROLES for axis, labels in spec[role].items()}
    for axis in (*values, *spec["dims"], *spec["measures"]):
        require_name(f"a name in panel {name}", axis)
    for text in (
        *spec["method_order"],
        *(label for labels in values.values() for label in labels if isinstance(label, str)),
    ):
        require_text(f"a label in panel {name}", text)
    sizes = dict.fromkeys(spec["dims"], len(spec["method_order"])) | {
        axis: len(labels) for axis, labels in values.items()
    }
    trials = {} if spec["trials"] is None else {"trial": require_integer("trials", spec["trials"], 1, MAX_TRIALS)}
    block = require_integer("block_trials", spec["block_trials"], 1, MAX_TRIALS)
    n_blocks = math.prod(sizes[dim] for dim in spec["dims"]) * -(-trials.get("trial", 1) // block)
    require_integer(f"the number of blocks of panel {name}", n_blocks, 1, MAX_BLOCKS)
    for axis in (*spec["dims"], *spec["outputs"]):
        yield f"{name}/{axis}", [axis], [sizes[axis]], None, _COORDINATES, None
    for axis in spec["constants"]:
        yield f"{name}/{axis}", [], [], None, _COORDINATES, None
    if trials:
        yield f"{name}/trial", ["trial"], [*trials.values()], None, ("int64",), None

    def variable(
        which: str, outputs: list[str], along: Mapping[str, int], dtype: str, mark: int | None = None
    ) -> _Array:
        dims = [*spec["dims"], *along, *outputs]
        chunks = [*(1 for _ in spec["dims"]), *(block for _ in along), *(sizes[dim] for dim in outputs)]
        return f"{name}/{which}", dims, [(sizes | trials)[dim] for dim in dims], chunks, (dtype,), mark

    yield variable("error", [], trials, "string")
    yield variable("status", [], trials, "int8")
    measures = {
        key: Measure(key, "", dims=tuple(measure["dims"]), dtype=measure["dtype"])
        for key, measure in spec["measures"].items()
    }
    require_block_size(name, block, measures.values(), sizes)
    for key, measure in measures.items():
        dtype, _, attributes = describe_array(measure.dtype, is_marked=is_marked)
        for along in (trials, {}):
            yield variable(key, [*measure.dims], along, dtype.name, attributes.get(FILL))


def _is_one_of(document: Mapping[str, Any], arrays: list[_Array]) -> bool:
    """Return True for the metadata of one of some arrays or, without arrays, of a group."""
    if (
        not isinstance(document["attributes"], dict)
        or document["zarr_format"] != 3
        or document["node_type"] != ("array" if arrays else "group")
    ):
        return False
    if not arrays:
        return True
    kind, codecs = document["data_type"], document["codecs"]
    chunk = document["chunk_grid"]["configuration"]["chunk_shape"]
    if codecs[0]["name"] == "sharding_indexed":
        outer, inner, n_codecs = chunk, codecs[0]["configuration"], len(codecs)
        codecs, chunk = inner["codecs"], inner["chunk_shape"]
        if n_codecs > 1 or any(outer_size % size for outer_size, size in zip(outer, chunk, strict=True)):
            return False
    names, is_small = tuple(codec["name"] for codec in codecs), 0 < math.prod(chunk) <= _MOST_PER_CHUNK
    return (
        document["chunk_key_encoding"] in _KEYS
        and not document.get("storage_transformers")
        and any(
            kind in dtypes
            and document["attributes"].get(FILL) == mark
            and mark in (None, document["fill_value"])
            and (document["shape"], [*(document.get("dimension_names") or ())]) == (shape, dims)
            and (is_small if chunks is None else chunk == chunks)
            and names == (_TEXTS if kind == "string" else _OF_TRIALS if path.endswith("/trial") else _NUMBERS)
            for path, dims, shape, chunks, dtypes, mark in arrays
        )
    )


def metadata_files(root: bytes) -> dict[str, bytes]:
    """Return the metadata files of all groups and arrays by key, from the consolidated metadata of a root."""
    files = {}
    for path, document in json.loads(root)["consolidated_metadata"]["metadata"].items():
        document = {name: value for name, value in document.items() if name != "consolidated_metadata"}
        files[f"{path}/{ROOT}"] = json.dumps(document, indent=2).encode()
    return files
