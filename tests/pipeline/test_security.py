"""Tests that TLS needs certificates, and that profiles and stores contain no code."""

import json
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import pipeline
import pipeline.clusters.cluster
from pipeline.clusters.profiles import Profile, load_profile
from pipeline.runs.submission import last_submission
from pipeline.store.files.locations import STATE
from pipeline.store.result_store import ResultStore
from tests.pipeline.faults.harness import dask_processes
from tests.pipeline.helpers import TOY_FILE, assert_equal_arrays, make_study, refusal

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "cluster.yaml"

# TLS


def write_authority(folder, name):
    """Write a certificate authority and a certificate; return the paths of authority, certificate and key."""
    today = datetime.now(UTC)

    def sign(subject, public_key, issuer, issuer_key, is_ca):
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - timedelta(hours=1))
            .not_valid_after(today + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(issuer_key, hashes.SHA256())
        )

    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = sign(name, authority_key.public_key(), name, authority_key, True)
    certificate = sign("host", key.public_key(), name, authority_key, False)
    paths = tuple(str(folder / f"{name}-{part}.pem") for part in ("ca", "cert", "key"))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    for path, content in zip(paths, (authority.public_bytes(pem), certificate.public_bytes(pem), private), strict=True):
        Path(path).write_bytes(content)
    return paths


def security_of(ca, certificate, key):
    return {"tls_ca_file": ca, "tls_client_cert": certificate, "tls_client_key": key, "require_encryption": True}


