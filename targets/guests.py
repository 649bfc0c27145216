"""The guests of a run: prepares their parts, boots the next guest for given cases, and opens a shell in a guest.
fixtures/guest/ builds and boots a guest."""

import itertools
import shlex
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from conformance import cache
from conformance.errors import PROGRAM, UserError
from conformance.results.files import writing
from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT
from fixtures.guest import derivation, exchange
from fixtures.guest.freezing import ingredients_of
from fixtures.guest.guest import Guest, boot
from fixtures.guest.image import ensure_image
from fixtures.guest.job import Job
from fixtures.guest.qemu import machine_for
from fixtures.guest.recipe import DEFAULT_STACK, recipe_for
from fixtures.guest.request import LATE, MARK, ONLY, PYTEST, PYTHON, Request, recorded_to
from fixtures.guest.template import Templates
from fixtures.guest.under_test import Prepared
from fixtures.system import console as consoles
from fixtures.system import packages
from fixtures.system.cache import cache_directory
from fixtures.system.line_reader import new_mark
from targets import builds

PORT = "/dev/virtio-ports/rdma-cts.results"
# The paths of the project that a guest needs.
SUITE_PARTS = (
    *"conformance reference cases conftest.py tox.ini".split(),
    *(
        f"trial/{name}.py"
        for name in "__init__ comparison nearest plugin searching sequences".split()
    ),
    *(f"fixtures/{name}.py" for name in "__init__ bench system/__init__ system/processes".split()),
    *(
        f"fixtures/guest/{name}.py"
        for name in "__init__ derivation exchange ready request warm".split()
    ),
    "fixtures/guest/watch.sh",
)
# Further paths of the project for a shell in the guest, in which the suite runs as on any host.
_SHELL_PARTS = (
    "rdma-cts commands targets runs bundles fixtures reports reproducers profiles waivers".split()
)
_PROFILE = Path("profile.yaml")
_FEW = 40  # with more cases, a template with the software under test saves time

# Puts the cases into a control group: the kernel counts all RDMA objects of a group, including memory windows.
_COUNTED = """\
group=/sys/fs/cgroup
mount -t cgroup2 cgroup2 $group && echo +rdma >$group/cgroup.subtree_control && mkdir $group/cases &&
    echo $$ >$group/cases/cgroup.procs"""


