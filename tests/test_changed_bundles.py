"""Files that are no bundle, or that somebody has changed: `judge` refuses each in one line, and writes nothing."""

import io
import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bundled import verified
from conformance.errors import UserError
from reports.bundles import archive as bundle_file
from reports.bundles.archive import MANIFEST, Manifest, Member, pack, unpack

__all__ = ["verified"]  # a fixture
SAMPLE: Mapping[str, bytes] = {
    "results.jsonl": b"one\n",
    "console.log": b"x" * 700,
    f"points/{'n' * 180}.json": b"{}",
}


def test_every_changed_byte_and_every_truncation_is_found(tmp_path):
    path, folder = tmp_path / "bundle", tmp_path / "folder"
    pack(path, {"words": "as they are"}, SAMPLE)
    data = path.read_bytes()
    for number in range(len(data)):
        for rest in (bytes([data[number] ^ (1 << number % 8)]) + data[number + 1 :], b""):
            path.write_bytes(data[:number] + rest)
            folder.mkdir()
            with pytest.raises(UserError, match="is not a bundle, or was changed"):
                unpack(path, folder)
            shutil.rmtree(folder)


InTar = tuple[tarfile.TarInfo, bytes]


def named(name: str, **fields: Any) -> tarfile.TarInfo:
    """Returns the header of a member with these fields."""
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def tar_of(*members: InTar) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def xz(*members: InTar) -> bytes:
    """Returns the archive of these members, compressed with xz."""
    return lzma.compress(tar_of(*members))


def manifest_of(files: Mapping[str, bytes], **more: Any) -> bytes:
    return Manifest(more, {name: Member.of(data) for name, data in files.items()}).encoded()


GOOD = {"results.jsonl": b"one\n"}
FIRST = (named(MANIFEST), manifest_of(GOOD))
RESULT = (named("results.jsonl"), GOOD["results.jsonl"])


def claimed(manifest: bytes, *more: InTar) -> bytes:
    """Returns an archive with this manifest, these members, and the results."""
    return xz((named(MANIFEST), manifest), *more, RESULT)


def instead(data: bytes, **fields: Any) -> bytes:
    """Returns an archive with the good manifest, whose member for the results has these data and header fields."""
    return xz(FIRST, (named("results.jsonl", **fields), data))


HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "an empty file": lambda: b"",
    "text": lambda: b"no bundle\n",
    "a tar that is not compressed": lambda: tar_of(FIRST, RESULT),
    "no manifest": lambda: xz(RESULT),
    "the manifest not first": lambda: xz(RESULT, FIRST),
    "a manifest that is not JSON": lambda: claimed(b"{" * 999),
    "a manifest nested too deeply": lambda: claimed(b"[" * 99_999),
    "a manifest of another schema": lambda: claimed(b'{"schema": "x/1"}'),
    "a manifest with its files twice": lambda: claimed(
        manifest_of(GOOD).replace(b'"files"', b'"files": {}, "files"'),
    ),
    "a path that leads out": lambda: claimed(
        manifest_of({"../../evil": b"evil", **GOOD}),
        (named("../../evil"), b"evil"),
    ),
    "a path that leads out of points": lambda: claimed(
        manifest_of({"points/../x.json": b"", **GOOD}),
    ),
    "an absolute path": lambda: claimed(
        manifest_of({"/tmp/evil": b"", **GOOD}),
        (named("/tmp/evil"), b""),
    ),
    "a name with a control character": lambda: claimed(
        manifest_of({"points/\x1b[2J.json": b"", **GOOD}),
    ),
    "a symbolic link": lambda: instead(b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": lambda: instead(b"", type=tarfile.LNKTYPE, linkname=MANIFEST),
    "a device": lambda: instead(b"", type=tarfile.CHRTYPE),
    "a missing member": lambda: xz(FIRST),
    "an additional member": lambda: xz(FIRST, RESULT, (named("console.log"), b"x")),
    "a member twice": lambda: xz(FIRST, RESULT, RESULT),
    "a byte changed": lambda: instead(b"two\n"),
    "another size": lambda: instead(b"one\none\n"),
    "another owner": lambda: instead(b"one\n", uid=1000),
    "a size of 8 GiB": lambda: lzma.compress(
        named(MANIFEST, size=8 << 30).tobuf() + bytes(1 << 20),
    ),
    "a negative size": lambda: lzma.compress(
        named(MANIFEST, size=-1).tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20),
    ),
    "files of 1 TiB": lambda: claimed(
        manifest_of(GOOD).replace(b'"size": 4', b'"size": 1099511627776'),
    ),
    "a bomb behind the end": lambda: _packed()[:-12] + lzma.compress(bytes(64 << 20)),
    "another stream behind the end": lambda: _packed() + lzma.compress(b"more"),
    "a byte behind the end": lambda: _packed() + b"\0",
    "xz without a check": lambda: _packed(lzma.CHECK_NONE),
    "xz with CRC32": lambda: _packed(lzma.CHECK_CRC32),
    "xz with CRC64": lambda: _packed(lzma.CHECK_CRC64),
    "a memory limit": lambda: lzma.compress(
        tar_of(FIRST, RESULT),
        filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 29}],
    ),
}


