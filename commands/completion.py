"""`rdma-cts list completion`: prints a script with which a shell completes commands and options. The script needs no Python.
The packages install the script for all users."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from functools import cache

from commands.cli.arguments import NAME as PROGRAM
from commands.cli.arguments import Parser
from commands.cli.run_arguments import PATHS
from conformance.tables.suite import load_suite

_FILES = "--"  # this word among the possible values of an option means that the value is a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        choices=tuple(SCRIPTS),
        help="for example: source <(./rdma-cts list completion bash)",
    )


def execute(arguments: argparse.Namespace) -> int:
    from commands.__main__ import whole_parser

    print(SCRIPTS[arguments.shell](_with_subcommands(whole_parser().commands())), end="")
    return 0


def _with_subcommands(commands: dict[str, Parser]) -> dict[str, Parser]:
    """Returns each command after its subcommands. The name of a subcommand begins with the name of its command."""
    commands_here = {}
    for name, parser in commands.items():
        commands_here.update({f"{name} {item}": below for item, below in parser.commands().items()})
        commands_here[name] = parser
    return commands_here


@cache
def _known() -> dict[str, Collection[str]]:
    """Returns the words that can be the value of an option, by the placeholder in the option's help text."""
    suite = load_suite()
    verbs = sorted({table.verb.removeprefix("ibv_") for table in suite.tables})
    return {
        "VERB": verbs,
        "ID": suite.registry.as_data(),
        **dict.fromkeys((*PATHS, "ARG", "TREE"), (_FILES,)),
    }


def _values(parser: Parser) -> Iterator[tuple[str, str | None]]:
    """Yields each long option ("" for an argument) with the words that can be its value, or with None for a switch."""
    for action in parser._actions:
        words = action.choices or _known().get(str(action.metavar), ())
        if action.nargs == 0:
            value = None
        else:
            value = " ".join(map(str, words))
        yield from (
            (name, value)
            for name in action.option_strings or [""]
            if not name or name.startswith("--")
        )


def _bash(commands: dict[str, Parser]) -> str:
    lines = [f"# {PROGRAM} for bash", "_rdma_cts() {", "    local words= files="]
    lines += ["    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}; COMPREPLY=()"]
    below = "|".join(f'"{name}"' for name in commands if " " in name)
    lines += [
        '    [ "$COMP_CWORD" != 1 ] || command=',
        '    [ "$COMP_CWORD" -le 2 ] || case "$command ${COMP_WORDS[2]}" in',
    ]
    lines += [f'        {below}) command+=" ${{COMP_WORDS[2]}}" ;;', "    esac"]
    lines += ['    case "$command ${COMP_WORDS[COMP_CWORD - 1]}" in']
    lines += [f'        " "*) words="{" ".join(name for name in commands if " " not in name)}" ;;']
    for name, parser in commands.items():
        values = dict(_values(parser))
        hint = values.pop("", None) or ""
        for option, words in values.items():
            if words is not None:
                lines.append(f'        "{name} {option}") {_offer(words)} ;;')
        lines.append(f'        "{name} "*) {_offer(" ".join([*values, hint]))} ;;')
    lines += ["    esac", "    [[ $current != -* ]] || files="]
    lines += ['    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))']
    lines += ['    [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "$current"))']
    return "\n".join([*lines, "}", f"complete -o filenames -F _rdma_cts {PROGRAM} ./{PROGRAM}", ""])


def _offer(words: str) -> str:
    plain = words.removesuffix(_FILES)
    return f'words="{plain.strip()}"' + " files=1" * (plain != words)


def _zsh(commands: dict[str, Parser]) -> str:
    """Returns the bash script for zsh. If compinit loads the script as a function, the first call also completes."""
    load = "(( $+functions[compdef] )) || { autoload -U compinit && compinit; }\n"
    load += "autoload -U +X bashcompinit && bashcompinit"
    first = (
        "[[ ${zsh_eval_context[-1]} != loadautofunc ]] || _bash_complete -o filenames -F _rdma_cts"
    )
    return f"#compdef {PROGRAM}\n{load}\n{_bash(commands)}{first}\n"


def _fish(commands: dict[str, Parser]) -> str:
    lines = [f"# {PROGRAM} for fish"]
    for name, parser in commands.items():
        about = str(parser.description).replace("'", "")
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        if " " not in name:
            lines.append(
                f"complete -c {PROGRAM} -n __fish_use_subcommand -f -a {name} -d '{about}'",
            )
        for option, words in _values(parser):
            value = {None: "", _FILES: " -r"}.get(words, f" -x -a '{words}'")
            if option:
                flag = f" -l {option[2:]}"
            else:
                flag = ""
            lines.append(f"complete -c {PROGRAM} -n '{seen}'{flag}{value}")
    return "\n".join([*lines, ""])


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