class Guests:
    """The guests of one run. Their consoles are logged in console.log, console-2.log, … in the directory `out`. Several
    threads may start guests. The kernel kills a guest when the thread that has started the guest ends."""

    def __init__(
        self, options: RunOptions, out: Path, say: Callable[[str], None], assume_yes: bool = False
    ) -> None:
        """Checks the builds under test, installs missing packages and builds a missing image. Unless `assume_yes`, it
        asks before it installs packages. Raises UserError."""
        self._options = options
        self._say = say
        builds.check(options)
        self._environment = builds.environment_from(options)
        tools = builds.tools_from(options)
        packages.ensure_tools(packages.GUEST, assume_yes=assume_yes, say=say)
        self.stack = options.stack or DEFAULT_STACK
        recipe = recipe_for(self.stack)
        self._image = ensure_image(recipe, cache_directory(), say, tools)
        self.driver = builds.guest_driver(options)
        self._under_test, given = builds.under_test(options, recipe, self._image, say)
        self.given = self._under_test.hashes() | given
        if self._environment:
            self.given["environment"] = self._environment
        if self._image.expired:
            self.given["expired"] = self._refused_if_strict(self._image.expired)
        # True if the guest runs no software of the user except builds that replace a part of the stack.
        self._is_unmodified = not (self._environment or tools or options.cases)
        self._is_clean = set(self.given) <= {"image", "expired"} and self._is_unmodified
        self._vendor = [
            (folder.resolve(), f"vendor/{number}") for number, folder in enumerate(options.cases)
        ]
        self._out = out
        self._prepared: Prepared | None = None
        self._templates = Templates(cache_directory(), say)
        self._lock = (
            threading.Lock()
        )  # protects data that all guests share: the overlay, and the names of files

    def _refused_if_strict(self, expired: Sequence[str]) -> list[str]:
        """Returns the Debian suites with expired package lists. Raises UserError if --strict-packages is given."""
        if self._options.strict_packages:
            what = f"the guest's image was made from package lists that have expired: {', '.join(expired)}"
            hint = f"name a current mirror in RDMA_CTS_MIRROR, and remove {self._image.root.parent}"
            raise UserError(what, hint=hint, status=3)
        return list(expired)

    @property
    def accelerator(self) -> str:
        return machine_for(self._image, None).accelerator

    def run(self, cases: Sequence[str]) -> Guest:
        """Starts the next guest for these cases, and returns the guest when it is up."""
        prepared, name = self._next()
        request = self._request(cases)
        if not self._options.keep:
            console = self._out / f"console{name}.log"
            began = time.monotonic()
            if guest := self._resume(cases, request, prepared, console):
                version, took = prepared.image.kernel_version, time.monotonic() - began
                self._say(
                    f"the guest is up after {took:.2f} s (kernel {version}; its console: {console})"
                )
                return guest
        watch = f"sh fixtures/guest/watch.sh $$ {request.silence_s:.1f} &"
        command = shlex.join(
            ["exec", *PYTHON, "-m", "pytest", *PYTEST, *request.folders, *request.arguments]
        )
        return self._boot("\n".join([_COUNTED, watch, command]), request, prepared, name)

    def run_again(self, cases: Sequence[str]) -> Guest:
        """Resumes a guest for these cases; its console is not kept. Raises UserError if no guest can be resumed."""
        with self._lock:
            prepared = self._lay_out()
        work = Path(tempfile.mkdtemp(prefix="work-", dir=self._out))
        guest = None
        if not self._options.keep:
            guest = self._resume(cases, self._request(cases), prepared, work / "console.log")
        if guest is None:
            message = "a violation needs a separate guest, and on this host guests are booted, not resumed"
            raise UserError(message, status=3)
        return guest

    def shell(self) -> None:
        """Opens a shell in a guest on this program's terminal. Returns when the shell exits."""
        from fixtures.guest import terminal  # imported late: cases do not need it

        host_end, guest_end = socket.socketpair()
        with host_end, guest_end:
            self._environment |= terminal.size()
            command, parts = (
                f"{_COUNTED}\n{terminal.SHELL}",
                [(ROOT / part, part) for part in _SHELL_PARTS],
            )
            with self._boot(command, Request(()), *self._next(), parts, guest_end):
                guest_end.close()
                self._say(
                    f"this is a shell in the guest, in the suite's directory; the device is {self.driver.device};"
                    f" {PROGRAM} runs there as on this host; `exit` ends the guest"
                )
                terminal.relay(host_end)

    def _request(self, cases: Sequence[str]) -> Request:
        return Request(
            (*recorded_to(PORT), *self._arguments(self._options)),
            tuple(
                sorted({f"cases/{case.partition('/')[0]}" for case in cases})
            ),  # pytest collects only these folders
            {ONLY: "".join(f"{case}\n" for case in cases), MARK: new_mark()},
            self._options.case_deadline_s / 3,
        )

    def _arguments(self, options: RunOptions) -> list[str]:
        tables = tuple(Path(name) for _, name in self._vendor)
        inside = options.inside_guest(
            self.driver.device, tables, _PROFILE if self._options.profile else None
        )
        return ["--rdma-alone", *inside.plugin_arguments()]

    def _resume(
        self, cases: Sequence[str], request: Request, prepared: Prepared, console: Path
    ) -> Guest | None:
        """Returns a guest that was resumed from a template and has received the request; None if no template can be
        used. If there is no template with the software under test and there are few cases, a guest of the image's own
        template loads this software."""
        ingredients = ingredients_of(prepared.image, self._waiting(prepared), prepared.overlay)
        if prepared.exchange and len(cases) <= _FEW and not self._templates.has(ingredients):
            own = Prepared(prepared.image)
            asked = replace(
                request, files={**request.files, exchange.FILE: prepared.exchange.packed()}
            )
            late = replace(self._waiting(own, LATE), is_clean=self._is_unmodified)
            return self._templates.start(ingredients_of(own.image, late), asked, console)
        return self._templates.start(ingredients, request, console)

    def _waiting(self, prepared: Prepared, *how: str) -> Job:
        """Returns the job of a guest that loads the modules for a session and waits for a request."""
        usual = self._arguments(RunOptions(guest=True))
        wait = shlex.join(["exec", *PYTHON, "-m", "fixtures.guest.warm", PORT, *how, *usual])
        return self._job("\n".join([_COUNTED, wait]), prepared)

    def _job(self, command: str, prepared: Prepared, *more: tuple[Path, str]) -> Job:
        tree = [*((ROOT / part, part) for part in SUITE_PARTS), *more, *self._vendor]
        if self._options.profile:
            tree.append((self._options.profile, str(_PROFILE)))
        environment = {cache.DIRECTORY: derivation.FOLDER, **self.driver.environment}
        environment |= {**prepared.environment, **self._environment}
        kept = derivation.folder_of(cache_directory(), prepared.image.base)
        return Job(tuple(tree), command, environment, prepared.prepare, kept, self._is_clean)

    def _boot(
        self,
        command: str,
        request: Request,
        prepared: Prepared,
        name: str,
        more: Sequence[tuple[Path, str]] = (),
        shell: socket.socket | None = None,
    ) -> Guest:
        """Boots a guest that runs the command, with the files of the request and `more` files of the project."""
        console = self._out / f"console{name}.log"
        self._say(
            f"booting the guest (kernel {prepared.image.kernel_version}; its console: {console})"
        )
        guest = boot(
            prepared.image,
            replace(self._job(command, prepared, *more), files=request.files),
            console=console,
            overlay=prepared.overlay,
            keep=self._out / f"guest{name}" if self._options.keep else None,
            terminal=shell.fileno() if shell else None,
            mark=request.mark,
        )
        self._say(f"the guest is up after {guest.up['uptime_s']} s")
        return guest

    def _next(self) -> tuple[Prepared, str]:
        """Returns the parts of the next guest, and the suffix of its files, which is different for each guest."""
        with self._lock:
            return self._lay_out(), _new_console(self._out)

    def _lay_out(self) -> Prepared:
        """Returns the parts that all guests use. The first call prepares these parts."""
        if self._prepared is None:
            if self._options.keep:
                stage = self._out / "own-build"
                shutil.rmtree(stage, ignore_errors=True)  # left by the run that is resumed
            else:
                self._out.mkdir(parents=True, exist_ok=True)
                stage = Path(tempfile.mkdtemp(prefix="work-", dir=self._out))
            self._prepared = self._under_test.lay_out(stage)
        return self._prepared


def _new_console(out: Path) -> str:
    """Creates the file of the next guest's console. Returns the suffix of the guest's files: none, -2, -3 …. The files
    of earlier guests remain."""
    for ending in itertools.chain([""], (f"-{number}" for number in itertools.count(2))):
        path = out / f"console{ending}.log"
        with writing(path), suppress(FileExistsError):
            out.mkdir(parents=True, exist_ok=True)
            consoles.create(path)
            return ending
    raise AssertionError("there is always another name")
