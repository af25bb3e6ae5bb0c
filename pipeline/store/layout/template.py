"""Initial files of a store: names, dimensions, chunks, codecs and attributes of all arrays."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.storage import MemoryStore

from pipeline.blocks.evaluate import Status
from pipeline.declare.factors import Factor, format_value
from pipeline.declare.panel import Panel
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.store.codec.missing import describe_array
from pipeline.store.files.access import Files
from pipeline.store.files.locations import ROOT
from pipeline.store.layout.root import AUDITS, COPY, STORE_FORMAT, Root, marks_missing, seal_root

_CODECS = (ZstdCodec(level=1), Crc32cCodec())
_CODECS_OF_TRIALS = (BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle", typesize=8), Crc32cCodec())
_DTYPES = {"int": "int64", "float": "float64", "str": "string", "vector": "string"}
# large enough that an extended coordinate keeps its chunk size, so that readers of the old metadata still work
_COORDINATE_CHUNK = 1024
_TRIALS_CHUNK = 2**20
UNSORTED = "in the order of declaration and extension, because stored blocks do not move; pipeline.open_results sorts"
"""Comment of a numeric coordinate that is not in ascending order."""

INAPPLICABLE = "inapplicable"
"""Attribute of the root with the number of statuses per panel, of methods that do not apply to their cell, as JSON."""


def _count_inapplicable(panel: Panel) -> int:
    n_positions = [panel.count_positions(setting) for setting in panel.settings()]
    return int((~panel.applicable @ n_positions).sum()) * panel.n_trials


def root_attributes(study: Study) -> dict[str, Any]:
    """Return the attributes of the root that follow from the study."""
    spec = study.spec()
    return {
        "title": study.title,
        "study": study.name,
        "aim": study.aim,
        "panels": " ".join(panel.name for panel in study.panels),
        "seed": study.seed,
        INAPPLICABLE: json.dumps({panel.name: _count_inapplicable(panel) for panel in study.panels}),
        "store_format": STORE_FORMAT,
        "spec": json.dumps(spec),
        "spec_sha256": sha256(canonical_json(spec)),
    }


def audit_methods(study: Study, stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the root attribute with the results of `Method.audit` by panel and method; stored results are kept."""
    audits: dict[str, Any] = json.loads(stored.get(AUDITS, "{}"))
    for panel in study.panels:
        for method in panel.methods:
            if method.audit is not None and method.name not in audits.get(panel.name, {}):
                audits.setdefault(panel.name, {})[method.name] = dict(method.audit(panel))
    return {AUDITS: json.dumps(audits)} if audits else {}


def write_template(files: Files, study: Study, attributes: Mapping[str, Any]) -> Root:
    """Write all files of an empty or larger store, the copy of the root first and the root last; return the root.

    A store keeps its format, because the chunks of a larger one do not change. `files` belong to a session, whose
    writes fail once another one has superseded it.
    """
    kept = {name: attributes[name] for name in ("store_format",) if name in attributes}
    template = make_template(study, {**attributes, **root_attributes(study), **kept})
    root = seal_root(template.pop(ROOT))
    batch = files.batch(files.versions([*template, COPY, ROOT]))
    batch.put_last(COPY, root)
    batch.finish()
    files.flush([COPY])  # no other file may exist without the copy, even after a power loss
    for key, content in template.items():
        batch.put(key, content)
    batch.put_last(ROOT, root)
    batch.finish()
    return Root(root)


def make_template(study: Study, attributes: Mapping[str, Any]) -> dict[str, bytes]:
    """Return all files of an empty store by key; the root, ``zarr.json``, contains the consolidated metadata."""
    files: dict[str, Any] = {}
    store = MemoryStore(files)
    root = zarr.create_group(store, zarr_format=3, attributes=dict(attributes))
    audits = json.loads(attributes.get(AUDITS, "{}"))
    for panel in study.panels:
        _create_panel(root, panel, audits.get(panel.name, {}), marks_missing(attributes))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        zarr.consolidate_metadata(store)
    return {key: content.to_bytes() for key, content in files.items()}


