"""Citations in a text that is still being written. Pure.

A citation is `[3]`, `[1, 4]`, `[2; 5]` or `[1-3]` outside of code. Chinese and Japanese brackets
count, too: some models use them in every language. Numbers that were not shown to the model are
removed. A citation without any other number is removed with the space before it.

Unchanged are code in backticks and in fences, links such as `[1](https://...)`, `[x]`, and `a[0]`,
since nothing has the number 0. Code in backticks ends with its line, so that a lone backtick hides
no more than that.
"""

from __future__ import annotations

import re

MAX_LENGTH = 200  # of a citation; longer ones are text
_OPENING, _CLOSING = "[【［", "]】］"
_OPEN, _CLOSE = f"[{re.escape(_OPENING)}]", f"[{re.escape(_CLOSING)}]"
_SPACES = " \t\u00a0\u202f"
_GAP = rf"[{_SPACES}]*"
_ITEM = rf"([0-9]+)(?:{_GAP}[-–—]{_GAP}([0-9]+))?"
_RANGE = re.compile(_ITEM)
_GROUP = re.compile(rf"{_OPEN}{_GAP}{_ITEM}(?:{_GAP}[,;]{_GAP}{_ITEM})*{_GAP}[,;]?{_GAP}{_CLOSE}")
_BEGINNING = rf"{_OPEN}[-–—,;0-9{_SPACES}]{{0,{MAX_LENGTH - 3}}}"
_TOKEN = re.compile(
    rf"(?P<line>\n)|(?P<ticks>`+)|(?P<citation> ?{_BEGINNING}{_CLOSE})"
    rf"|(?P<beginning>(?: |{_BEGINNING}| {_BEGINNING})\Z)|[^\n` {re.escape(_OPENING)}]+|."
)
_UNFINISHED = re.compile(rf"{_BEGINNING}\Z")
_UNCERTAIN = ("ticks", "citation", "beginning")  # kinds of tokens
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Citations:
    """Filter of the citations in a text that arrives in pieces.

    The pieces of a text do not matter: the result is the same for all.
    """

    def __init__(self, shown: int) -> None:
        self.used: list[int] = []  # in the order of their first use
        self.dropped = 0
        self._shown = shown
        self._pending = ""  # end of the text that may become a citation
        self._before = "\n"  # last character, before any citation was removed
        self._line = ""  # the line so far
        self._code = ""  # backticks that began code in the line
        self._fence = ""  # characters that began a block of code

    def feed(self, piece: str) -> str:
        """Return the text that is certain by now."""
        return self._check(self._pending + piece, is_last=False)

    def finish(self) -> str:
        """Return the rest."""
        return self._check(self._pending, is_last=True)

    def _check(self, text: str, *, is_last: bool) -> str:
        out: list[str] = []
        end = 0
        for token in _TOKEN.finditer(text):
            # the next character decides whether backticks go on, and whether this is a link
            if token.end() == len(text) and token.lastgroup in _UNCERTAIN and not is_last:
                break
            end = token.end()
            out.append(self._pass(token.group(), token.lastgroup, text[end : end + 1]))
        self._pending = text[end:]
        return "".join(out)

    def _pass(self, token: str, kind: str | None, following: str) -> str:
        """Return a token as it remains in the text, and follow the lines and the code."""
        if kind == "line":
            self._end_line()
        elif kind == "ticks" and not self._fence:
            self._code = "" if self._code == token else self._code or token
        elif kind == "citation" and not (self._code or self._fence):
            token = self._check_citation(token, following)
        if token:
            self._before = token[-1]
            self._line += "" if kind == "line" else token
        return token

    def _check_citation(self, text: str, following: str) -> str:
        bare = text.lstrip(" ")
        is_attached = text == bare and (self._before.isalnum() or self._before == "_")
        if (
            not _GROUP.fullmatch(bare)
            or (following == "(" and bare[0] == "[")
            or (is_attached and not bare[1:-1].strip(" 0"))
        ):
            return text
        numbers, dropped = self._parse(bare)
        self.dropped += dropped
        self.used += [number for number in numbers if number not in self.used]
        space = text[: -len(bare)]
        if not dropped:
            return text
        if numbers:
            return f"{space}[{', '.join(map(str, numbers))}]"
        if _UNFINISHED.search(self._line[-MAX_LENGTH:]):  # the text behind must not complete it
            return f"{space}?"
        self._before = "]"
        return ""

    def _parse(self, citation: str) -> tuple[list[int], int]:
        """Return the numbers in a citation that were shown, and how many were not.

        A range that goes beyond counts once.
        """
        found: list[int] = []
        dropped = 0
        for first, last in _RANGE.findall(citation):
            low, high = int(first), int(last or first)
            inside = range(max(low, 1), min(high, self._shown) + 1)
            dropped += not inside or low < 1 or high > self._shown
            found += [number for number in inside if number not in found]
        return found, dropped

    def _end_line(self) -> None:
        line, self._line, self._code = self._line, "", ""
        fence = _FENCE.match(line)
        if fence is None:
            return
        rest = line[fence.end() :]
        if not self._fence and ("`" not in rest or fence[1][0] == "~"):
            self._fence = fence[1]
        elif self._fence and fence[1].startswith(self._fence) and not rest.strip():
            self._fence = ""


def remove_citations(text: str) -> str:
    """Return a text without citations."""
    citations = Citations(0)
    return citations.feed(text) + citations.finish()
