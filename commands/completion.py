"""`rdma-cts completion`: prints what a shell needs to complete commands and options with the Tab key.

The text is complete in itself: no Python starts when somebody presses Tab. The packages install it for all users.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from commands.arguments import NAME as PROGRAM
from commands.arguments import Parser

_FILES = "--"  # among the choices of an option: its value is a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="for example: source <(./rdma-cts completion bash)")


def execute(arguments: argparse.Namespace) -> int:
    """Prints the script of the shell; exit status 0."""
    from commands.__main__ import COMMANDS, parser_of  # which finds this command by its name

    print(SCRIPTS[arguments.shell](parser_of(COMMANDS).commands()), end="")
    return 0


def _values(parser: Parser) -> Iterator[tuple[str, str]]:
    """Each long option of a command, with its choices, "" if it takes no value, _FILES for any other value."""
    for action in parser._actions:
        choices = " ".join(map(str, action.choices)) if action.choices else "" if action.nargs == 0 else _FILES
        yield from ((name, choices) for name in action.option_strings if name.startswith("--"))


def _bash(commands: dict[str, Parser]) -> str:
    lines = [f"# {PROGRAM} for bash", "_rdma_cts() {", "    local words= files="]
    lines += ["    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}; COMPREPLY=()"]
    lines += ['    [ "$COMP_CWORD" != 1 ] || command=', '    case "$command ${COMP_WORDS[COMP_CWORD - 1]}" in']
    lines += [f'        " "*) words="{" ".join(commands)}" ;;']
    for name, parser in commands.items():
        values = dict(_values(parser))
        for option, choices in values.items():
            if choices:
                what = "files=1" if choices == _FILES else f'words="{choices}"'
                lines.append(f'        "{name} {option}") {what} ;;')
        lines.append(f'        "{name} "*) words="{" ".join(values)}" files=1 ;;')
    lines += ["    esac", "    [[ $current != -* ]] || files="]
    lines += ['    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))']
    lines += ['    [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "$current"))']
    return "\n".join([*lines, "}", f"complete -o filenames -F _rdma_cts {PROGRAM} ./{PROGRAM}", ""])


def _zsh(commands: dict[str, Parser]) -> str:
    return f"#compdef {PROGRAM}\nautoload -U +X bashcompinit && bashcompinit\n{_bash(commands)}"


def _fish(commands: dict[str, Parser]) -> str:
    lines = [f"# {PROGRAM} for fish"]
    for name, parser in commands.items():
        about = str(parser.description).replace("'", "")
        lines.append(f"complete -c {PROGRAM} -n __fish_use_subcommand -f -a {name} -d '{about}'")
        for option, choices in _values(parser):
            value = {"": "", _FILES: " -r"}.get(choices, f" -x -a '{choices}'")
            lines.append(f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {name}' -l {option[2:]}{value}")
    return "\n".join([*lines, ""])


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
