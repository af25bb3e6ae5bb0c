"""Encoding and decoding of chunks in memory, based on the array metadata of a verified root.

Zarr is not used for chunks, since its event loop takes most of its 2 ms per chunk, and because a chunk of somebody else
may declare any size: here, the size is compared with the metadata of the array before memory is allocated.
"""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import zarr
from numcodecs import Blosc, VLenUTF8, Zstd
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from pipeline.blocks.evaluate import Block
from pipeline.declare.panel import Panel, Setting
from pipeline.errors import BadInputError, DamagedChunkError
from pipeline.store.codec.chunk_digests import add_checksum, remove_checksum
from pipeline.store.codec.regions import Layout, fill_chunk, positions, region_of
from pipeline.store.files.locations import ROOT

Region = tuple[slice, ...]
_TEXTS = VLenUTF8()
_MOST_PER_TEXT, _MOST_OF_TEXTS = 2**20, 2**30  # bytes of one text, and of all texts of a chunk
_MOST_REMEMBERED = 2**16  # bytes of the last chunk that is kept
_ZSTD = b"\x28\xb5\x2f\xfd"


class Chunks:
    """Encoder and decoder of the chunks of a store, from the content of its root; each thread has separate arrays."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._local = threading.local()

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return this thread's array without chunks, with the metadata of the stored array."""
        if (panel, name) not in getattr(self._local, "arrays", ()):
            try:
                self._open(panel, name)
            except (TypeError, ValueError, KeyError, AttributeError, AssertionError, OverflowError) as error:
                raise BadInputError(
                    f"Zarr cannot open {panel}/{name} of the store, since its metadata are invalid "
                    f"({type(error).__name__}); compute the store again, or obtain it again from its origin"
                ) from error
        return self._local.arrays[panel, name]

    def _open(self, panel: str, name: str) -> None:
        if not hasattr(self._local, "arrays"):
            group = zarr.open_group(MemoryStore({ROOT: Buffer.from_bytes(self._root)}), mode="r")
            assert group.metadata.consolidated_metadata is not None
            self._local.metadata = group.metadata.consolidated_metadata.flattened_metadata
            self._local.root, self._local.arrays, self._local.codecs = group.store_path, {}, {}
        path = f"{panel}/{name}"
        metadata = self._local.metadata[path]
        assert metadata.node_type == "array"
        array = zarr.Array(zarr.AsyncArray(metadata, self._local.root / path))  # as group[path], without an event loop
        codecs = _Codecs(array)
        self._local.arrays[panel, name], self._local.codecs[panel, name] = array, codecs

    def layout(self, panel: str, name: str) -> Layout:
        """Return the layout of the stored array."""
        return self._codecs(panel, name).layout

    def keys(self, panel: str, name: str, region: Region) -> list[str]:
        """Return the keys of the chunks that a region covers, with the last dimension varying fastest."""
        layout = self._codecs(panel, name).layout
        along_axes = [[f"/{index}" for index in span] for span in _spans(layout, region)]
        return list(map("".join, product([f"{layout.path}/c"], *along_axes)))

    def block_keys(self, panel: Panel, block: Block, settings: Iterable[Setting], name: str) -> list[str]:
        """Return the keys of the chunks of a variable for settings of a block."""
        places = (place for setting in settings for place in positions(panel, block.cell, setting))
        regions = (region_of(panel, place, block.trials, name) for place in places)
        return [key for region in regions for key in self.keys(panel.name, name, region)]

    def encode(
        self, panel: str, name: str, regions: Sequence[Region], values: np.ndarray, is_missing: Any = False
    ) -> dict[str, bytes]:
        """Return the encoded chunks by key, for regions that each cover one chunk and contain the same values.

        Missing values have the mark of their array, if it has one; see `pipeline.store.codec.missing`.
        """
        if not regions:
            return {}
        codecs = self._codecs(panel, name)
        layout = codecs.layout
        if layout.marks_missing:
            values = values.astype(layout.dtype)
            values[is_missing] = layout.fill_value
        content = codecs.encode(fill_chunk(layout, regions[0], values))
        return {key: content for region in regions for key in self.keys(panel, name, region)}

    def encoded_size(self, panel: str, name: str, values: np.ndarray) -> int:
        """Return the size in bytes of values encoded as one chunk, of any shape; texts are counted uncompressed."""
        codecs = self._codecs(panel, name)
        if codecs.layout.dtype.kind == "T":
            return sum(4 + len(str(value).encode()) for value in values.flat)  # the length of each is stored
        return len(codecs.encode(np.ascontiguousarray(values, codecs.layout.dtype)))

    def decode(self, panel: str, name: str, region: Region, contents: Mapping[str, bytes | None]) -> np.ndarray:
        """Return the values of a region from its encoded chunks, with the fill value for absent chunks."""
        codecs = self._codecs(panel, name)
        layout = codecs.layout
        encoded = [contents[key] for key in self.keys(panel, name, region)]
        try:
            decoded: dict[bytes | None, np.ndarray] = {
                content: codecs.decode(content) for content in set(encoded) if content is not None
            }
        except (MemoryError, DamagedChunkError):
            raise
        except Exception as error:  # no file is read here, so any other error of a codec means damage
            raise DamagedChunkError(" ".join(str(error).split()) or type(error).__name__) from error
        if None in encoded:
            decoded[None] = np.full(layout.chunks, layout.fill_value, layout.dtype)
        return _join(layout, region, [decoded[content] for content in encoded])

    def find_missing(self, panel: str, name: str, values: np.ndarray) -> np.ndarray:
        """Return a mask of missing values of a variable; those of integers are unknown in stores of earlier formats."""
        layout = self._codecs(panel, name).layout
        if layout.marks_missing:
            return values == layout.fill_value
        return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)

    def as_declared(self, panel: str, name: str, values: np.ndarray, dtype: str) -> np.ndarray:
        """Return values of a measure in its declared dtype, with zero for missing integers."""
        layout = self._codecs(panel, name).layout
        if layout.marks_missing:
            values = np.where(values == layout.fill_value, 0, values)
        return values.astype(dtype, copy=False)

    def _codecs(self, panel: str, name: str) -> "_Codecs":
        """Return the codecs of this thread's array."""
        try:
            return self._local.codecs[panel, name]
        except (AttributeError, KeyError):
            self.array(panel, name)
            return self._local.codecs[panel, name]


