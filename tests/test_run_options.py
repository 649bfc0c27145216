"""Tests that RunOptions has all options of a run, and that the parsers read the command lines made from RunOptions."""

import argparse
import functools
import shlex
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from _pytest.config.argparsing import Parser
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from commands import run
from commands.cli import choice, run_arguments
from conformance.errors import UserError
from conformance.model.vocabulary import DIALECTS, TIERS
from conformance.option import GUEST, HOST, name_of
from conformance.pytest_plugin.options import add_options
from conformance.results.plan import Plan, read_plan, write_plan
from conformance.run_options import OPTIONS, RunOptions
from conformance.supervision.run import Run
from conformance.tables.suite import ROOT
from conformance.tables.tiers import Shard
from fixtures.guest.driver import DRIVERS
from fixtures.guest.recipe import STACKS
from fixtures.system import usable
from fixtures.system.architecture import ARCHITECTURES
from fixtures.targets import builds, target
from kinds import words

ROWS = """\
- {id: harmless, rules: [REG-01], when: {access: []}, then: open}
- {id: hazardous, rules: [REG-01], hazardous: true, when: {access: []}, then: open}
"""
MEMORY = "given: {memory: {buf: {kind: anonymous, size: 4 pages}}}\n"
HARMLESS, HAZARDOUS = samples.suite([samples.table("reg_mr/sample", ROWS, 2)]).cases
# Independent second lists: options that do not affect the outcome of a case, and options for only one target.
NOT_DECIDING = set(
    words(
        "console power_cycle return_within guests subject no_confirm confirm verify_calls keep verbs rules words only tier shard tools "
        "strict_packages waivers against",
    ),
)
HOST_ONLY = set(
    words(
        "peer wire_peer exporter host console power_cycle return_within device port gid_index shared isolate hazardous",
    ),
)
GUEST_ONLY = set(
    words(
        "guest guests stack arch driver kernel modules linux sanitize overlay guest_env without verify_calls keep tools"
        " strict_packages",
    ),
)

# Words that a shell or a parser could misinterpret; argparse before Python 3.13 does not accept "--" as a value.
TEXTS = st.sampled_from(
    ["x", "-x", "--guest", "a b", "'\"", "$HOME", "#", "a=b", "-5", "*", "~", "é\n", "\\"],
)
DEVICES = st.sampled_from(["x", "-x", "--guest", "mlx5_0,mlx5_1", "'$HOME'", "*", "\\"])
PATHS = TEXTS.map(Path)
SECONDS = st.floats(0, 1e6, exclude_min=True) | st.integers(1, 1000).map(float)


UNTIMED = settings(deadline=None, max_examples=50)


def several(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3).map(tuple)


GIVEN = st.builds(
    RunOptions,
    **dict.fromkeys(words("peer host console power_cycle isolate"), st.none() | TEXTS),
    **dict.fromkeys(
        words("kernel modules rdma_core overlay profile waivers exporter"), st.none() | PATHS
    ),
    **dict.fromkeys(words("guest_env without verbs rules words only"), several(TEXTS)),
    **dict.fromkeys(words("guest shared hazardous keep no_confirm sanitize"), st.booleans()),
    return_within=SECONDS,
    wire_losses=st.none() | st.floats(0, 30, exclude_min=True),
    deadline=st.none() | st.floats(1, 1e6) | st.integers(1, 1000).map(float),
    device=st.none() | DEVICES,
    port=st.integers(1, 1_000_000),
    gid_index=st.none() | st.integers(0, 1_000_000),
    guests=st.none() | st.integers(1, 64),
    stack=st.none() | st.sampled_from(sorted(STACKS)),
    arch=st.none() | st.sampled_from(sorted(ARCHITECTURES)),
    driver=st.none() | st.sampled_from(sorted(DRIVERS)),
    tier=st.sampled_from(sorted(TIERS)),
    shard=st.none() | st.builds(Shard, st.just(2), st.integers(2, 10_000)),
    cases=several(PATHS),
    dialect=st.none() | st.sampled_from(DIALECTS),
    confirm=st.none() | st.sampled_from(["drawn", "all"]),
    poster=st.none() | st.sampled_from(["wr", "wire"]),
    seed=st.none() | st.integers(1 - 2**63, 2**63 - 1),
).filter(lambda options: not (options.confirm and options.no_confirm))
SETTLED = st.builds(RunOptions.on, GIVEN, st.just("") | DEVICES)
CASES = st.sampled_from([HARMLESS, HAZARDOUS])


