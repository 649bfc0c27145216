"""Signs bundles and checks signatures. ssh-keygen does this with the user's own keys. BUNDLE.sig is next to
BUNDLE. commands/verify.py checks the verdicts of a bundle."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from conformance.errors import UserError
from conformance.older_python import zip
from conformance.regular_file import read_regular
from conformance.results.files import write_atomically

SUFFIX = ".sig"
NAMESPACE = "rdma-cts-bundle"  # signatures of other data with the same key are invalid for a bundle
_PROGRAM = "ssh-keygen"
_MOST_BYTES = 1 << 16  # the limit for a signature file; real signatures have less than 4 KiB


def path_of(bundle: Path) -> Path:
    return bundle.with_name(bundle.name + SUFFIX)


def check(key: Path) -> None:
    """Raises UserError if this file is not a key. Asks for no passphrase, and does not use the key."""
    try:
        read_regular(key, _MOST_BYTES)
    except OSError as error:
        raise UserError(f"--sign {key} cannot be read: {error.strerror}") from error
    _run(["-l", "-f", str(key)], f"--sign {key} is not a key of ssh-keygen")


def sign(data: bytes, key: Path, target: Path) -> None:
    """Writes the signature of a bundle's bytes. `key` is the file of a private key, or of a public key whose private
    key ssh-agent has. ssh-keygen asks for a passphrase on the terminal. Raises UserError."""
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
        file = Path(name, "bundle")
        file.write_bytes(data)
        _run(["-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(file)], f"{key} cannot sign")
        write_atomically(target, path_of(file).read_bytes())


def signer(bundle: Path, data: bytes, signers: Path) -> str:
    """Returns the signer of these bytes: the first principal in the file of allowed signers whose key has made the
    signature. Raises UserError (status 2) if no key of an allowed signer has made the signature."""
    where = path_of(bundle)
    try:
        signature = read_regular(where, _MOST_BYTES)
        allowed = read_regular(signers)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}", hint=_HINT) from error
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
        files = Path(name, "signature"), Path(name, "signers")
        for path, content in zip(files, (signature, allowed), strict=True):
            path.write_bytes(content)
        arguments = ["-s", str(files[0]), "-f", str(files[1])]
        wrong = f"{where} is not a signature of {bundle} by a signer in {signers}"
        principals = _run(["-Y", "find-principals", *arguments], wrong).splitlines()[:1]
        if not principals:
            raise UserError(wrong)
        _run(["-Y", "verify", *arguments, "-n", NAMESPACE, "-I", principals[0]], wrong, data)
    return principals[0]


_HINT = (
    "bundle --sign KEY writes BUNDLE.sig; SIGNERS has lines as in ssh-keygen(1), ALLOWED SIGNERS"
)


def _run(arguments: Sequence[str], wrong: str, data: bytes = b"") -> str:
    """Returns the output of ssh-keygen -Y. Raises UserError, whose message begins with `wrong`."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise UserError(
            f"the program {_PROGRAM} is not installed",
            hint="install openssh-client",
            status=3,
        )
    done = subprocess.run(
        [program, *arguments],
        input=data,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    if done.returncode:
        lines = [
            line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()
        ]
        raise UserError(f"{wrong}: {lines[-1]}" if lines else wrong)
    return done.stdout.decode("utf-8", "replace")
