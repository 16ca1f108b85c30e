"""Citations in a text that is still being written: those of something that was shown stay, others
are taken out and counted. Pure.

A citation is `[3]`, `[1, 4]`, `[2; 5]` or `[1-3]`, also in the brackets of Chinese and Japanese,
which some models use in every language, anywhere but in code. Numbers that were not shown are taken
out of it; where none is left, the whole of it goes, with the space before it. Left as they are:
code in backticks and in fences, links such as `[1](https://...)`, `[x]`, and `a[0]`, since nothing
is ever shown as 0. Code in backticks ends with its line, so that a lone backtick hides no more than
that.
"""

from __future__ import annotations

import re

MAX_LENGTH = 200  # of a citation; whatever is longer is text
_OPENING, _CLOSING = "[【［", "]】］"
_SPACES = " \t\u00a0\u202f"
_GAP = rf"[{_SPACES}]*"
_ITEM = rf"([0-9]+)(?:{_GAP}[-–—]{_GAP}([0-9]+))?"
_RANGE = re.compile(_ITEM)
_GROUP = re.compile(
    rf"[{re.escape(_OPENING)}]{_GAP}{_ITEM}(?:{_GAP}[,;]{_GAP}{_ITEM})*{_GAP}[,;]?{_GAP}[{re.escape(_CLOSING)}]"
)
_INSIDE = frozenset(f"0123456789,;-–—{_SPACES}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Citations:
    """Takes pieces as they come and gives them back checked.

    However a text is cut into pieces, the result is the same.
    """

    def __init__(self, shown: int) -> None:
        self.used: list[int] = []  # in the order of their first use
        self.dropped = 0
        self._shown = shown
        self._held = ""  # what may become a citation, with a space before it
        # the last character that was let go, or taken for the beginning of something
        self._before = "\n"
        # what was let go ends with the beginning of a citation, which text behind a dropped one
        # must not complete
        self._is_open = False
        self._ticks = ""  # a run of backticks that has not ended yet
        self._code = ""  # the run that code began with
        self._line = ""  # the beginning of the line, as far as it decides whether it is a fence
        self._fence = ""  # what a block of code began with

    def feed(self, piece: str) -> str:
        """The text that is certain by now."""
        return "".join(self._take(character) for character in piece)

    def finish(self) -> str:
        """The rest."""
        out = self._settle(" ") if self._held else ""
        self._held = ""
        return out

    def _take(self, character: str) -> str:
        if self._held:
            return self._continue(character)
        if character in f" {_OPENING}" and not self._in_code():
            self._held = character
            return ""
        return self._let_go(character)

    def _continue(self, character: str) -> str:
        """One more character behind what is held back."""
        held = self._held
        if held == " " and character not in _OPENING:
            self._held = ""
            return self._let_go(" ") + self._take(character)
        if held[-1] in _CLOSING:
            out = self._settle(character)
            self._held = ""
            return out + self._take(character)
        if len(held) < MAX_LENGTH and (
            character in _INSIDE or character in _CLOSING or held == " "
        ):
            self._held += character
            return ""
        self._held = ""
        out = self._let_go(held)
        self._is_open = character in _OPENING
        return out + self._take(character)

    def _settle(self, following: str) -> str:
        """What becomes of what is held back, now that its next character is known."""
        held, bare = self._held, self._held.lstrip(" ")
        attached = not held.startswith(" ") and (self._before.isalnum() or self._before == "_")
        if (
            not _GROUP.fullmatch(bare)
            or (following == "(" and bare[0] == "[")
            or (attached and not bare[1:-1].strip(" 0"))
        ):
            return self._let_go(held)
        numbers, dropped = self._checked(bare)
        self.dropped += dropped
        for number in numbers:
            if number not in self.used:
                self.used.append(number)
        if not dropped:
            return self._let_go(held)
        if numbers:
            return self._let_go(f"{held[: -len(bare)]}[{', '.join(map(str, numbers))}]")
        if self._is_open:
            return self._let_go(f"{held[: -len(bare)]}?")
        self._before = "]"
        return ""

    def _checked(self, citation: str) -> tuple[list[int], int]:
        """The numbers in a citation that were shown, and how many were not.

        A range counts as one where it goes beyond.
        """
        found: list[int] = []
        dropped = 0
        for first, last in _RANGE.findall(citation):
            low, high = int(first), int(last or first)
            inside = range(max(low, 1), min(high, self._shown) + 1)
            dropped += not inside or low < 1 or high > self._shown
            found += [number for number in inside if number not in found]
        return found, dropped

    def _let_go(self, text: str) -> str:
        for character in text:
            self._follow(character)
        self._is_open = False
        return text

    def _in_code(self) -> bool:
        """Whether the next character stands in code."""
        if self._ticks:
            self._end_ticks()
        return bool(self._fence or self._code)

    def _follow(self, character: str) -> None:
        """Keep track of lines, of backticks and of fences."""
        self._before = character
        if character == "\n":
            self._end_line()
        elif len(self._line) < MAX_LENGTH:
            self._line += character
        if self._fence:
            return
        if character == "`":
            self._ticks += character
        elif self._ticks:
            self._end_ticks()

    def _end_ticks(self) -> None:
        """A run of backticks is over: it begins code, ends it, or stands in it."""
        run, self._ticks = self._ticks, ""
        if not self._code:
            self._code = run
        elif self._code == run:
            self._code = ""

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        self._ticks = self._code = ""
        fence = _FENCE.match(line)
        if fence is None:
            return
        if not self._fence:
            self._fence = (
                fence.group(1) if "`" not in line[fence.end() :] or fence.group(1)[0] == "~" else ""
            )
        elif fence.group(1).startswith(self._fence) and not line[fence.end() :].strip():
            self._fence = ""


def without(text: str) -> str:
    """A text with no citation in it."""
    citations = Citations(0)
    return citations.feed(text) + citations.finish()
