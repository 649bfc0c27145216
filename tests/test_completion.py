"""Completion of commands and options in a shell."""

from __future__ import annotations

import pytest

from commands.__main__ import COMMANDS, main
from launched import ended


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rdma-cts nig", ["nightly"]),
        ("rdma-cts run --ti", ["--tier"]),
        ("rdma-cts run --tier ", ["smoke", "default", "exhaustive"]),
        ("rdma-cts run --quiet --tier ex", ["exhaustive"]),
        ("rdma-cts compare /etc/passw", ["/etc/passwd"]),
        ("rdma-cts compare --device", []),
        ("rdma-cts run --verb rere", ["rereg_mr", "rereg_mr_experimental"]),
        ("rdma-cts run --rule REG-09", ["REG-09", "REG-09a"]),
        ("rdma-cts run --port ", []),
        ("rdma-cts run /etc/passw", []),
        ("rdma-cts completion fi", ["fish"]),
        ("rdma-cts trial ker", ["kernel"]),
        ("rdma-cts trial kernel --mut", ["--mutant"]),
        ("rdma-cts trial reference --rule REG-09", ["REG-09", "REG-09a"]),
        ("rdma-cts trial mended --list --cha", ["--change"]),
        ("rdma-cts trial reference --mut", []),
    ],
)
def test_bash_offers_what_fits(line: str, offered: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = line.split(" ")
    ask = f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; _rdma_cts"
    text = f'{script}\n{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = ended("bash", "-uc", text, check=True)
    found = [each for each in done.stdout.splitlines() if each not in ("", "/etc/passwd-")]
    assert (found, done.stderr) == (offered, "")


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "#compdef rdma-cts\n"), ("fish", "complete -c rdma-cts")])
def test_other_shells_know_all_commands(shell: str, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert sign in script
    assert all(f"{name} " in script for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["run", "--devcie", "x"], " (did you mean --device?); see ./rdma-cts run --help"),
        (["run", "reg_mr"], " (did you mean --verb reg_mr?); see ./rdma-cts run --help"),
        (["run", "ibv_dereg_mr"], " (did you mean --verb dereg_mr?); see ./rdma-cts run --help"),
        (["list", "REG-15"], " (did you mean --rule REG-15?); see ./rdma-cts list --help"),
        (["run", "reg_mr/keys/a"], " (did you mean --only reg_mr/keys/a?); see ./rdma-cts run --help"),
        (["doctor", "REG-15"], "unrecognized arguments: REG-15; see ./rdma-cts doctor --help"),
    ],
)
def test_what_was_meant_is_suggested(arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rdma-cts: {arguments[0]}: unrecognized arguments: ")
    assert error.endswith(f"{meant}\n")
