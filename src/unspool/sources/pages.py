"""HTML pages of prose, read as Markdown without the markup and the navigation of the site.

Offsets and lines of such a page count in the Markdown. Templates and shells of applications stay
source text. So does all HTML if the `html` extra is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unspool.sources.extraction import Extracted, escape_markdown
from unspool.sources.names import split_words

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_MIN_TEXT_CHARS = 400
_MIN_TEXT_SHARE = 0.3
_MAX_PAGE_CHARS = 10_000_000
_MAX_PAGE_NODES = 2_000_000
_MAX_WORK = 4_000_000  # open elements, summed over all tags; a manual of 2 MB stays below 2 million

_PROGRAM = re.compile(r"<(script|style|pre|code)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = split_words("ul ol menu dir")
_CELLS = split_words("td th")
_ROW_PARTS = split_words("td th tr thead tbody tfoot")
_BLOCKS = (
    split_words(
        "address article aside blockquote center dd details dialog div dl dt fieldset figcaption "
        "figure footer form header hgroup li main nav p pre"
    )
    | split_words("search section summary table")
    | _LISTS
    | _HEADINGS.keys()
)
_BREAKS = _BLOCKS | _ROW_PARTS | split_words("body caption hr legend")
_UNSEEN = split_words(
    "head script style noscript template nav footer aside svg math iframe object canvas audio "
    "video select textarea button datalist dialog noframes"
)
_NO_WIDTH = dict.fromkeys((0xAD, 0x200B, 0x2060, 0xFEFF))  # they part words for the eye only
_ANCHORS = frozenset({"#", "\xb6", "\uf0c1"})  # manuals end a heading with a link to itself
_MAX_INDENT = 8
# a table around these only places them on the page
_STRUCTURE = _HEADINGS.keys() | split_words("table pre")

_LONG_TAG = 256  # characters; a shorter one cannot have many attributes
_VOID = split_words(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param "
    "source track wbr"
)
_RAW = {
    name: re.compile(f"</{name}", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}
_FOREIGN = split_words("svg math select frameset")
# What these tags end if it is open directly above them.
_ENDED = {
    "li": split_words("li p"),
    **dict.fromkeys(("dt", "dd"), split_words("dt dd p")),
    **dict.fromkeys(("td", "th"), _CELLS | {"p"}),
    "tr": split_words("td th tr p"),
    **dict.fromkeys(("thead", "tbody", "tfoot"), _ROW_PARTS | {"p"}),
    "option": split_words("option"),
}
_PARAGRAPH = frozenset({"p"})
_OPTIONAL_ENDS = _PARAGRAPH | _ENDED.keys()
# Comments, declarations and tags exactly as the HTML standard tells them apart, each to the end of
# the text if it has no end.
_TOKEN = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z)) | <[!?][^>]*+ | </(?![a-z])[^>]*+
    | <(?P<end>/?)(?P<name>[a-z][^\t\n\f\r />]*+)
      (?:[\t\n\f\r /]++
        | [^\t\n\f\r />][^\t\n\f\r />=]*+
          (?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:"[^"]*+(?:"|\Z) | '[^']*+(?:'|\Z) | [^\t\n\f\r >"'][^\t\n\f\r >]*+)?+)?+
      )*+>?""",
    re.IGNORECASE | re.ASCII | re.DOTALL | re.VERBOSE,
)

# A name, and a value in quotes as one with it: each attribute has at least one match.
_ATTRIBUTE = re.compile(r"""[^\t\n\f\r />="']++(?:=(?:"[^"]*+"|'[^']*+'))?+""")