def _spans(array: Layout, region: Region) -> list[range]:
    """Return the indices of the chunks that a region covers, by dimension."""
    spans = []
    for part, length, size in zip(region, array.shape, array.chunks, strict=True):
        start, stop, _ = part.indices(length)
        spans.append(range(start // size, -(-stop // size)))
    return spans


def _join(array: Layout, region: Region, chunks: Sequence[np.ndarray]) -> np.ndarray:
    """Return a region of an array from the chunks that it covers."""
    if len(chunks) == 1:
        limits = [part.indices(size)[:2] for part, size in zip(region, array.shape, strict=True)]
        starts = [start // size * size for (start, _), size in zip(limits, array.chunks, strict=True)]
        inner = [slice(low - start, high - start) for (low, high), start in zip(limits, starts, strict=True)]
        return chunks[0][tuple(inner)] if inner else chunks[0]
    spans, n_dims = _spans(array, region), len(array.shape)
    grid = np.stack(chunks).reshape([*map(len, spans), *array.chunks])
    joined = grid.transpose([axis for k in range(n_dims) for axis in (k, n_dims + k)])
    joined = joined.reshape([len(span) * size for span, size in zip(spans, array.chunks, strict=True)])
    parts: list[Any] = []
    for part, length, span, size in zip(region, array.shape, spans, array.chunks, strict=True):
        start, stop, _ = part.indices(length)
        parts.append(slice(start - span.start * size, stop - span.start * size))
    return joined[(..., *parts)]  # without the ellipsis, an array without dimensions becomes a scalar


class _Codecs:
    """Codecs of an array with its layout: ``bytes`` or ``vlen-utf8``, ``zstd`` or ``blosc``, and ``crc32c``."""

    def __init__(self, array: zarr.Array) -> None:
        documents: Any = array.metadata.to_dict()["codecs"]
        documents = documents if array.shards is None else documents[0]["configuration"]["codecs"]
        layout, compression = (codec.get("configuration", {}) for codec in documents[:2])
        is_big = layout.get("endian") == "big"  # one-byte numbers have no byte order
        self.layout = Layout.of(array)
        self._dtype, self._shape = array.dtype, array.chunks
        self._is_text, self._n_values = array.dtype.kind == "T", math.prod(array.chunks)
        self._is_blosc = documents[1]["name"] == "blosc"
        self._last = b"", b""  # last chunk and its encoding, since the statuses of most blocks are equal
        self._compressor = Blosc() if self._is_blosc else Zstd(**compression)
        if self._is_text:
            self._sizes = range(4, min(4 + self._n_values * _MOST_PER_TEXT, _MOST_OF_TEXTS) + 1)
        else:
            self._stored = array.dtype.newbyteorder("big" if is_big else "little")
            self._sizes = range(self._n_values * self._dtype.itemsize, self._n_values * self._dtype.itemsize + 1)

    def encode(self, chunk: np.ndarray) -> bytes:
        if self._is_text:
            return add_checksum(self._compressor.encode(_TEXTS.encode(chunk.astype(object))))
        raw = chunk.astype(self._stored, copy=False)
        content = raw.tobytes() if raw.nbytes <= _MOST_REMEMBERED else b""
        if not content or content != self._last[0]:
            self._last = content, add_checksum(self._compressor.encode(raw))
        return self._last[1]

    def decode(self, content: bytes) -> np.ndarray:
        """Return the chunk encoded in `content`; errors of numcodecs and NumPy are not caught."""
        compressed = remove_checksum(content)
        size = int.from_bytes(content[4:8], "little") if self._is_blosc else _frame_size(content)
        if size not in self._sizes:
            raise ValueError(f"a chunk must have {self._sizes.start:,} to {self._sizes.stop - 1:,} bytes, got {size:,}")
        decoded = self._compressor.decode(compressed)
        if not self._is_text:
            return np.frombuffer(decoded, self._stored).reshape(self._shape).astype(self._dtype)
        if int.from_bytes(decoded[:4], "little") != self._n_values:
            raise ValueError(f"a chunk must have {self._n_values:,} texts")
        return _TEXTS.decode(decoded).astype(self._dtype).reshape(self._shape)


def _frame_size(frame: bytes) -> int:
    """Return the size of the decompressed content in the header of a Zstandard frame (RFC 8878), or -1 without it."""
    flags = frame[4]
    is_single, of_size = flags >> 5 & 1, flags >> 6
    start = 6 - is_single + (0, 1, 2, 4)[flags & 3]
    length = (is_single, 2, 4, 8)[of_size]
    if not length or frame[:4] != _ZSTD:
        return -1
    return int.from_bytes(frame[start : start + length], "little") + 256 * (length == 2)
