"""Chunks as bytes: encoded and decoded by Zarr in memory, from the metadata of a root that passed its check."""

import threading
from collections.abc import Mapping
from itertools import product

import numpy as np
import zarr
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from pipeline.errors import DamagedChunkError
from pipeline.stores.places import ROOT
from pipeline.stores.regions import write_region

Region = tuple[slice, ...]


class Chunks:
    """Encodes and decodes the chunks of a store's arrays; each thread has arrays of its own.

    Parameters
    ----------
    root : bytes
        The root with consolidated metadata.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._local = threading.local()

    def array(self, panel: str, name: str) -> zarr.Array:
        """Return an array of this thread: its metadata are the store's, its chunks are in memory."""
        if not hasattr(self._local, "arrays"):
            self._local.contents = {ROOT: Buffer.from_bytes(self._root)}
            self._local.group = zarr.open_group(MemoryStore(self._local.contents), mode="r+")
            self._local.arrays = {}
        arrays = self._local.arrays
        if (panel, name) not in arrays:
            array = self._local.group[f"{panel}/{name}"]
            assert isinstance(array, zarr.Array)
            arrays[panel, name] = array.with_config({"write_empty_chunks": True})  # an absent chunk means damage
        return arrays[panel, name]

    def keys(self, panel: str, name: str, region: Region) -> list[str]:
        """Return the keys of the chunks that a region covers, the last dimension fastest."""
        array = self.array(panel, name)
        spans = []
        for part, size, chunk in zip(region, array.shape, array.chunks, strict=True):
            start, stop, _ = part.indices(size)
            spans.append(range(start // chunk, -(-stop // chunk)))
        return [f"{array.path}/{array.metadata.encode_chunk_key(position)}" for position in product(*spans)]

    def encode(self, panel: str, name: str, region: Region, values: np.ndarray) -> dict[str, bytes]:
        """Return the encoded chunks of a region that covers whole chunks, by key."""
        array = self.array(panel, name)
        write_region(array, region, values)
        keys = self.keys(panel, name, region)
        return {key: self._local.contents.pop(key).to_bytes() for key in keys}

    def decode(self, panel: str, name: str, region: Region, contents: Mapping[str, bytes | None]) -> np.ndarray:
        """Return the values of a region from its encoded chunks; an absent chunk gives the fill value.

        Raises
        ------
        DamagedChunkError
            If a chunk fails its checksum or cannot be decoded.
        """
        array = self.array(panel, name)
        keys = self.keys(panel, name, region)
        held = self._local.contents
        held.update({key: Buffer.from_bytes(content) for key in keys if (content := contents[key]) is not None})
        try:
            return np.asarray(array[region])
        except Exception as error:  # nothing is read here, so whatever a codec raises is damage
            raise DamagedChunkError(" ".join(str(error).split()) or type(error).__name__) from error
        finally:
            for key in keys:
                held.pop(key, None)
