"""Tries mutants of a driver, and determines whether cases of the violated rules, only other cases, or no cases fail.

A case detects a mutant if it reports a rule as violated in two runs with the mutant, and not in a run without it.
Several cases share a run without a mutant, because an exchange of modules takes long. Mutants that no case of their
rules detects are combined in one module, with which the whole default tier is run.
guest.py starts the guests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.errors import format_count
from conformance.model.case import Case
from conformance.model.verdict import Verdict
from conformance.older_python import zip
from trial.kernel.guest import Answer, Guests, Lost, MutantGuest, NoSession
from trial.kernel.modules import Modules, NotMade
from trial.kernel.mutant import Mutant
from trial.kernel.outcome import (
    ACCEPTED,
    BROKEN,
    BY_ITS_RULE,
    ELSEWHERE,
    EQUIVALENT,
    FALSE_ALARM,
    HANG,
    NO_FIT,
    NOT_COMPILED,
    NOT_LOADED,
    SURVIVED,
    UNCHECKED,
    UNDECIDED,
    Finding,
    finding,
    outcome_of,
    own_cases,
)

TOGETHER = 22  # the most mutants in one module; permitted mutants have no limit, because all cases should pass
_LOADS = 40  # the maximum number of modules loaded in one guest; each module leaves some resources allocated
_PROGRESS_S = 60.0  # between two lines about a run of many cases
_TOGETHER_WITHOUT = 6  # the number of mutants whose cases are run together without a mutant
_SLOW_S = 5.0  # a case that took longer is run after the others
_TRIES = 3  # the number of attempts to run one case; after a guest is lost, a new guest is used


class NotLoaded(NoSession):
    """The reason why a module does not load."""


def _signs(answer: Answer) -> set[str]:
    """Returns the rules that a case reports as violated, and BROKEN if the case is BROKEN."""
    return {*answer.rules, *([BROKEN] if answer.verdict == Verdict.BROKEN else [])}


class Trial:
    """Tries mutants in one guest after another."""

    def __init__(
        self,
        cases: Sequence[Case],
        modules: Modules,
        guests: Guests,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cases = list(cases)
        self._rules = {case.id: tuple(case.rules) for case in cases}
        self._modules, self._guests, self._say = modules, guests, say
        self._guest: MutantGuest | None = None
        self._unmutated_module = modules.of([])
        self._unmutated: dict[str, Answer] = {}
        self._slow: set[str] = set()
        # cases that are assumed to pass without a mutant, until they are run
        self._unchecked: list[str] | None = None

    def close(self) -> None:
        """Stops the guest, if there is one."""
        if self._guest is not None:
            self._guest.close()
        self._guest = None

    def try_each(
        self,
        mutants: Sequence[Mutant],
        only: Sequence[str] = (),
        before: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Iterator[Finding]:
        """Tries each mutant in isolation, first with the cases that detected it before; compiles others meanwhile. A
        mutant whose case has not been run without it yet has two findings, of which the first is UNCHECKED."""
        self._modules.begin([mutant] for mutant in mutants if not mutant.equivalent)
        mutants = list(mutants)
        while mutants:
            # the number of mutants before the first one that kills or leaks: after that one, the guest is closed
            ending = next(
                (n for n, mutant in enumerate(mutants) if mutant.kills or mutant.leaks),
                len(mutants),
            )
            number = min(ending, _TOGETHER_WITHOUT) or 1
            part, mutants = mutants[:number], mutants[number:]
            self._unchecked = [] if ending else None
            first = [(before or {}).get(mutant.name, {}).get("by", ()) for mutant in part]
            waiting: list[tuple[Mutant, Finding]] = []
            for mutant, cases in zip(part, first, strict=True):
                result = self.try_alone(mutant, only, cases)
                if set(result.by) & set(self._unchecked or ()):
                    waiting.append((mutant, result))
                    yield replace(result, outcome=UNCHECKED)
                else:
                    yield result
            failing = self._fail_without(self._unchecked or ())
            self._unchecked = None
            for mutant, result in waiting:
                yield self.try_alone(mutant, only) if failing & set(result.by) else result

    def try_alone(
        self,
        mutant: Mutant,
        only: Sequence[str] = (),
        first: Sequence[str] = (),
    ) -> Finding:
        if mutant.equivalent:
            return finding(mutant, EQUIVALENT, reason=mutant.equivalent)
        began = time.monotonic()
        try:
            module = self._modules.of([mutant])
        except NotMade as error:
            return finding(mutant, NOT_COMPILED if error.fits else NO_FIT, reason=str(error))
        names = list(only) or own_cases(mutant, self._cases)
        self._say(f"{mutant.file}/{mutant.name}: {format_count(len(names), 'case')}")
        result = self._tried(
            mutant,
            module,
            sorted(names, key=lambda name: (name not in first, name in self._slow)),
        )
        if mutant.kills or mutant.leaks:
            self.close()
        return replace(result, seconds=round(time.monotonic() - began, 1))

    def _tried(self, mutant: Mutant, module: Any, names: list[str]) -> Finding:
        broken: list[Answer] = []
        tried = 0
        names = [name for name in names if not self._fails_anyway(name)]
        while names:
            detected: Answer | None = None
            try:
                for answer in self._answers(module, names):
                    tried, names = tried + 1, names[1:]
                    self._slow |= {answer.case} if answer.seconds > _SLOW_S else set()
                    broken += [answer] * (answer.verdict == Verdict.BROKEN)
                    if answer.rules or answer.verdict == Verdict.CRASH:
                        detected = answer
                    else:
                        detected = None
            except NotLoaded as error:
                return finding(mutant, NOT_LOADED, reason=str(error))
            except NoSession as error:
                return finding(mutant, BROKEN, reason=str(error), tried=tried)
            except Lost as lost:
                if lost.verdict == Verdict.HANG:
                    outcome = HANG
                else:
                    outcome = NOT_LOADED
                return finding(mutant, outcome, reason=str(lost), verdict=lost.verdict, tried=tried)
            rules = self._confirmed(detected, module, mutant) - {BROKEN} if detected else ()
            if detected and rules:
                return finding(
                    mutant,
                    outcome_of(mutant, rules),
                    by=(detected.case,),
                    reason=detected.reason,
                    verdict=detected.verdict,
                    tried=tried,
                    violated=tuple(sorted(rules)),
                )
        if broken:
            reason = f"{broken[0].case}: {broken[0].reason}"
            return finding(
                mutant,
                BROKEN,
                by=tuple(case.case for case in broken),
                reason=reason,
                tried=tried,
            )
        return finding(mutant, ACCEPTED if mutant.permitted else SURVIVED, tried=tried)

    def _answers(self, module: Any, names: Sequence[str], **how: bool) -> Iterator[Answer]:
        """Runs cases with a module in the present guest, or in a new one; `how` is as in MutantGuest.run. If the guest
        or the process under test dies in a case, the case's answer has all rules of the case. Raises NotLoaded and
        NoSession, and Lost if the guest died between cases. After these exceptions, a new guest is used."""
        try:
            guest = self.ready()
            if reason := guest.load(module):
                raise NotLoaded(reason)
            for answer in guest.run(list(names), **how):
                ended = answer.verdict == Verdict.CRASH
                yield replace(answer, rules=self._rules[answer.case]) if ended else answer
        except Lost as lost:
            self.close()
            if not lost.case:
                raise
            yield Answer(lost.case, lost.verdict, self._rules[lost.case], str(lost), 0.0)
        except NoSession:
            self.close()
            raise

    def _confirmed(self, answer: Answer, module: Any, *mutants: Mutant) -> set[str]:
        """Returns the signs of a violation that a case reports in two runs with the mutants, and not without them."""
        signs = _signs(answer) - {rule for mutant in mutants for rule in mutant.departs_from}
        if signs and (answer.case in self._unmutated or self._guest is None):
            signs -= _signs(self._without(answer.case))
        if not signs:
            return signs
        again = self._once(answer.case, module)
        if not _signs(again):
            self.close()  # the mutant may have used up resources of the device; a new guest has all resources
            again = self._once(answer.case, module)
        signs &= _signs(again)
        if signs:
            return signs - _signs(self._without(answer.case))
        return signs

    def _without(self, case: str) -> Answer:
        if case not in self._unmutated:
            if self._unchecked is not None:
                self._unchecked.append(case)
                return Answer(case, Verdict.PASS, (), "", 0.0)
            self._unmutated[case] = self._once(case, self._unmutated_module)
        return self._unmutated[case]

    def _fail_without(self, cases: Sequence[str]) -> set[str]:
        waiting = list(dict.fromkeys(cases))
        if len(waiting) > 1:
            with contextlib.suppress(Lost, NoSession):
                self._unmutated |= {
                    answer.case: answer for answer in self._answers(self._unmutated_module, waiting)
                }
        for case in waiting:  # a run stops after the first case that fails
            if case not in self._unmutated:
                self._unmutated[case] = self._once(case, self._unmutated_module)
        return {case for case in waiting if _signs(self._unmutated[case])}

    def _fails_anyway(self, name: str) -> bool:
        """Whether a case reports all of its rules even without a mutant: the case cannot detect a mutant."""
        return name in self._unmutated and set(self._rules[name]) <= set(
            self._unmutated[name].rules,
        )

    def _once(self, case: str, module: Any) -> Answer:
        """Runs one case with a module, in a new guest if the previous guest is lost."""
        for _ in range(_TRIES):
            with contextlib.suppress(Lost, NoSession):
                if answers := list(self._answers(module, [case])):
                    return answers[-1]
            self.close()
        return Answer(case, str(Verdict.BROKEN), (), "no guest could run the case", 0.0)

    def ready(self) -> MutantGuest:
        """Returns the present guest, or a new one."""
        if self._guest is not None and self._guest.loads >= _LOADS:
            self.close()
        if self._guest is None:
            self._guest = self._guests.start(self._cases)
        return self._guest

    def try_together(self, survivors: Sequence[Mutant]) -> Iterator[Finding]:
        """Runs all cases on mutants combined in one module, as far as their edits fit together. If a case detects the
        module, each of its mutants is run in isolation with this case."""
        waiting = list(survivors)
        while waiting:
            together, module = self.combined(waiting)
            if not together:
                yield self.try_alone(waiting.pop(0))  # its edits do not fit even in isolation
                continue
            began = time.monotonic()
            try:
                failing = self._failing(module, watched=not together[0].permitted)
            except (Lost, NoSession) as error:
                self.close()
                waiting = [mutant for mutant in waiting if mutant not in together]
                yield from (
                    finding(mutant, BROKEN, reason=f"with other mutants: {error}")
                    for mutant in together
                )
                continue
            names = [case for case in failing if self._confirmed(failing[case], module, *together)]
            killed = {}
            for mutant in self._suspects(together, names) if names else ():
                if result := self._by_others(mutant, names):
                    killed[mutant.name] = result
                    yield result
            rest = [mutant for mutant in together if mutant.name not in killed]
            waiting = [mutant for mutant in waiting if mutant not in together]
            if killed and rest:
                # repeats the rest without the killed mutants, which may have hidden others
                waiting = [*rest, *waiting]
                continue
            for mutant in rest:
                if names:
                    reason = (
                        f"with other mutants, but with neither half of them: {', '.join(names)}"
                    )
                else:
                    reason = ""
                if names:
                    outcome = UNDECIDED
                elif mutant.permitted:
                    outcome = ACCEPTED
                else:
                    outcome = SURVIVED
                took = round(time.monotonic() - began, 1)  # of all mutants in the module
                yield finding(mutant, outcome, reason=reason, tried=len(self._cases), seconds=took)

    def combined(self, mutants: Sequence[Mutant]) -> tuple[list[Mutant], Any]:
        """Returns as many of the mutants as fit into one module, and the module."""
        together: list[Mutant] = []
        module = self._unmutated_module
        for mutant in mutants:
            if mutant.permitted or len(together) < TOGETHER:
                with contextlib.suppress(NotMade):
                    self._modules.check([*together, mutant])
                    together.append(mutant)
        while together:
            try:
                return together, self._modules.of(together)
            except (
                NotMade
            ):  # the mutants do not compile together, although each compiles in isolation
                together.pop()
        return together, module

    def _failing(self, module: Any, watched: bool) -> dict[str, Answer]:
        """Returns the cases that report a violation or are BROKEN with a module. Raises Lost and NoSession."""
        failing: dict[str, Answer] = {}
        names = [case.id for case in self._cases]
        reported = time.monotonic()
        while names:
            for answer in self._answers(module, names, all_of_them=True, watched=watched):
                names.remove(answer.case)
                if _signs(answer):
                    failing[answer.case] = answer
                    self._say(f"{answer.case}: {answer.verdict}: {answer.reason}")
                if not names or time.monotonic() - reported > _PROGRESS_S:
                    reported, done = time.monotonic(), len(self._cases) - len(names)
                    counts = f"{done} of {len(self._cases)} cases were run, {len(failing)} of them failed"
                    self._say(f"{counts} or were BROKEN")
        return failing

    def _suspects(self, mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
        """Returns the mutants that may cause these cases to fail; halves the set of mutants repeatedly."""
        if len(mutants) == 1:
            return list(mutants)
        suspects: list[Mutant] = []
        for half in (mutants[: len(mutants) // 2], mutants[len(mutants) // 2 :]):
            module = self._modules.of(half)
            if any(self._confirmed(self._once(name, module), module, *half) for name in names):
                suspects += self._suspects(half, names)
        return suspects

    def _by_others(self, mutant: Mutant, names: Sequence[str]) -> Finding | None:
        result = self._tried(mutant, self._modules.of([mutant]), list(names))
        if result.outcome in (BY_ITS_RULE, ELSEWHERE, FALSE_ALARM, BROKEN):
            return result
        return None
