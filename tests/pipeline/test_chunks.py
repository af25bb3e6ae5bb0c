"""Tests that chunks encoded without Zarr's event loop are, byte by byte, those that Zarr writes and reads."""

import tracemalloc
from unittest.mock import Mock

import numpy as np
import pytest
import zarr
from numcodecs import Blosc, Zstd
from numcodecs.checksum32 import CRC32C
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ZstdCodec
from zarr.storage import MemoryStore

from pipeline.errors import DamagedChunkError
from pipeline.store.codec.chunks import Chunks

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")
CODECS = (ZstdCodec(level=1), Crc32cCodec())
VALUES = {
    "float64": np.array([0.1, -np.inf, np.nan, 5e-324, -0.0, 1e300, 2.0]),
    "float32": np.linspace(-1, 1, 7, dtype="f4"),
    "int64": np.array([0, -(2**63), 2**63 - 1, 1, 2, 3, 4]),
    "uint8": np.arange(249, 256, dtype="u1"),
    "int8": np.arange(-3, 4, dtype="i1"),
    "bool": np.array([True, False, True, True, False, False, True]),
}


def make(dtype, **changes):
    files = {}
    root = zarr.create_group(MemoryStore(files), zarr_format=3)
    options = {"shape": (2, 7), "chunks": (1, 4), "dtype": dtype, "compressors": CODECS, **changes}
    array = root.create_array("panel/x", **options).with_config({"write_empty_chunks": True})
    zarr.consolidate_metadata(MemoryStore(files))
    return files, array, Chunks(files["zarr.json"].to_bytes())


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("serializer", ["auto", BytesCodec(endian="big")], ids=["default", "big endian"])
def test_bytes_equal_those_of_zarr(dtype, serializer):
    files, array, chunks = make(dtype, serializer=serializer)
    for trials in (slice(0, 4), slice(4, 7)):
        region = (slice(1, 2), trials)
        values = VALUES[dtype][trials]
        array[region] = values[None]
        encoded = chunks.encode("panel", "x", [region], values)
        assert encoded == {key: files[key].to_bytes() for key in encoded}
        decoded = chunks.decode("panel", "x", region, encoded)
        np.testing.assert_array_equal(decoded, np.asarray(array[region]), strict=True)
        inner = (slice(1, 2), slice(trials.start + 1, trials.stop))
        np.testing.assert_array_equal(chunks.decode("panel", "x", inner, encoded)[0], values[1:], strict=True)


@pytest.mark.parametrize("dtype", VALUES)
def test_regions_of_several_chunks_equal_those_of_zarr(dtype):
    """Regions that cover parts of several chunks are joined, with the fill value for absent chunks."""
    files, array, chunks = make(dtype)
    array[0, :4], array[1] = VALUES[dtype][:4], VALUES[dtype]  # the chunk of row 0 from column 4 is absent
    for region in ((slice(0, 2), slice(0, 7)), (slice(0, 2), slice(3, 6)), (slice(0, 1), slice(4, 7))):
        contents = {key: files[key].to_bytes() if key in files else None for key in chunks.keys("panel", "x", region)}
        decoded = chunks.decode("panel", "x", region, contents)
        np.testing.assert_array_equal(decoded, np.asarray(array[region]), strict=True)


def test_array_without_dimensions_equals_that_of_zarr():
    files, array, chunks = make("float64", shape=(), chunks=())
    for values in (None, np.array(0.5)):
        if values is not None:
            array[()] = values
        contents = {key: files[key].to_bytes() if key in files else None for key in chunks.keys("panel", "x", ())}
        assert len(contents) == 1
        assert values is None or contents == chunks.encode("panel", "x", [()], values)
        np.testing.assert_array_equal(chunks.decode("panel", "x", (), contents), np.asarray(array[()]), strict=True)