def extract_page(text: str) -> Extracted | None:
    """Return the visible text of an HTML page as Markdown.

    Return None if the text is no page of prose, or the `html` extra is not installed.
    """
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "selectolax":
            raise
        return None
    if (
        not _MIN_TEXT_CHARS <= len(text) <= _MAX_PAGE_CHARS
        or _is_template(text)
        or not _is_parsable(text)
    ):
        return None
    tree = LexborHTMLParser(text.encode("utf-8", "replace").decode())
    whole = _render(tree.body) if tree.body is not None else None  # a page of frames has no body
    if (
        whole is None
        or not whole.has_prose
        or len(whole.text) < max(_MIN_TEXT_CHARS, len(text) * _MIN_TEXT_SHARE)
    ):
        return None
    # Several articles are a list of them, and a small one is not what the page is about.
    found = (tree.css(selector) for selector in ("main", '[role="main"]', "article"))
    parts = (_render(nodes[0]) for nodes in found if len(nodes) == 1)
    best = next((part for part in parts if part and len(part.text) >= _MIN_TEXT_CHARS), whole)
    title = tree.css_first("head > title")
    name = " ".join(title.text().split()) if title else ""
    return Extracted(text=best.text, title=name or best.title or whole.title, language="markdown")


def _is_template(text: str) -> bool:
    """Tell if a page contains marks of a template language.

    A manual shows such marks in its examples, and scripts contain braces of their own.
    """
    has_braces = ("{{" in text or "{%" in text) and re.search(r"\{\{|\{%", _PROGRAM.sub("", text))
    return bool(has_braces or re.search(r"<%|<\?(?:php\b|=)", text))


def _is_parsable(text: str) -> bool:
    """Tell if the parser finishes soon.

    The parser compares many tags with all open elements, and takes 40 s for 100 000 nested ones. An
    element counts as open as long as the parser may keep it open.
    """
    stack: list[str] = []
    at = work = 0
    while token := _TOKEN.search(text, at):
        at = token.end()
        name = (token["name"] or "").lower()
        work += len(stack)
        if token.end() - token.start() > _LONG_TAG:
            # the parser compares each with all before it
            work += len(_ATTRIBUTE.findall(token[0])) ** 2 // 2
        if work > _MAX_WORK or token[0].startswith("<![CDATA["):
            return False
        if token["end"]:
            _close(stack, name)
        elif name in _RAW:
            end = _RAW[name].search(text, at)
            inside = text[at : end.start() if end else len(text)]
            at += len(inside)
            if name == "script" and "<script" in inside.lower():
                return False  # where it ends is a long story
            if not _FOREIGN.isdisjoint(stack):  # there it is markup like any other
                work += len(re.findall("<[A-Za-z]", inside)) ** 2
        elif name and name not in _VOID:
            ended = _ENDED.get(name, _PARAGRAPH if name in _BLOCKS else frozenset())
            while stack and stack[-1] in ended:
                stack.pop()
            stack.append(name)
    return work <= _MAX_WORK


def _close(stack: list[str], name: str) -> None:
    """Close an element and those inside it that need no end tag, if the parser does so too."""
    implied = _ENDED.get(name, _OPTIONAL_ENDS if name in _BLOCKS and name != "p" else frozenset())
    at = len(stack) - 1
    while at >= 0 and stack[at] != name and stack[at] in implied:
        at -= 1
    if at >= 0 and stack[at] == name:
        del stack[at:]


