"""Shards of a compact store: files that hold many chunks of an array and an index, packed and divided by Zarr.

Each value of the array that Zarr packs stands for an encoded chunk of the store, so that a shard contains the bytes
of the original, with their checksums. Every function that reads chunks by key therefore reads both kinds of store.
"""

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodec
from zarr.buffer.cpu import Buffer, NDBuffer
from zarr.codecs import ShardingCodec
from zarr.storage import MemoryStore

from pipeline.errors import DamagedChunkError
from pipeline.store.codec.chunks import Chunks, Region
from pipeline.store.codec.regions import chunk_steps
from pipeline.store.files.access import Files

_MOST_CHUNKS = 1000  # chunks per shard
_MOST_BYTES = 2**26  # bytes of a shard before compression, or one chunk if it is larger
_MOST_CACHED = 2**27  # bytes of the shards that a reader keeps, or one shard if it is larger
_PER_CHUNK = 300  # bytes of the objects of a chunk in memory
_lock = threading.Lock()  # of Zarr's configuration, which is global; only `_batches` changes it


@dataclass(frozen=True)
class _Encoded(ArrayBytesCodec):
    """Codec of an array whose values are numbers of encoded chunks, from 1; each chunk of the array is one value."""

    contents: list[Any]  # bytes, or parts of a shard, which are not copied

    is_fixed_size = False

    def to_dict(self) -> dict[str, Any]:
        return {"name": "encoded"}

    async def _encode_single(self, chunk_array: Any, chunk_spec: Any) -> Any:
        return Buffer.from_bytes(self.contents[chunk_array.as_numpy_array().item() - 1])

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        self.contents.append(chunk_bytes)
        return NDBuffer.from_numpy_array(np.full(chunk_spec.shape, len(self.contents)))

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        raise NotImplementedError  # the index has the sizes


def _open_shard(counts: tuple[int, ...], contents: list[Any], files: dict[str, Any]) -> zarr.Array:
    """Return an array of numbers of encoded chunks, 0 for absent ones, that is one shard, the file `_key_of`."""
    single, codec = (1,) * len(counts), _Encoded(contents)
    kind: Any = {"dtype": np.int64, "fill_value": 0, "serializer": codec, "compressors": None}
    return zarr.create_array(MemoryStore(files), shape=counts, chunks=single, shards=counts, **kind)


@contextmanager
def _batches() -> Iterator[None]:
    """Let Zarr encode or decode all chunks of a shard in one batch, which takes half of the time."""
    with _lock, zarr.config.set({"codec_pipeline.batch_size": _MOST_CHUNKS}):  # for the whole process
        yield


def _key_of(counts: tuple[int, ...]) -> str:
    return "/".join(["c", *("0" for _ in counts)])