@pytest.mark.slow
def test_tls_requires_a_certificate(tmp_path, monkeypatch):
    """Results over TLS equal those on threads; clients without a valid certificate are refused before any write."""
    ours, others = (write_authority(tmp_path, name) for name in ("ours", "others"))
    arguments = {"panels": ["means"], "trials": 8}
    pipeline.run(str(TOY_FILE), tmp_path / "threads.zarr", **arguments)
    ca, certificate, key = ours
    tls = ("--protocol", "tls", "--tls-ca-file", ca, "--tls-cert", certificate, "--tls-key", key)
    with dask_processes(tmp_path, {"PYTHONPATH": str(ROOT)}, protocol="tls", options=tls) as address:
        plain = address.replace("tls", "tcp")
        profiles = {
            "ours": {"address": address, "security": security_of(*ours)},
            "nothing": {"address": plain},
            "no-certificate": {"address": address, "security": {"tls_ca_file": ours[0], "require_encryption": True}},
            "another-authority": {"address": address, "security": security_of(*others)},
            # trusts our authority, but has a certificate of another one
            "forged": {"address": address, "security": security_of(ours[0], *others[1:])},
        }
        (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": profiles}))
        pipeline.run(str(TOY_FILE), tmp_path / "tls.zarr", cluster=f"{tmp_path}/c.yaml:ours", **arguments)
        assert_equal_arrays(tmp_path / "threads.zarr", tmp_path / "tls.zarr")
        # the driver is a client on a worker that has a certificate for workers only
        pipeline.submit(str(TOY_FILE), tmp_path / "sent.zarr", cluster=f"{tmp_path}/c.yaml:ours", **arguments)
        while last_submission(ResultStore.open(tmp_path / "sent.zarr")).is_open:
            time.sleep(0.2)
        assert_equal_arrays(tmp_path / "threads.zarr", tmp_path / "sent.zarr")
        monkeypatch.setattr(pipeline.clusters.cluster, "_CONNECT_SECONDS", 1)
        for name in profiles.keys() - {"ours"}:
            with refusal("no scheduler responds", "security") as caught:
                pipeline.run(str(TOY_FILE), tmp_path / "refused.zarr", cluster=f"{tmp_path}/c.yaml:{name}", **arguments)
            needs = "its TLS needs a client certificate: add tls_client_cert and tls_client_key"
            assert (needs in str(caught.value)) == (name == "no-certificate"), name
            assert not (tmp_path / "refused.zarr").exists()


@pytest.mark.parametrize(
    ("message", "security"),
    [
        ("unknown key 'tls_client_certificate'; did you mean tls_client_cert", {"tls_client_certificate": "a.pem"}),
        ("tls_ca_file must be a file in PEM format; no file exists at 'ca.pem'", {"tls_ca_file": "ca.pem"}),
        ("tls_client_key must be a file in PEM format; no file exists at '***'", {"tls_client_key": "me.key"}),
        ("tls_ca_file must be a file in PEM format, got 3", {"tls_ca_file": 3}),
        ("tls_ca_file must be a file in PEM format, got Is a directory", {"tls_ca_file": "FOLDER"}),
        ("tls_ca_file must be a file in PEM format with a certificate, got none", {"tls_ca_file": "FOLDER/bytes"}),
        ("tls_ca_file must be a file in PEM format with a certificate, got none", {"tls_ca_file": "FOLDER/text"}),
        ("tls_ca_file must be a certificate in PEM format, got", {"tls_ca_file": "FOLDER/broken"}),
        ("tls_ca_file must be a certificate in PEM format, got", {"tls_ca_file": "-----BEGIN CERTIFICATE-----\nhush"}),
        ("tls_client_key must be a file in PEM format, got '***'", {"tls_client_key": ["hush"]}),
        ("tls_client_key must be a file in PEM format with a private key, got none", {"tls_client_key": "hush\nhush"}),
        ("tls_client_key must be a file in PEM format without a passphrase", {"tls_client_key": "FOLDER/locked"}),
        (
            "tls_client_cert and tls_client_key must be a certificate and its private key, got KEY_VALUES_MISMATCH",
            {"tls_ca_file": "OURS-ca", "tls_client_cert": "OURS-cert", "tls_client_key": "OTHERS-key"},
        ),
        ("require_encryption must be true or false, got 'yes please'", {"require_encryption": "yes please"}),
        ("tls_ciphers must be a list of OpenSSL ciphers, got", {"tls_ciphers": "hush"}),
        ("tls_min_version must be 771 for TLS 1.2 or 772 for TLS 1.3, got 1.1", {"tls_min_version": 1.1}),
        ("extra_conn_args must be a mapping, got 'x'", {"extra_conn_args": "x"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_credentials_are_refused_before_connecting(tmp_path, monkeypatch, message, security):
    for name in ("ours", "others"):
        write_authority(tmp_path, name)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "text").write_text("hush")
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n")
    (tmp_path / "locked").write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nhush\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    places = {"FOLDER": str(tmp_path), "OURS-": f"{tmp_path}/ours-", "OTHERS-": f"{tmp_path}/others-"}

    def placed(value):
        for word, place in places.items():
            value = value.replace(word, place) if isinstance(value, str) else value
        return f"{value}.pem" if str(value).startswith((places["OURS-"], places["OTHERS-"])) else value

    monkeypatch.setattr(pipeline.clusters.cluster, "Client", Mock(side_effect=AssertionError("it connects")))
    profile = Profile("a", address="tls://h:1", security={key: placed(value) for key, value in security.items()})
    with refusal(f"profile a: security: {message}"), pipeline.clusters.cluster.connect(profile):
        pass


# Files


def test_profiles_cannot_execute_code(tmp_path):
    trace = tmp_path / "trace"
    path = tmp_path / "c.yaml"
    for call in (
        f"pathlib.Path.touch [!!python/object:pathlib.Path {trace}]",
        f"os.system ['touch {trace}']",
    ):
        path.write_text(f"profiles: {{a: !!python/object/apply:{call}}}\n")
        with refusal("must be YAML"):
            load_profile(str(path))
    assert not trace.exists()
    yaml.unsafe_load(path.read_text())  # negative control: the tag is executable
    assert trace.exists()


DATA_TYPES = {"bool", "int8", "int16", "int32", "int64", "float32", "float64", "string"}


def strangers_of(store):
    """Return the files of a store that are neither metadata nor chunks of plain numbers or text."""
    found = []
    for path in [path for path in Path(store).rglob("*") if path.is_file()]:
        if path.relative_to(store).parts[0] == STATE:
            if not isinstance(json.loads(path.read_text()), dict):
                found.append(path)
        elif path.name == "zarr.json":
            metadata = json.loads(path.read_text())
            nodes = [metadata, *(metadata.get("consolidated_metadata") or {"metadata": {}})["metadata"].values()]
            arrays = [node for node in nodes if node["node_type"] == "array"]
            codecs = {codec["name"] for node in arrays for codec in node["codecs"]}
            types = {str(node["data_type"]) for node in arrays}
            if not codecs <= {"bytes", "vlen-utf8", "zstd", "blosc", "crc32c"} or not types <= DATA_TYPES:
                found.append(path)
        elif "c" not in path.relative_to(store).parts or not (path.name.isdigit() or path.name == "c"):
            found.append(path)
    return found


def test_a_store_holds_no_pickles(tmp_path):
    """A store contains no pickles, even if its study exists only in memory and is sent to workers as a pickle."""

    def halve(data, setting, streams):
        return {"x": data / 2, "error": ["small" if value < 0.5 else "" for value in data]}

    store = tmp_path / "s.zarr"
    pipeline.run(make_study(halve, trials=6, block_trials=2), store)
    assert len(list(store.rglob("zarr.json"))) > 3
    assert strangers_of(store) == []
    text = " ".join(path.read_text() for path in store.rglob("zarr.json"))
    assert "pickle" not in text
    assert "halve" in text  # the store contains the names of the methods


def test_pickles_in_a_store_are_detected(tmp_path):
    """An array with the pickle codec, and an unexpected file, are detected (negative control)."""
    (tmp_path / "x").mkdir()
    array = {"node_type": "array", "data_type": "float64", "codecs": [{"name": "numcodecs.pickle"}]}
    (tmp_path / "x" / "zarr.json").write_text(json.dumps(array))
    (tmp_path / "study.pkl").write_bytes(b"")
    assert len(strangers_of(tmp_path)) == 2