@functools.cache
def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    run.add_arguments(parser)
    return parser


def parsed(arguments: list[str]) -> RunOptions:
    return run_arguments.options_from(command_line().parse_args(arguments))


def parsed_by_pytest(arguments: list[str]) -> dict[str, Any]:
    """Returns the result of pytest's parser for the arguments, by the names of the fields."""
    parser = Parser(_ispytest=True) if hasattr(pytest, "StashKey") else Parser()
    add_options(parser)
    options = vars(parser.parse_known_args(arguments))
    plain = {
        name: options[f"rdma_{option.flag.removeprefix('--').replace('-', '_')}"]
        for name, option in OPTIONS.items()
        if option.plugin
    }
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
    }


def without(options: RunOptions, names: set[str]) -> RunOptions:
    defaults: dict[str, Any] = {name: getattr(RunOptions(), name) for name in names}
    return replace(options, **defaults)


def test_every_field_has_one_option():
    assert list(OPTIONS) == [field.name for field in fields(RunOptions)]
    assert len({option.flag for option in OPTIONS.values()}) == len(OPTIONS)
    assert {name for name, option in OPTIONS.items() if not option.decides} == NOT_DECIDING
    assert {name for name, option in OPTIONS.items() if option.only_on == HOST} == HOST_ONLY
    assert {name for name, option in OPTIONS.items() if option.only_on == GUEST} == GUEST_ONLY


@UNTIMED
@given(SETTLED, CASES)
def test_the_command_that_reproduces_a_case_or_a_point_runs_it_alone_in_the_same_place(
    options, case
):
    point = "#access=LOCAL_WRITE+MW_BIND,flags=none"
    program, command, *arguments, last = shlex.split(f"{options.reproduction(case)}{point}")
    assert (program, command, last) == ("./rdma-cts", "run", f"{case.id}{point}")
    arguments.append(case.id)
    expected = without(options, NOT_DECIDING | (HOST_ONLY if options.guest else GUEST_ONLY))
    expected = replace(expected, guest_env=tuple(map(name_of, expected.guest_env)))
    if options.device and case is HAZARDOUS:  # on a host, a hazardous case needs `--hazardous`
        expected = replace(expected, hazardous=True)
    assert parsed(arguments) == replace(expected, only=(case.id,))


def test_a_reproducing_command_has_only_options_that_differ_from_the_defaults():
    assert (
        RunOptions().on("").reproduction(HARMLESS) == f"./rdma-cts run --guest --only {HARMLESS.id}"
    )
    hazardous = RunOptions(port=2, deadline=12.5, seed=7).on("mlx5_0").reproduction(HAZARDOUS)
    expected = (
        f"--device mlx5_0 --port 2 --hazardous --deadline 12.5 --seed 7 --only {HAZARDOUS.id}"
    )
    assert hazardous == f"./rdma-cts run {expected}"


