"""Encoding and decoding of chunks in memory, based on the array metadata of a verified root."""

import threading
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import zarr
from numcodecs import Zstd
from numcodecs.checksum32 import CRC32C
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from pipeline.errors import DamagedChunkError
from pipeline.stores.locations import ROOT
from pipeline.stores.regions import fill_chunk, write_region

Region = tuple[slice, ...]


class Chunks:
    """Encoder and decoder of the chunks of a store; each thread has separate arrays.

    Parameters
    ----------
    root : bytes
        Content of the root, with consolidated metadata.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._local = threading.local()

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return this thread's in-memory array, with the metadata of the stored array."""
        if not hasattr(self._local, "arrays"):
            self._local.contents = {ROOT: Buffer.from_bytes(self._root)}
            self._local.group = zarr.open_group(MemoryStore(self._local.contents), mode="r+")
            self._local.arrays = {}
            self._local.codecs = {}
        arrays = self._local.arrays
        if (panel, name) not in arrays:
            array = self._local.group[f"{panel}/{name}"]
            assert isinstance(array, zarr.Array)
            arrays[panel, name] = array.with_config({"write_empty_chunks": True})  # an absent chunk means damage
            self._local.codecs[panel, name] = _Codecs.of(array)
        return arrays[panel, name]

    def keys(self, panel: str, name: str, region: Region) -> list[str]:
        """Return the keys of the chunks that a region covers, with the last dimension varying fastest."""
        array = self.array(panel, name)
        parts = [[f"/{index}" for index in span] for span in _spans(array, region)]
        return list(map("".join, product([f"{array.path}/c"], *parts)))

    def encode(self, panel: str, name: str, regions: Sequence[Region], values: np.ndarray) -> dict[str, bytes]:
        """Return the encoded chunks by key, for regions that cover whole chunks and contain the same values."""
        if not regions:
            return {}
        first, *others = [self.keys(panel, name, region) for region in regions]
        array, codecs = self._local.arrays[panel, name], self._local.codecs[panel, name]
        if codecs is not None and len(first) == 1:
            contents = [codecs.encode(fill_chunk(array, regions[0], values))]
        else:
            write_region(array, regions[0], values)
            contents = [self._local.contents.pop(key).to_bytes() for key in first]
        return {key: content for keys in (first, *others) for key, content in zip(keys, contents, strict=True)}

    def encoded_size(self, panel: str, name: str, values: np.ndarray) -> int:
        """Return the size in bytes of values encoded as one chunk, of any shape; texts are counted uncompressed."""
        array = self.array(panel, name)
        codecs = self._local.codecs[panel, name]
        if codecs is None:
            return sum(4 + len(str(value).encode()) for value in values.flat)  # Zarr stores the length of each
        return len(codecs.encode(np.ascontiguousarray(values, array.dtype)))

    def decode(self, panel: str, name: str, region: Region, contents: Mapping[str, bytes | None]) -> np.ndarray:
        """Return the values of a region from its encoded chunks, with the fill value for absent chunks.

        Raises
        ------
        DamagedChunkError
            If a chunk fails its checksum or cannot be decoded.
        """
        array = self.array(panel, name)
        keys = self.keys(panel, name, region)
        codecs, held = self._local.codecs[panel, name], self._local.contents
        found = {key: content for key in keys if (content := contents[key]) is not None}
        try:
            if codecs is None and found:
                held.update({key: Buffer.from_bytes(content) for key, content in found.items()})
                return np.asarray(array[region])
            decoded = (
                {content: codecs.decode(content, array.chunks) for content in set(found.values())} if codecs else {}
            )
        except MemoryError:
            raise
        except Exception as error:  # no file is read here, so any other error of a codec means damage
            raise DamagedChunkError(" ".join(str(error).split()) or type(error).__name__) from error
        finally:
            for key in found:
                held.pop(key, None)
        absent = np.full(array.chunks, array.fill_value, array.dtype)
        return _join(array, region, [decoded[found[key]] if key in found else absent for key in keys])


def _spans(array: zarr.Array, region: Region) -> list[range]:
    """Return the indices of the chunks that a region covers, by dimension."""
    limits = [part.indices(size)[:2] for part, size in zip(region, array.shape, strict=True)]
    return [range(start // size, -(-stop // size)) for (start, stop), size in zip(limits, array.chunks, strict=True)]


def _join(array: zarr.Array, region: Region, chunks: Sequence[np.ndarray]) -> np.ndarray:
    """Return a region of an array from the chunks that it covers."""
    spans, n_dims = _spans(array, region), array.ndim
    grid = np.stack(chunks).reshape([*map(len, spans), *array.chunks])
    whole = grid.transpose([axis for k in range(n_dims) for axis in (k, n_dims + k)])
    whole = whole.reshape([len(span) * size for span, size in zip(spans, array.chunks, strict=True)])
    parts: list[Any] = []
    for part, length, span, size in zip(region, array.shape, spans, array.chunks, strict=True):
        start, stop, _ = part.indices(length)
        parts.append(slice(start - span.start * size, stop - span.start * size))
    return whole[(..., *parts)]  # without the ellipsis, an array without dimensions becomes a scalar


class _Codecs:
    """Codecs of numeric arrays, applied without Zarr's event loop, which takes most of Zarr's 2 ms per chunk.

    Parameters
    ----------
    configurations : sequence of mapping
        Configurations of ``bytes``, ``zstd`` and ``crc32c``, from the metadata of an array.
    dtype : dtype
        Dtype of the array.
    """

    NAMES = ("bytes", "zstd", "crc32c")

    def __init__(self, configurations: Sequence[Mapping[str, Any]], dtype: np.dtype[Any]) -> None:
        layout, compression, _ = configurations
        is_big = layout.get("endian") == "big"  # one-byte numbers have no byte order
        self._dtype, self._stored = dtype, dtype.newbyteorder("big" if is_big else "little")
        self._compressor, self._checksum = Zstd(**compression), CRC32C(location="end")

    @classmethod
    def of(cls, array: zarr.Array) -> "_Codecs | None":
        """Return the codecs of an array, or None if the array has codecs that only Zarr supports."""
        codecs: Any = array.metadata.to_dict()["codecs"]
        if tuple(codec["name"] for codec in codecs) != cls.NAMES:
            return None
        return cls([codec.get("configuration", {}) for codec in codecs], array.dtype)

    def encode(self, chunk: np.ndarray) -> bytes:
        return bytes(self._checksum.encode(self._compressor.encode(chunk.astype(self._stored, copy=False))))

    def decode(self, content: bytes, shape: tuple[int, ...]) -> np.ndarray:
        """Return the chunk encoded in `content`; errors of numcodecs and NumPy are not caught."""
        decoded = self._compressor.decode(self._checksum.decode(content))
        return np.frombuffer(decoded, self._stored).reshape(shape).astype(self._dtype)