def _create_panel(root: zarr.Group, panel: Panel, audits: Mapping[str, Any], is_marked: bool) -> None:
    """Create the group of a panel, its coordinates, and its empty arrays: factors, methods, the trial, and outputs."""
    constants = " ".join(constant.name for constant in panel.constants)
    group = root.require_group(panel.name)
    group.attrs.update({"title": panel.meaning, **({"coordinates": constants} if constants else {})})
    grid = (*panel.factors, *panel.method_axes)
    for axis in (*grid, *panel.outputs, *panel.constants):
        attributes = _describe_methods(panel, audits) if axis.name == panel.method_dim else {}
        _create_coordinate(group, axis, axis in panel.constants, attributes)
    if panel.trials is not None:
        shape, chunks = (panel.trials,), (_TRIALS_CHUNK,)
        numbers = _create(group, "trial", ("trial",), shape, chunks, _CODECS_OF_TRIALS, dtype="int64")
        for start in range(0, panel.trials, _TRIALS_CHUNK):
            stop = min(start + _TRIALS_CHUNK, panel.trials)
            numbers[start:stop] = np.arange(start, stop)

    def variable(name: str, per_trial: bool, outputs: tuple[str, ...], **rest: Any) -> None:
        sizes = {axis.name: len(axis.values) for axis in panel.outputs}
        trial = ("trial",) if per_trial and panel.trials is not None else ()
        dims = (*(axis.name for axis in grid), *trial, *outputs)
        output_sizes = tuple(sizes[dim] for dim in outputs)
        shape = (*(len(axis.values) for axis in grid), *(panel.n_trials for _ in trial), *output_sizes)
        chunks = (*(1 for _ in grid), *(panel.block_trials for _ in trial), *output_sizes)
        _create(group, name, dims, shape, chunks, **rest)

    for measure in panel.measures:
        dtype, fill, marks = describe_array(measure.dtype, is_marked=is_marked)
        texts = {"long_name": measure.meaning, "units": measure.unit}
        variable(measure.name, measure.per_trial, measure.dims, dtype=dtype, fill_value=fill, attributes=texts | marks)
    meaning = "error of a failed trial, and the command that reruns it"
    variable("error", True, (), dtype="string", fill_value="", attributes={"long_name": meaning})
    flags = {
        "long_name": "status of a trial",
        "flag_values": [int(status) for status in Status],
        "flag_meanings": " ".join(status.name.lower() for status in Status),
    }
    variable("status", True, (), dtype="int8", fill_value=0, attributes=flags)


def _describe_methods(panel: Panel, audits: Mapping[str, Any]) -> dict[str, str]:
    """Return notes, names of non-private methods, and results of audits as text for netCDF attributes."""
    lines = {
        "notes": [f"{method.name}: {method.note}" for method in panel.methods if method.note],
        "not_private": [method.name for method in panel.methods if not method.is_private],
    }
    if audits:
        lines[AUDITS] = [json.dumps(audits)]
    return {name: "\n".join(sentences) for name, sentences in lines.items() if sentences}


def _create_coordinate(group: zarr.Group, axis: Factor, scalar: bool, attributes: dict[str, str]) -> None:
    """Create and fill the coordinate of an axis; vectors are stored as text, which has no unit."""
    values = [format_value(value) if axis.kind == "vector" else value for value in axis.values]
    is_text = axis.kind in ("str", "vector")
    units = {} if is_text else {"units": axis.unit}
    comment = {} if is_text or values == sorted(values) else {"comment": UNSORTED}
    array = _create(
        group,
        axis.name,
        () if scalar else (axis.name,),
        () if scalar else (len(values),),
        () if scalar else (_COORDINATE_CHUNK,),
        dtype=_DTYPES[axis.kind],
        attributes={"long_name": axis.meaning, **units, **comment, **attributes},
    )
    strings = np.dtypes.StringDType()
    array[...] = np.array(values[0] if scalar else values, strings if is_text else None)


def _create(
    group: zarr.Group,
    name: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    codecs: tuple[Any, ...] = _CODECS,
    **rest: Any,
) -> zarr.Array:
    rest["config"] = {"write_empty_chunks": True}  # an absent chunk of a coordinate means damage
    return group.create_array(name, shape=shape, chunks=chunks, dimension_names=dims, compressors=codecs, **rest)