def pack_shard(array: zarr.Array, region: Region, chunks: Mapping[str, bytes | None]) -> bytes | None:
    """Return the shard at a region of a sharded array, with the encoded chunks in C order, or None without chunks."""
    sizes = zip(region, array.shape, array.chunks, strict=True)
    within = [-(-(min(part.stop, length) - part.start) // size) for part, length, size in sizes]
    counts, files, contents = shard_counts(array), dict[str, Any](), list(chunks.values())
    numbers = np.zeros(counts, int)
    present = [0 if content is None else number for number, content in enumerate(contents, start=1)]
    numbers[tuple(map(slice, within))] = np.reshape(present, within)
    with _batches():
        _open_shard(counts, contents, files)[...] = numbers
    shard = files.get(_key_of(counts))
    return None if shard is None else shard.to_bytes()


def read_shard(content: bytes, counts: tuple[int, ...]) -> dict[tuple[int, ...], Any]:
    """Return the encoded chunks of a shard as buffers, by position in the shard."""
    contents: list[Any] = []
    try:
        if not content:
            raise ValueError("a shard is empty")
        with _batches():
            numbers = _open_shard(counts, contents, {_key_of(counts): Buffer.from_bytes(content)})[...]
    except Exception as error:  # no file is read here, so any error means damage
        raise DamagedChunkError("the index of a shard fails its checksum") from error
    return {place: contents[number - 1] for place, number in np.ndenumerate(np.asarray(numbers)) if number}


def shard_counts(array: zarr.Array) -> tuple[int, ...]:
    """Return the number of chunks per shard along each dimension; an empty tuple for an array without shards."""
    return tuple(shard_size // size for shard_size, size in zip(array.shards or (), array.chunks, strict=False))


def iterate_shards(array: zarr.Array) -> Iterator[tuple[str, Region]]:
    """Yield the key and the region of each shard of an array."""
    assert array.shards is not None
    for place in np.ndindex(*(-(-length // size) for length, size in zip(array.shape, array.shards, strict=True))):
        region = [slice(k * size, (k + 1) * size) for k, size in zip(place, array.shards, strict=True)]
        yield "/".join([array.path, "c", *map(str, place)]), tuple(region)


def shard_root(root: Mapping[str, Any], variables: Iterable[zarr.Array]) -> dict[str, Any]:
    """Return the document of a root in which some arrays are sharded."""
    arrays = dict(root["consolidated_metadata"]["metadata"])
    for array in variables:
        document = arrays[array.path]
        room = max(1, min(_MOST_CHUNKS, _MOST_BYTES // (array.dtype.itemsize * math.prod(array.chunks))))
        counts = chunk_steps(array.cdata_shape, room)
        shape = [size * count for size, count in zip(array.chunks, counts, strict=True)]
        grid = {"name": "regular", "configuration": {"chunk_shape": shape}}
        codec = ShardingCodec(chunk_shape=array.chunks, codecs=document["codecs"]).to_dict()
        arrays[array.path] = {**document, "chunk_grid": grid, "codecs": [codec]}
    # only types of JSON, as in a stored root
    return json.loads(
        json.dumps({**root, "consolidated_metadata": {**root["consolidated_metadata"], "metadata": arrays}})
    )


class ShardReader:
    """Reader of chunks of a compact store by their keys in the original; those of a damaged index have no content.

    A block has a chunk in a shard of each variable and setting. All of these are kept up to `_MOST_CACHED` bytes, so
    that a reader of one block after the other reads each shard once; beyond, it reads them again.
    """

    def __init__(self, files: Files, chunks: Chunks) -> None:
        self._files, self._lock = files, threading.Lock()
        self._cached: OrderedDict[str, tuple[int, dict[tuple[int, ...], Any]]] = OrderedDict()  # bytes, chunks
        self._counts = lru_cache(maxsize=None)(lambda panel, name: shard_counts(chunks.array(panel, name)))

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return encoded chunks by key; a shard is read as a whole."""
        contents: dict[str, bytes | None] = {}
        for key in keys:
            panel, name, *place = key.split("/")
            counts = self._counts(panel, name) if len(place) > 1 else ()  # no session or array without dimensions
            if not counts:
                contents[key] = self._files.read(key)
                continue
            indices = list(map(int, place[1:]))
            shard = "/".join([panel, name, "c", *(str(k // n) for k, n in zip(indices, counts, strict=True))])
            try:
                with self._lock:  # threads that need the same shard read it once
                    chunks = self._shard(shard, counts)
                content = chunks.get(tuple(k % n for k, n in zip(indices, counts, strict=True)))
                contents[key] = None if content is None else content.to_bytes()
            except DamagedChunkError:
                contents[key] = b""
        return contents

    def _shard(self, shard: str, counts: tuple[int, ...]) -> dict[tuple[int, ...], Any]:
        """Return the chunks of a shard by position; errors are not cached."""
        if shard not in self._cached:
            content = self._files.read(shard)
            chunks = {} if content is None else read_shard(content, counts)
            self._cached[shard] = len(content or b"") + _PER_CHUNK * len(chunks), chunks
            n_bytes = sum(size for size, _ in self._cached.values())
            while n_bytes > _MOST_CACHED and len(self._cached) > 1:
                n_bytes -= self._cached.popitem(last=False)[1][0]
        self._cached.move_to_end(shard)
        return self._cached[shard][1]
