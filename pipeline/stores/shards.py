"""Shards of a compact store: each file holds many chunks of an array, an index, and a checksum of the index.

Plain Zarr reads shards with its codec ``sharding_indexed``. The encoded chunks, with their checksums, are the bytes of
the original store, so every function that reads chunks by key reads both kinds of store; see `ShardReader`.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pipeline.errors import DamagedChunkError
from pipeline.stores.binding import add_checksum, remove_checksum
from pipeline.stores.files import Files
from pipeline.stores.locations import ROOT
from pipeline.stores.regions import chunk_steps

_MOST_CHUNKS = 1000  # chunks per shard
_MOST_BYTES = 2**26  # bytes of a shard before compression, or one chunk if it is larger
_CODEC = "sharding_indexed"
_INDEX_CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
_CHECKSUM_BYTES = 4
_ABSENT = 2**64 - 1  # offset and length of an absent chunk
_CACHED_INDICES = 256


@dataclass(frozen=True)
class Sharding:
    """Division of the chunks of one array into shards."""

    path: str  # of the array in the store
    grid: tuple[int, ...]  # number of chunks along each dimension
    counts: tuple[int, ...]  # number of chunks per shard along each dimension

    @property
    def n_chunks(self) -> int:
        """Number of chunks per shard."""
        return math.prod(self.counts)

    @property
    def n_shards(self) -> int:
        """Number of shards of the array."""
        return math.prod(_grid(self.grid, self.counts))

    def position(self, key: str) -> tuple[int, ...]:
        """Return the position of a chunk in the grid."""
        return tuple(map(int, key[len(self.path) + 3 :].split("/")))

    def locate(self, key: str) -> tuple[str, int]:
        """Return the key of the shard that holds a chunk, and the position of the chunk in its index."""
        shard, at = [], 0
        for index, count in zip(self.position(key), self.counts, strict=True):
            shard.append(index // count)
            at = at * count + index % count
        return self._key(shard), at

    def shards(self) -> Iterator[tuple[str, list[str | None]]]:
        """Yield the key of each shard and the keys of its chunks, with None beyond the end of the array."""
        for shard in np.ndindex(*_grid(self.grid, self.counts)):
            places = np.array(shard) * self.counts + np.array(list(np.ndindex(*self.counts)))
            yield self._key(shard), [self._key(place) if (place < self.grid).all() else None for place in places]

    def _key(self, position: Iterable[int]) -> str:
        return f"{self.path}/c/{'/'.join(map(str, position))}"


def shard_root(root: Mapping[str, Any], variables: Mapping[str, int]) -> dict[str, Any]:
    """Return the document of a root in which the arrays at paths of `variables` (bytes per value) are sharded."""
    arrays = dict(root["consolidated_metadata"]["metadata"])
    for path, n_bytes in variables.items():
        document = arrays[path]
        chunk = document["chunk_grid"]["configuration"]["chunk_shape"]
        room = max(1, min(_MOST_CHUNKS, _MOST_BYTES // (n_bytes * math.prod(chunk))))
        counts = chunk_steps(_grid(document["shape"], chunk), room)
        shape = [size * count for size, count in zip(chunk, counts, strict=True)]
        configuration = {
            "chunk_shape": chunk,
            "codecs": document["codecs"],
            "index_codecs": _INDEX_CODECS,
            "index_location": "end",
        }
        arrays[path] = {
            **document,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "codecs": [{"name": _CODEC, "configuration": configuration}],
        }
    return {**root, "consolidated_metadata": {**root["consolidated_metadata"], "metadata": arrays}}


def unshard_root(content: bytes) -> tuple[bytes, dict[str, Sharding]]:
    """Return a root whose arrays have the chunks of the shards, and the sharding of each array by path."""
    root = json.loads(content)
    arrays, shardings = dict(root["consolidated_metadata"]["metadata"]), {}
    for path, document in arrays.items():
        codec = (document.get("codecs") or [{}])[0]
        if codec.get("name") != _CODEC:
            continue
        configuration = codec["configuration"]
        chunk, shard = configuration["chunk_shape"], document["chunk_grid"]["configuration"]["chunk_shape"]
        counts = tuple(whole // size for whole, size in zip(shard, chunk, strict=True))
        shardings[path] = Sharding(path, _grid(document["shape"], chunk), counts)
        grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
        arrays[path] = {**document, "chunk_grid": grid, "codecs": configuration["codecs"]}
    plain = {**root, "consolidated_metadata": {**root["consolidated_metadata"], "metadata": arrays}}
    return json.dumps(plain).encode(), shardings


def metadata_files(root: bytes) -> dict[str, bytes]:
    """Return the metadata files of all groups and arrays by key, from the consolidated metadata of a root."""
    found = {}
    for path, document in json.loads(root)["consolidated_metadata"]["metadata"].items():
        document = {name: value for name, value in document.items() if name != "consolidated_metadata"}
        found[f"{path}/{ROOT}"] = json.dumps(document, indent=2).encode()
    return found


def pack_shard(contents: Sequence[bytes | None]) -> bytes:
    """Return a shard with the given encoded chunks, None for absent ones, and its index."""
    index = np.full((len(contents), 2), _ABSENT, "<u8")
    offset = 0
    for k, content in enumerate(contents):
        if content is not None:
            index[k] = offset, len(content)
            offset += len(content)
    return b"".join([*(content for content in contents if content is not None), add_checksum(index.tobytes())])


def read_index(content: bytes, n_chunks: int) -> np.ndarray:
    """Return offsets and lengths of the chunks of a shard, shape (n_chunks, 2), from its end; 2⁶⁴ - 1 if absent."""
    n_bytes = 16 * n_chunks + _CHECKSUM_BYTES
    try:
        return np.frombuffer(remove_checksum(content[-n_bytes:]), "<u8").reshape(n_chunks, 2)
    except ValueError as error:
        raise DamagedChunkError("the index of a shard fails its checksum") from error


class ShardReader:
    """Reader of chunks of a compact store by their keys in the original; those of a damaged index have no content."""

    def __init__(self, files: Files, shardings: Mapping[str, Sharding]) -> None:
        self._files, self._shardings = files, shardings
        self._index = lru_cache(maxsize=_CACHED_INDICES)(self._read_index)  # errors are not cached

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return encoded chunks by key; a shard that holds several of them is read once, as a whole."""
        places: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        found: dict[str, bytes | None] = {}
        for key in keys:
            sharding = self._sharding(key)
            if sharding is None:
                found[key] = self._files.read(key)
            else:
                shard, at = sharding.locate(key)
                places[shard, sharding.n_chunks][key] = at
        for (shard, n_chunks), of_shard in places.items():
            found |= self._read_shard(shard, n_chunks, of_shard)
        return found

    def _read_shard(self, shard: str, n_chunks: int, places: Mapping[str, int]) -> Mapping[str, bytes | None]:
        """Return some chunks of a shard by key, from their positions in its index."""
        content = self._files.read(shard) if len(places) > 1 else None
        try:
            index = self._index(shard, n_chunks) if content is None else read_index(content, n_chunks)
        except FileNotFoundError:
            return dict.fromkeys(places)
        except DamagedChunkError:
            return dict.fromkeys(places, b"")
        found: dict[str, bytes | None] = {}
        for key, at in places.items():
            offset, length = map(int, index[at])
            span = offset, offset + length
            if offset == _ABSENT:
                found[key] = None
            else:
                found[key] = self._files.read(shard, *span) if content is None else content[slice(*span)]
        return found

    def exists(self, key: str) -> bool:
        """Return True if the chunk exists, or if the index of its shard is damaged."""
        return self._files.exists(key) if self._sharding(key) is None else self.read_many([key])[key] is not None

    def _sharding(self, key: str) -> Sharding | None:
        return self._shardings.get(key.rpartition("/c/")[0])

    def _read_index(self, shard: str, n_chunks: int) -> np.ndarray:
        content = self._files.read(shard, -(16 * n_chunks + _CHECKSUM_BYTES))
        if content is None:
            raise FileNotFoundError(shard)
        return read_index(content, n_chunks)


def _grid(shape: Sequence[int], chunk: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-length // size) for length, size in zip(shape, chunk, strict=True))
