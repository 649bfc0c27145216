"""Packs and unpacks the file of a bundle, a tar archive in xz. The bundles of the same run have equal bytes.

`unpack` compares every byte with what `pack` would write for the same files. The manifest, the first member, has their
names, sizes and hashes; the bytes between the files follow from these. xz detects a changed byte of compressed data.
docs/bundles.md describes the layout."""

import hashlib
import json
import lzma
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from conformance.errors import UserError
from conformance.model.printable import one_line, plain
from conformance.regular_file import open_regular
from conformance.results.checked_json import parse
from conformance.results.files import not_written, write_atomically
from conformance.results.records import FILE_NAME as RESULTS

SCHEMA = "rdma-cts-bundle/1"
_OTHER_SCHEMA = re.compile(r"rdma-cts-bundle/[0-9]{1,9}")
SUFFIX = ".rdma-cts.tar.xz"
MANIFEST, WAIVERS, PROFILE = "manifest.json", "waivers.yaml", "profile.yaml"
MOST_BYTES = 256 << 20  # the limit for the sum of all members; a default run has 4 MB
# permitted unpacked bytes: in any case, and per packed byte
_ALWAYS_UNPACKED, _MOST_RATIO = (48 << 20, 100)
_SLACK = 16 << 20  # further permitted bytes, for the manifest and the headers of tar
_MOST_OF_MANIFEST = 8 << 20
_MOST_FILES = 20_000
_MEMORY = 128 << 20  # the limit of the decompressor's memory
_CHECK = lzma.CHECK_SHA256
_BLOCK = 512  # the block size of tar
_CHUNK = 1 << 16
_NAME = re.compile(
    r"results\.jsonl|waivers\.yaml|profile\.yaml|console(-[0-9]+)?\.log|points/[^/]+\.json",
)
_LONGEST_NAME = 255
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Member:
    """The size in bytes and the SHA-256 of a file."""

    size: int
    sha256: str

    @staticmethod
    def of(data: bytes) -> "Member":
        return Member(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """The first member of a bundle. `about` describes the run, and `files` describes the other members."""

    about: Mapping[str, Any]
    files: Mapping[str, Member]

    @property
    def unpacked(self) -> int:
        """The size in bytes of all files together."""
        return sum(member.size for member in self.files.values())

    def encoded(self) -> bytes:
        data = {
            "schema": SCHEMA,
            **self.about,
            "files": {name: vars(member) for name, member in self.files.items()},
        }
        return (json.dumps(data, indent=1) + "\n").encode("ascii")

    @staticmethod
    def of(content: bytes) -> "Manifest":
        """Returns the manifest with this content. Raises ValueError if `encoded` does not return the same content."""
        try:
            data = dict(parse(content))
            if data.pop("schema") != SCHEMA:
                raise ValueError
            files = {name: Member(**member) for name, member in data.pop("files").items()}
            manifest = Manifest(plain(data), files)
            sizes = [member.size for member in files.values()]
            hashes = [member.sha256 for member in files.values()]
            good = (
                RESULTS in files
                and len(files) <= _MOST_FILES
                and list(files) == sorted(files)
                and all(map(_is_name, files))
                and all(type(size) is int and size >= 0 for size in sizes)
                and all(map(_SHA256.fullmatch, hashes))
                and manifest.encoded() == content
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ValueError from error
        if not good:
            raise ValueError
        return manifest


def _is_name(name: str) -> bool:
    return (
        bool(_NAME.fullmatch(name)) and name.isprintable() and len(name.encode()) <= _LONGEST_NAME
    )


def pack(path: Path, about: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Writes a bundle of these files. Raises UserError if a bundle cannot have one of the files, or if the bundle
    cannot be written."""
    if odd := next((name for name in files if not _is_name(name)), None):
        raise UserError(f"{one_line(odd)}: a bundle cannot have a file of this name")
    if len(files) > _MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise UserError(
            f"the run is too large for a bundle, which has at most {MOST_BYTES >> 20} MiB",
        )
    ordered = {name: files[name] for name in sorted(files)}
    manifest = Manifest(about, {name: Member.of(data) for name, data in ordered.items()})
    compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, _CHECK, preset=6)
    parts = []
    for name, data in {MANIFEST: manifest.encoded(), **ordered}.items():
        parts += [
            compressor.compress(part)
            for part in (_head(name, len(data)), data, _padding(len(data)))
        ]
    parts += [compressor.compress(_END), compressor.flush()]
    packed = b"".join(parts)
    if manifest.unpacked > _most_unpacked(len(packed)):
        raise UserError("the compression ratio of the run is too high for a bundle", hint=_REPEATED)
    write_atomically(path, packed)


_REPEATED = f"unpacked, a large run may be {_MOST_RATIO} times as large as its bundle; remove a console.log that repeats a line"


def _most_unpacked(packed: int) -> int:
    return _ALWAYS_UNPACKED + _MOST_RATIO * packed


_END = bytes(2 * _BLOCK)


def _head(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def unpack(path: Path, folder: Path) -> tuple[Manifest, str]:
    """Writes the files of a bundle to an empty directory. Returns the manifest and the SHA-256 of the bundle. Raises
    UserError with the reason if any byte of the bundle differs from what `pack` writes."""
    try:
        with open_regular(path) as file:
            source = _Source(file)
            try:
                return _unpacked(source, folder), source.sha256.hexdigest()
            except _WrongError as error:
                raise UserError(f"{path} is not a bundle, or was changed: {error}") from error
            except _OtherVersionError as error:
                what = (
                    f"{path} is a bundle of another version, {error}; this version reads {SCHEMA}"
                )
                raise UserError(
                    what,
                    hint="use the version of rdma-cts that wrote this file",
                ) from error
            except lzma.LZMAError as error:
                raise UserError(
                    f"{path} is not a bundle, or was changed: its compressed data are invalid",
                ) from error
    except OSError as error:
        if error.filename is not None and str(error.filename) != str(path):
            raise not_written(Path(str(error.filename)), error) from error
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


class _WrongError(Exception):
    """Raised with the problem of a bundle."""


class _OtherVersionError(Exception):
    """Raised with the schema of a bundle of a different version."""


def _packed_by(manifest: bytes) -> str:
    """Returns the version of rdma-cts that a manifest names, as words; empty if it names none."""
    named = parse(manifest).get("bundled_by")
    if isinstance(named, dict) and isinstance(named.get("version"), str):
        return f" of rdma-cts {one_line(named['version'])}"
    return ""


def _schema_of(manifest: bytes) -> str:
    """Returns the schema that a manifest names; empty if the manifest names no schema."""
    try:
        data = parse(manifest)
    except ValueError:
        return ""
    if isinstance(data, dict):
        return str(data.get("schema", ""))
    return ""


class _Source:
    """The decompressed content of a file. `sha256` covers the compressed bytes that were read so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
        self._packed = self._unpacked = 0  # bytes so far
        self.sha256 = hashlib.sha256()

    def read(self, size: int) -> Iterator[bytes]:
        """Yields the next `size` bytes in parts. Raises _WrongError if fewer bytes are left."""
        while size:
            if self._xz.eof:
                raise _WrongError("it ends too early")
            part = self._xz.decompress(self._more(), min(size, _CHUNK))
            size -= len(part)
            self._unpacked += len(part)
            if self._unpacked > _most_unpacked(self._packed) + _SLACK:
                raise _WrongError(f"its unpacked size is more than {_MOST_RATIO} times its size")
            yield part

    def _more(self) -> bytes:
        if not self._xz.needs_input:
            return b""
        data = self._file.read(_CHUNK)
        if not data:
            raise _WrongError("it ends too early")
        self.sha256.update(data)
        self._packed += len(data)
        return data

    def whole(self, size: int) -> bytes:
        return b"".join(self.read(size))

    def end(self) -> None:
        """Raises _WrongError if this is not the end of the file."""
        while not self._xz.eof:
            if self._xz.decompress(self._more(), 1):
                raise _WrongError("there are bytes after the last file")
        if self._xz.check != _CHECK:
            raise _WrongError(
                "the checksums of its compressed data are not of the kind that `bundle` writes",
            )
        if self._xz.unused_data or self._file.read(1):
            raise _WrongError("there are bytes after the compressed data")


def _unpacked(source: _Source, folder: Path) -> Manifest:
    head = source.whole(_BLOCK)
    try:
        first = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise _WrongError("it does not begin with a manifest") from error
    size = first.size
    if first.name != MANIFEST or not first.isreg() or not 0 <= size <= _MOST_OF_MANIFEST:
        raise _WrongError("it does not begin with a manifest")
    content = source.whole(size)
    if (schema := _schema_of(content)) != SCHEMA and _OTHER_SCHEMA.fullmatch(schema):
        raise _OtherVersionError(f"{schema}{_packed_by(content)}")
    if head != _head(MANIFEST, size):
        raise _WrongError(f"the archive differs from what `bundle` writes, at {MANIFEST}")
    try:
        manifest = Manifest.of(content)
    except ValueError as error:
        raise _WrongError("its manifest is invalid") from error
    if manifest.unpacked > MOST_BYTES:
        raise _WrongError(f"it is too large: a bundle has at most {MOST_BYTES >> 20} MiB unpacked")
    _expect(source, _padding(size), MANIFEST)
    for name, member in manifest.files.items():
        _expect(source, _head(name, member.size), name)
        digest = hashlib.sha256()
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        with target.open("xb") as file:
            for part in source.read(member.size):
                digest.update(part)
                file.write(part)
        if digest.hexdigest() != member.sha256:
            raise _WrongError(f"{one_line(name)} is not the file that the manifest describes")
        _expect(source, _padding(member.size), name)
    _expect(source, _END, "the end")
    source.end()
    return manifest


def _expect(source: _Source, data: bytes, where: str) -> None:
    if source.whole(len(data)) != data:
        raise _WrongError(f"the archive differs from what `bundle` writes, at {one_line(where)}")