def _render(root: LexborNode) -> _Markdown | None:
    out = _Markdown()
    for count, (node, begins) in enumerate(_walk(root)):
        tag = node.tag or ""
        if count > _MAX_PAGE_NODES:
            return None
        if tag == "-text":
            out.write(node.text_content or "")
        elif begins:
            inside = (inner.tag for inner, _ in _walk(node) if inner is not node)
            out.begin(tag, is_data=tag == "table" and _STRUCTURE.isdisjoint(inside))
        else:
            out.end(tag)
    out.flush()
    return out


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Yield the visible nodes in order, elements twice: at their begin (True) and at their end.

    Not recursive: pages nest deeply.
    """
    stack = [(root, True)]
    while stack:
        node, begins = stack.pop()
        yield node, begins
        if begins and node.tag != "-text":
            visible = [child for child in node.iter(include_text=True) if _is_visible(child)]
            stack.append((node, False))
            stack.extend((child, True) for child in reversed(visible))


def _is_visible(node: LexborNode) -> bool:
    tag = node.tag or ""
    is_element = not tag.startswith("-")  # neither text nor a comment
    return tag == "-text" or (is_element and tag not in _UNSEEN and "hidden" not in node.attributes)


class _Markdown:
    """Markdown, written element by element.

    In a table of data every row is a line. Any other block has lines of its own.
    """

    def __init__(self) -> None:
        self.title = ""
        self.has_prose = False
        self._out: list[str] = []
        # the kind of block written last; items stand close together, and so do rows
        self._last = ""
        self._inline: list[str] = []
        self._lists = self._level = self._pre = 0
        self._item = False  # a list item began and nothing of it is written yet
        self._is_data = False
        self._row: list[str] | None = None

    @property
    def text(self) -> str:
        return "".join(self._out)

    def write(self, text: str) -> None:
        text = text.translate(_NO_WIDTH)
        if self._level and text.strip() in _ANCHORS:
            text = " "
        self._inline.append(text if self._pre else re.sub(r"\s+", " ", text))

    def begin(self, tag: str, *, is_data: bool) -> None:
        if tag == "br":
            self._inline.append("\n")
        elif self._break(tag):
            self._level = _HEADINGS.get(tag, self._level)
            self._lists += tag in _LISTS
            self._item = self._item or tag == "li"
            if tag == "table":
                self._is_data, self._last = is_data, ""
            elif tag == "tr" and self._is_data:
                self._row = []
        self._pre += tag == "pre"

    def end(self, tag: str) -> None:
        if self._row is not None and tag in _CELLS:
            self._row.append(" ".join(self._take_inline().split()))
        elif self._row is not None and tag == "tr":
            if any(self._row):
                self._put("row", escape_markdown(" | ".join(self._row).strip()))
            self._row = None
        elif tag == "pre":
            self._pre -= 1
            self._fence()
        elif self._break(tag):
            self._level = 0 if tag in _HEADINGS else self._level
            self._lists -= tag in _LISTS
            self._item = self._item and tag != "li"
            self._is_data = self._is_data and tag != "table"

    def flush(self) -> bool:
        """Write the block that is being collected; return False if it is empty."""
        lines = [" ".join(line.split()) for line in self._take_inline().split("\n")]
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        if not text:
            return False
        if self._level:
            text = " ".join(text.split())
            self.has_prose = True
            self.title = self.title or (text if self._level == 1 else "")
            self._put("", f"{'#' * self._level} {text}")
        elif self._lists or self._item:
            pad = "  " * min(max(self._lists - 1, 0), _MAX_INDENT)
            rest = escape_markdown(text).replace("\n", f"\n{pad}  ")
            self._put("item", f"{pad}{'- ' if self._item else '  '}{rest}")
            self._item = False
        else:
            self._put("", escape_markdown(text))
        return True

    def _break(self, tag: str) -> bool:
        """Return True if the tag begins or ends a block here.

        Inside a cell or program text a tag only separates words or lines.
        """
        if tag not in _BREAKS:
            return False
        is_block = not self._pre and self._row is None
        if is_block:
            self.has_prose = (self.flush() and tag == "p") or self.has_prose
        elif not self._pre:
            self._inline.append(" ")
        elif self._inline and not self._inline[-1].endswith("\n"):
            self._inline.append("\n")
        return is_block

    def _fence(self) -> None:
        text = self._take_inline().replace("\r\n", "\n").replace("\xa0", " ").strip("\n").rstrip()
        if text:
            marks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            self._put("", f"{marks}\n{text}\n{marks}")

    def _take_inline(self) -> str:
        text = "".join(self._inline)
        self._inline.clear()
        return text

    def _put(self, kind: str, text: str) -> None:
        if self._out:
            self._out.append("\n" if kind and kind == self._last else "\n\n")
        self._out.append(text)
        self._last = kind