def test_texts_equal_those_of_zarr():
    files, array, chunks = make("string")
    for trials, texts in ((slice(0, 4), ["", "Ünïcode", "x" * 300, "two\nlines"]), (slice(4, 7), ["", "last", ""])):
        region, values = (slice(1, 2), trials), np.array(texts, np.dtypes.StringDType())
        array[region] = values[None]
        encoded = chunks.encode("panel", "x", [region], values)
        assert encoded == {key: files[key].to_bytes() for key in encoded}
        np.testing.assert_array_equal(chunks.decode("panel", "x", region, encoded), np.asarray(array[region]))


def test_numbers_compressed_by_blosc_equal_those_of_zarr():
    files, array, chunks = make("int64", compressors=(BloscCodec(cname="zstd"), Crc32cCodec()))
    array[0, :4] = VALUES["int64"][:4]
    contents = {"panel/x/c/0/0": files["panel/x/c/0/0"].to_bytes()}
    decoded = chunks.decode("panel", "x", (slice(0, 1), slice(0, 4)), contents)
    np.testing.assert_array_equal(decoded, np.asarray(array[0:1, :4]), strict=True)


BOMBS = {  # content of a chunk by kind, of which each is a few kB and expands to 1 GB or more
    "float64": Zstd().encode(np.zeros(2**27)),
    "string": Zstd().encode(np.zeros(2**27)),
    "count of texts": Zstd().encode(b"\xff\xff\xff\xff" + bytes(16)),
    "undeclared size": b"\x28\xb5\x2f\xfd\x00\x58\x61\x00\x00\x00",
    "blosc": Blosc(cname="zstd").encode(np.zeros(2**26)),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_chunk_that_expands_beyond_its_array_is_damage(kind):
    """The size of a chunk is checked before it is decompressed."""
    codecs = (BloscCodec(), Crc32cCodec()) if kind == "blosc" else CODECS
    dtype = "float64" if kind in ("float64", "blosc") else "string"
    chunks = make(dtype, compressors=codecs)[2]
    content = bytes(CRC32C(location="end").encode(BOMBS[kind]))
    assert len(content) < 10**6
    tracemalloc.start()
    with pytest.raises(DamagedChunkError, match="a chunk must have"):
        chunks.decode("panel", "x", (slice(0, 1), slice(0, 4)), {"panel/x/c/0/0": content})
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


def test_one_content_for_several_regions():
    _, _, chunks = make("float64")
    regions = [(slice(k, k + 1), slice(0, 4)) for k in range(2)]
    encoded = chunks.encode("panel", "x", regions, np.arange(4.0))
    assert list(encoded) == ["panel/x/c/0/0", "panel/x/c/1/0"]
    assert len(set(encoded.values())) == 1
    assert chunks.encode("panel", "x", [], np.arange(4.0)) == {}


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "other shape"])
def test_damage_raises(change):
    _, _, chunks = make("float64")
    region = (slice(0, 1), slice(0, 4))
    (key, content), *_ = chunks.encode("panel", "x", [region], np.arange(4.0)).items()
    other = make("float64", shape=(2, 8), chunks=(1, 8))[2]
    damaged = {
        "flip": bytes([content[0] ^ 1]) + content[1:],
        "cut": content[:-1],
        "empty": b"",
        "other shape": other.encode("panel", "x", [(slice(0, 1), slice(0, 8))], np.arange(8.0))[key],
    }[change]
    with pytest.raises(DamagedChunkError, match=r"\w"):
        chunks.decode("panel", "x", region, {key: damaged})


def test_other_errors_are_not_taken_for_damage(monkeypatch):
    """An error outside the codecs, or a lack of memory in one, is raised as it is: the chunk may be intact."""
    _, _, chunks = make("float64")
    region = (slice(0, 1), slice(0, 4))
    contents = chunks.encode("panel", "x", [region], np.arange(4.0))
    for name, error in (("_join", TypeError("a defect")), ("_Codecs.decode", MemoryError())):
        with monkeypatch.context() as patch:
            patch.setattr(f"pipeline.store.codec.chunks.{name}", Mock(side_effect=error))
            with pytest.raises(type(error)):
                chunks.decode("panel", "x", region, contents)
    np.testing.assert_array_equal(chunks.decode("panel", "x", region, contents), [[0.0, 1.0, 2.0, 3.0]])