def _packed(check: int = lzma.CHECK_SHA256) -> bytes:
    compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, check, preset=6)
    content = tar_of(FIRST, RESULT)[: 4 * 512 + 1024]
    return compressor.compress(content) + compressor.flush()


def test_a_repacked_bundle_is_refused_because_a_member_has_another_header(tmp_path, verified):
    (tmp_path / "bundle").write_bytes(xz((named(MANIFEST, uid=1000), FIRST[1]), RESULT))
    said = verified(2, tmp_path / "bundle")
    assert "begin with" not in said
    assert (
        "is not a bundle, or was changed: the archive differs from what `bundle` writes, at manifest.json"
        in said
    )


def test_a_bundle_of_another_version_is_refused_as_such(tmp_path, verified):
    other = manifest_of(GOOD).replace(b"rdma-cts-bundle/1", b"rdma-cts-bundle/2")
    (tmp_path / "bundle").write_bytes(claimed(other))
    assert verified(2, tmp_path / "bundle") == (
        f"rdma-cts: {tmp_path / 'bundle'} is a bundle of another version, rdma-cts-bundle/2; this version reads "
        "rdma-cts-bundle/1; use the version of rdma-cts that wrote this file\n"
    )
    by = {**json.loads(other), "bundled_by": {"version": "9.1.0"}}
    (tmp_path / "bundle").write_bytes(claimed(json.dumps(by).encode()))
    assert "rdma-cts-bundle/2 of rdma-cts 9.1.0; this" in verified(2, tmp_path / "bundle")


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_and_writes_nothing(what, tmp_path, verified):
    path = tmp_path / "bundle"
    path.write_bytes(HOSTILE[what]())
    said = verified(2, path)
    assert "is not a bundle, or was changed: " in said
    assert said.isascii()
    assert "\x1b" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_fifo_is_not_waited_for(tmp_path, verified):
    os.mkfifo(tmp_path / "fifo")
    assert "cannot be read: not a regular file" in verified(2, tmp_path / "fifo")


def test_a_bomb_within_the_bounds_of_its_manifest_is_refused(tmp_path, monkeypatch, verified):
    pack(tmp_path / "bundle", {}, {**GOOD, "console.log": bytes(1 << 20)})
    assert (tmp_path / "bundle").stat().st_size < 2000
    monkeypatch.setattr(bundle_file, "MOST_BYTES", 1 << 19)
    assert "it is too large: a bundle has at most 0 MiB unpacked" in verified(
        2,
        tmp_path / "bundle",
    )


def test_the_packed_sample_is_a_bundle_with_the_right_checksum(tmp_path):
    (tmp_path / "bundle").write_bytes(_packed())
    (tmp_path / "folder").mkdir()
    assert unpack(tmp_path / "bundle", tmp_path / "folder")[0].files.keys() == GOOD.keys()
