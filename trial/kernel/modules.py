"""Compiles the modules of mutants in a build environment that is kept between runs, and caches them by a digest of
their sources."""

import difflib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from conformance.errors import UserError
from fixtures.guest.changes import RDMA_CORE, Change, apply, read_changes
from fixtures.guest.driver import DEFAULT_DRIVER, Driver
from fixtures.guest.image import Image
from fixtures.guest.kept import Shelf
from fixtures.guest.mending import mender, pristine
from fixtures.guest.recipe import Recipe


class NotMade(Exception):
    """A module of a mutant that could not be made. `fits` is true if the anchors fit, and only the compiler refused the
    source."""

    def __init__(self, reason: str, fits: bool) -> None:
        super().__init__(reason)
        self.fits = fits


class Modules:
    """Compiles one module for each set of mutants. The set is applied to the driver's sources; for rxe, these are the
    mended sources."""

    def __init__(
        self,
        recipe: Recipe,
        image: Image,
        cache: Path,
        driver: Driver,
        say: Callable[[str], None],
    ) -> None:
        self._recipe, self._image, self._cache = recipe, image, cache
        self._driver, self._say = driver, say
        self._folder = MUTANTS.of(cache)
        self.seconds: list[float] = []  # the duration of each compilation
        if self._driver.name == DEFAULT_DRIVER:
            changes = read_changes()
        else:
            changes = ()
        self._unmutated = apply(changes, pristine(recipe, image, cache, say, driver))[0]
        self._compiler = ThreadPoolExecutor(1)  # compiles while a guest runs cases
        self._compiling: dict[Path, Future[None]] = {}

    def check(self, changes: Sequence[Change]) -> dict[str, str]:
        """Returns the sources with these changes. Raises NotMade if the changes do not fit the sources."""
        texts, misfits = apply(changes, self._unmutated)
        if misfits:
            raise NotMade(next(iter(misfits.values())), fits=False)
        return texts

    def patch(self, change: Change) -> str:
        """Returns a change of the sources as a patch. Raises NotMade."""
        return patch(change.about, self._unmutated, self.check([change]))

    def begin(self, sets: Iterable[Sequence[Change]]) -> None:
        """Begins to compile the modules with each of these sets of changes, one after the other."""
        for changes in sets:
            with suppress(NotMade):
                self._begun(changes)

    def of(self, changes: Sequence[Change]) -> Path:
        """Returns the module with these changes; compiles it if it is not in the cache. If the changes concern the
        provider, the changed provider is next to the module, with the same name. Raises NotMade."""
        path = self._begun(changes)
        if compiling := self._compiling.get(path):
            compiling.result()
        os.utime(path)
        return path

    @property
    def file_name(self) -> str:
        """The name of the module's file in the image."""
        return f"{self._driver.module}.ko"

    def close(self) -> None:
        """Cancels the compilations that have not begun."""
        self._compiler.shutdown(cancel_futures=True)

    def path(self, changes: Sequence[Change]) -> Path:
        """Returns the place of the module with these changes, which other changes with the same sources have, too. Raises
        NotMade if the changes do not fit the sources."""
        return self._path(self.check(changes))

    def _path(self, texts: Mapping[str, str]) -> Path:
        sources = json.dumps([self._image.kernel_version, dict(texts)], sort_keys=True)
        return self._folder / f"{hashlib.sha256(sources.encode()).hexdigest()[:32]}.ko"

    def _begun(self, changes: Sequence[Change]) -> Path:
        texts = self.check(changes)
        path = self._path(texts)
        if not path.exists() and (path not in self._compiling or self._compiling[path].done()):
            self._compiling[path] = self._compiler.submit(self._compile, changes, texts, path)
        return path

    def _compile(self, changes: Sequence[Change], texts: Mapping[str, str], path: Path) -> None:
        with mender(self._recipe, self._image, self._cache, self._say, self._driver) as shop:
            began = time.monotonic()
            try:
                compiled = shop.compile(texts)
            except UserError as error:
                raise NotMade(str(error), fits=True) from error
            self.seconds.append(time.monotonic() - began)
            ours = any(file.startswith(RDMA_CORE) for change in changes for file in change.files)
            # stores the module last: if it exists, its provider also exists
            for file in reversed(compiled):
                if ours or file.stem == self._driver.module:
                    _keep(file, path.with_suffix(file.suffix))


def patch(about: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Returns the differences of the sources, by file name, as a patch that `git apply` takes; `about` is its text."""
    lines = [about.strip(), ""]
    for file, text in after.items():
        lines += difflib.unified_diff(
            before[file].splitlines(),
            text.splitlines(),
            f"a/{file}",
            f"b/{file}",
            lineterm="",
        )
    return "\n".join(lines) + "\n"


def _keep(module: Path, path: Path) -> None:
    part = path.with_suffix(".part")
    shutil.copyfile(module, part)
    part.rename(path)
    MUTANTS.prune(path.parent.glob("*.ko"))


def _remove(module: Path) -> None:
    """Removes a module with its provider."""
    module.unlink(missing_ok=True)
    module.with_suffix(".so").unlink(missing_ok=True)


MUTANTS = Shelf("mutants", 2000, _remove)
