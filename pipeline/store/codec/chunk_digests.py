"""Digests that bind the chunks of a block to the chunk of its status, which commits them.

The chunk of a status consists of the compressed statuses, a skippable frame of Zstandard (RFC 8878, section 3.1.2),
which every decoder ignores, and a checksum. The frame has the digests of the block's encoded chunks, one per variable,
in one set or, if the block is being replaced, in several; a checksum of what the block is; and the number of sets.
So a lost, copied, swapped or older chunk is noticed, although its own checksum is correct, also one of another store of
the study: a block is its study, seed, key, cell and setting, and the declaration of its panel. In stores of formats
before 9, it is its study, seed and key.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import google_crc32c

from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import DamagedChunkError

ABSENT = bytes(8)
"""Digest of an absent chunk."""
_MAGIC = 0x184D2A50
_HEAD, _SIZE, _CHECKSUM = 8, len(ABSENT), 4
_MOST_SETS = 255


def digest(content: bytes | None) -> bytes:
    """Return the digest of an encoded chunk."""
    return ABSENT if content is None else blake2b(content, digest_size=_SIZE).digest()


def add_checksum(content: bytes) -> bytes:
    """Return content followed by its checksum, as the codec ``crc32c`` does."""
    return content + google_crc32c.value(content).to_bytes(_CHECKSUM, "little")


def remove_checksum(content: bytes, key: str = "a chunk") -> bytes:
    """Return content without its checksum; raise `DamagedChunkError` if the checksum differs."""
    inner = content[:-_CHECKSUM]
    if google_crc32c.value(inner).to_bytes(_CHECKSUM, "little") != content[-_CHECKSUM:]:
        raise DamagedChunkError(f"{key} fails its checksum")
    return inner


@dataclass(frozen=True)
class ChunkDigests:
    """Digests in the chunks of statuses of a store."""

    scopes: Mapping[str, str]  # by panel: what all of its blocks have in common
    variables: Mapping[
        str, tuple[str, ...]
    ]  # by panel: `error` and the measures in declared order, whose chunks are bound
    labels: Mapping[str, Sequence[Sequence[str]]]  # by panel: those of the indices of a chunk, for each dimension

    @classmethod
    def of(cls, spec: Mapping[str, Any], *, is_labelled: bool) -> "ChunkDigests":
        """Return the digests of a store with a spec, whose identities of blocks have labels or, earlier, do not."""
        panels = spec["panels"]
        scope = f"{spec['study']}/{spec['seed']}"
        return cls(
            {name: f"{scope}/{_declaration(spec, panel)}" if is_labelled else scope for name, panel in panels.items()},
            {name: ("error", *panel["measures"]) for name, panel in panels.items()},
            {name: _labels(panel) if is_labelled else () for name, panel in panels.items()},
        )

    def bind(self, key: str, status: bytes, sets: bytes) -> bytes:
        """Return the encoded chunk of a status with sets of digests, each in the order of the variables."""
        panel = key.partition("/")[0]
        size = _SIZE * len(self.variables[panel])
        kept = sets[-_MOST_SETS * size :]
        payload = b"".join([kept, self._identity(key), bytes([len(kept) // size])])
        return add_checksum(status[:-_CHECKSUM] + struct.pack("<II", _MAGIC, len(payload)) + payload)

    def unbind(self, key: str, content: bytes) -> tuple[bytes, bytes]:
        """Return the encoded chunk of a status without digests and checksum, and its sets of digests."""
        inner = remove_checksum(content, key)
        stop = len(inner) - 1 - _CHECKSUM
        start = stop - _SIZE * len(self.variables[key.partition("/")[0]]) * inner[-1] if inner else 0
        if start < _HEAD or inner[stop:-1] != self._identity(key):
            raise DamagedChunkError(f"{key} is not the status of this block", "inconsistent")
        return inner[: start - _HEAD], inner[start:stop]

    def statuses(self, contents: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
        """Return the encoded chunks of statuses without digests, by key."""
        checked: dict[bytes, bytes] = {}  # many statuses are equal
        statuses: dict[str, bytes | None] = {}
        for key, content in contents.items():
            if content is not None:
                inner = self.unbind(key, content)[0]
                content = checked.get(inner) or checked.setdefault(inner, add_checksum(inner))
            statuses[key] = content
        return statuses

    def digests(self, name: str, key: str, content: bytes) -> list[bytes]:
        """Return the digests of one variable in the chunk of a status."""
        variables, sets = self.variables[key.partition("/")[0]], self.unbind(key, content)[1]
        return [sets[at : at + _SIZE] for at in range(_SIZE * variables.index(name), len(sets), _SIZE * len(variables))]

    def _identity(self, key: str) -> bytes:
        panel, _, _, *indices = key.split("/")
        labels = [labels[int(index)] for index, labels in zip(indices, self.labels[panel], strict=False)]
        text = "/".join([self.scopes[panel], key, *labels])
        return google_crc32c.value(text.encode()).to_bytes(_CHECKSUM, "little")


def _declaration(spec: Mapping[str, Any], panel: Mapping[str, Any]) -> str:
    """Return the hash of the fields of a spec and a panel that no extension changes."""
    fields = {name: panel[name] for name in ("version", "block_trials", "outputs", "constants", "measures", "dims")}
    return sha256(canonical_json([spec["version"], fields]))


def _labels(panel: Mapping[str, Any]) -> list[list[str]]:
    """Return the labels of the indices of a status chunk, for each dimension but that of trials, in order."""
    values = {**panel["factors"], **panel["method_factors"]}
    methods = [f"{name} {panel['methods'][name]['version']}" for name in panel["method_order"]]
    return [[repr(value) for value in values[dim]] if dim in values else methods for dim in panel["dims"]]