@pytest.mark.usefixtures("project")
def test_a_hazardous_case_runs_on_a_host_by_its_own_command(monkeypatch, tmp_path):
    """The target gets only this case."""
    table = f"verb: ibv_reg_mr\ncases: 2\n{MEMORY}rows:\n{ROWS}"
    table_folder = samples.laid(tmp_path / "own", {"reg_mr/sample.yaml": table})
    # this host seems to have a device with a usable port
    monkeypatch.setattr(usable, "device_names", lambda: ["rxe7"])
    monkeypatch.setattr(usable, "Port", lambda *_: SimpleNamespace(check=lambda gid_index: None))
    monkeypatch.setattr(target, "prepare", lambda run, *_: run)
    plan = Mock(side_effect=UserError("enough"))
    monkeypatch.setattr(run, "write_plan", plan)
    options = replace(RunOptions(shared=True, cases=(table_folder,)).on("rxe7"), verbs=("reg_mr",))
    _, _, *arguments = shlex.split(options.reproduction(HAZARDOUS))
    with pytest.raises(UserError, match="enough"):
        run.execute(command_line().parse_args([*arguments, "--out", str(tmp_path / "out")]))
    chosen, *_ = plan.call_args.args
    assert chosen.planned == (HAZARDOUS.id,)


def test_a_case_that_can_end_only_its_process_runs_on_every_host():
    deadly = replace(HARMLESS, ends_process=True)
    cases = [HARMLESS, deadly, HAZARDOUS]
    messages: list[str] = []
    on_host = choice.of_target(Run(RunOptions(device="rxe7"), Mock(), cases), messages.append)
    assert on_host.cases == [HARMLESS, deadly]
    assert (HARMLESS.alone, deadly.alone, HAZARDOUS.alone) == (False, True, True)
    assert messages == ["left out 1 case that can crash the kernel (see --hazardous)"]


@UNTIMED
@given(GIVEN)
def test_a_command_resolved_from_the_projects_directory_names_the_same_files(options):
    assert options.seen_from_project(ROOT) == options
    seen = options.seen_from_project(Path("/elsewhere"))
    assert seen.cases == tuple(Path("/elsewhere") / folder for folder in options.cases)
    for name in ("profile", "waivers", "kernel", "modules", "linux", "rdma_core", "overlay"):
        path = getattr(options, name)
        assert getattr(seen, name) == (path and Path("/elsewhere") / path)


@UNTIMED
@given(GIVEN)
def test_a_plan_keeps_all_options_of_a_run(tmp_path_factory, options):
    folder = tmp_path_factory.mktemp("plan")
    write_plan(Plan(tuple(options.arguments()), "/", (), "0", "host", {}), folder)
    assert parsed(list(read_plan(folder).argv)) == options


@UNTIMED
@given(SETTLED)
def test_pytest_gets_the_same_options_on_a_host_and_in_the_guest_its_own_device_and_files(options):
    # pytest does not get the tier, because --rdma-only names the cases.
    guest_options: dict[str, Any] = {"tier": RunOptions().tier}
    on_host = options.on("rxe0")
    by_pytest = parsed_by_pytest(on_host.plugin_arguments())
    assert {
        "device",
        "deadline",
        "seed",
        "port",
        "profile",
        "dialect",
        "cases",
    } <= set(by_pytest)
    assert by_pytest == {name: getattr(on_host, name) for name in by_pytest} | guest_options
    in_guest = options.on("")
    cases, profile = (Path("vendor/0"),), Path("profile.yaml")
    by_pytest = parsed_by_pytest(in_guest.inside_guest("rxe0", cases, profile).plugin_arguments())
    guest_options |= {
        "device": "rxe0",
        "port": 1,
        "gid_index": None,
        "exporter": None,
        "peer": None,
        "cases": cases,
        "profile": profile,
    }
    assert by_pytest == {name: getattr(in_guest, name) for name in by_pytest} | guest_options


def test_the_refusal_of_a_guest_option_on_this_hosts_device_names_the_missing_option():
    """The other refusals are in tests/mistakes.txt."""
    with pytest.raises(
        UserError,
        match=r"^--kernel is for the guest, not for a device of this host; add --guest$",
    ):
        builds.refuse_on_host(RunOptions(kernel=Path("k")))
