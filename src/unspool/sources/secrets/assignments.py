"""Values given to a name that says secret: `password = "..."`, `"api_key": "..."`,
`DB_PASSWORD=...`. Pure.

How much a value must look like a secret depends on the file. A `.env` file contains little else, a
YAML file contains settings, and in program text most such values are words, paths and names of
other things. Sentences and labels are in `prose.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.names import extension
from unspool.sources.secrets import values
from unspool.sources.secrets.files import is_locale, is_shell
from unspool.sources.secrets.literals import find_literals, get_extent, has_escapes, is_prefixed
from unspool.sources.secrets.names import SecretName, identify, identify_foreign
from unspool.sources.secrets.prose import NEXT_SETTING, find_in_prose, is_striking, judge_label
from unspool.sources.secrets.spans import ScannedText, SecretSpan, Trust, get_line

_ANNOTATION = (
    r"(?:[ \t]{0,4}\{ ?get;[^{}\r\n]{0,40}\}|[ \t]{0,4}+\??:[ \t]{0,4}+[&*A-Za-z_][\w.\[\]|, "
    r"?<>&']{0,40}(?=[ \t]=))?"
)
_OPERATOR = (
    r"\*{0,2}\)?[ \t]{0,30}+(?P<operator>=>|:=|:-(?=[^\s])|<-|->|\u2192|\?\?=?|\|\|=?|\?=|\+=|!==?|={1,3}|:(?!:)|(?<=\)\s)or(?=\s)|\uff1a)"
    r"(?:\*\*|__(?=[ \t])|</\w{1,8}+>)?[ \t]{0,30}+(?:\*\*)?(?:[(\[]?[ \t]{0,8}+\\?\r?\n[ "
    r"\t]{0,60}+(?=[rbuf]{0,2}[\"'`]))?"
)
_BETWEEN = r"(?:\r?\n[ \t]{1,40}+[\w\"'-]{1,30}+[ \t]{0,8}[:=][^\n]{0,120}){0,4}?"
_METHODS = r"equals(?:ignorecase)?|eq|compareto|isequalto|toequal|tobe|send_?keys|fill|type|setvalue|set|value"
# The text between a name and its value. The name may be in quotes, in brackets or in a tag.
_SEPARATOR = re.compile(
    rf"(?P<named>(?:[ \t]{{0,8}}\{{|:)?[ \t]{{0,8}}[,;]?{_BETWEEN}"
    r"\s{0,60}[\"']?(?:\w{1,20}:)?(?:value|default|parametervalue|defaultvalue|content)[\"']?[ "
    r"\t]{0,8}(?:=>|[:=])\s{0,8})"
    rf"|(?P<assign>{_ANNOTATION}{_OPERATOR})"
    r"|(?P<element>(?:[ \t]{1,8}[\w:.-]{1,30}=\"[^\"<>]{0,80}\"){0,3}[ "
    r"\t]{0,8}>(?:<!\[CDATA\[)?(?=[^<>\r\n]{1,200}(?:<|\]\]>)))"
    r"|(?P<markup></\w{1,10}+>:?\s{0,40}+(?:<\w[^<>]{0,60}+>\s{0,20}+){1,3}+)"
    r"|(?P<pair>[ \t]{0,8}+,[ \t]{0,40}+(?=[rbu@]{0,2}[\"'`]))"
    rf"|(?P<call>(?:\)?\.(?:{_METHODS}))?\([ \t]{{0,8}}+(?=[rbu@]{{0,2}}[\"'`]))"
    r"|(?P<cell>\*{0,2}[ \t]{0,60}+\|[ \t]{0,60}+(?=[^\s|]))"
    r"|(?P<space>[ \t]{1,30}+)",
    re.IGNORECASE,
)
_CLOSE = re.compile(r"\\?(?:[\"'`\u2019\u201d]|&(?:quot|#34|#39|apos);)?\]?")
_KEYED = re.compile(
    r"(?:name|key|parameterkey|id|variable|property|entry|env|setting)[\"']?[ \t]*[:= ][ "
    r"\t]*[\"']?$",
    re.IGNORECASE,
)
_MARKED = re.compile(
    r"(?:for|class|type|href|htmlfor|aria-\w+|style|autocomplete)=[\"'][^\"']*$", re.IGNORECASE
)
_DEFINITION = re.compile(r"define[ \t]*\([ \t]*[\"']?$", re.IGNORECASE)
_BARE_OPERATORS = frozenset({"=", ":", ":=", ":-", "->", "=>", "?=", "\u2192", "\uff1a"})
_BARE = re.compile(r"[^\s\"'`\u2018-\u201e]\S{0,511}+")
_BLOCK = re.compile(
    r"[|>][+-]?[0-9]?[ \t]{0,8}\r?\n(?P<indent>[ \t]{1,40}+)(?P<first>[^\r\n]{1,4000}+)"
)
_BLOCK_LINES = 200
_IN_STRING = re.compile(r"[^\s;&\"'`<>\\]{1,200}+")
_IN_SHELL = re.compile(r"[^\s,;&|<>(){}\[\]\"'`]{0,200}+")
_IN_FLOW = re.compile(r"[^\s,;}\])&<]{0,200}+")
_IN_PROGRAM = re.compile(r"[\w!@#%^~+./?*$=-]{6,200}(?=[\s,;\"'`]|$)")
_WORD = re.compile(r"[^\s\"'`|;&<>\\]{3,400}+")
_BARE_TOKEN = re.compile(r"[\w+/=.~-]+$")
_DEFAULT = re.compile(r"(?![+?=])[^}\s\"']{1,200}(?=\})")
_CALLED = re.compile(r"[\w.]+\(")
_DSN = re.compile(
    r"(?<![\w,(])(?:host|hostaddr|dbname|server|data source|user "
    r"id|uid|user|username|database|port|driver|sslmode|dsn|endpoint|login)"
    r"=[^\s,;()\"'`]{1,80}+(?=[\s;\"'`&]|$)",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(
    r"(?:^|[;&|]|&&|\$|>|run)[ \t]*(?:(?:onbuild[ \t]+)?(?:env|arg)|setenv|setx|set(?:[ "
    r"\t]+-[a-z]{1,3})?|export|conf[ \t]+set|enable"
    r"|[\w ]{0,30}config(?:ure)?[ \t]+(?:set|add|--\w+)|[\w ]{0,30}secrets?[ \t]+set|[\w "
    r"]{0,30}env[ \t]+add"
    r"|username[ \t]+\S+|machine[ \t]+\S+[ \t]+login[ \t]+\S+)[ \t]+[\w./:-]{0,60}$",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"\b(?:role|user|login|identified|encrypted|alter|create|grant|options|mapping|with)\b",
    re.IGNORECASE,
)


def find_at_name(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the value of a secret name, given the position of the name's last word."""
    if place := identify(scan, at):
        yield from _find_value(place)


def find_foreign(scan: ScannedText) -> Iterator[SecretSpan]:
    """Yield the values of names in other scripts and languages."""
    for place in identify_foreign(scan):
        yield from _find_value(place)


def _find_value(place: SecretName) -> Iterator[SecretSpan]:
    text = place.text
    close = _CLOSE.match(text, place.end)
    end = close.end() if close else place.end
    separator = _SEPARATOR.match(text, end)
    found = list(_follow(place, end, separator)) if separator else []
    if found:
        yield from found
    elif not place.is_short:
        plain = place.trust is Trust.PROSE or place.is_commented()
        if separator and separator["assign"] and not plain:
            return
        yield from (
            span
            for span in find_in_prose(place, end)
            if plain or is_striking(text[span[0] : span[1]])
        )


def _follow(place: SecretName, end: int, separator: re.Match[str]) -> Iterator[SecretSpan]:
    """Yield the value behind a separator."""
    text, first = place.text, separator.end()
    how = "assign" if separator["assign"] else separator.lastgroup or ""
    quoted = text[end - 1 : end] in ("'", '"', "`", ";", "]")
    if (place.is_short and how != "assign") or (
        len(place.name) <= _ABBREVIATED and how not in ("assign", "space")
    ):
        return
    if how in ("element", "markup"):
        yield from _judge_element(place, how, first)
        return
    if how == "named" and not (
        quoted or _KEYED.search(place.get_line_before()) or separator[0].startswith(":")
    ):
        return
    literals = find_literals(text, first)
    if literals:
        yield from _judge_literals(place, how, literals, quoted=quoted)
    elif how == "named":
        bare = _IN_FLOW.match(text, first)
        if (
            bare
            and not _is_expression(bare[0])
            and _is_secret(place, bare[0], max(place.trust, Trust.SETTINGS))
        ):
            yield (*bare.span(), place.kind)
    elif how == "assign":
        yield from _judge_bare(place, separator["operator"], first, quoted=quoted)
    elif how == "cell" and place.trust is Trust.PROSE:
        yield from judge_label(place, first, stops="|")
    elif how == "space":
        yield from _judge_next_word(place, first)


def _is_secret(place: SecretName, value: str, trust: Trust) -> bool:
    return values.is_secret(value, place.kind, trust, captions=is_locale(place.path))


def _is_expression(value: str) -> bool:
    """Tell if a bare value is a call or a dotted name."""
    return bool(_CALLED.match(value)) or values.is_reference(value.rstrip(".,)"))


def _judge_element(place: SecretName, how: str, first: int) -> Iterator[SecretSpan]:
    """Yield the text of an element or of the next element."""
    text = place.text
    stops = (text.find(mark, first, first + 200) for mark in ("]]>", "<"))
    stop = min((stop for stop in stops if stop >= 0), default=-1)
    if stop < 0 or _MARKED.search(place.get_line_before()):
        return
    first += len(text[first:stop]) - len(text[first:stop].lstrip())
    value = text[first:stop].rstrip()
    trust = (
        place.trust
        if how == "markup" or text[place.end : place.end + 1] != ">"
        else max(place.trust, Trust.SETTINGS)
    )
    if value and not value.endswith(":") and _is_secret(place, value, trust):
        yield first, first + len(value), place.kind


def _judge_literals(
    place: SecretName, how: str, literals: list[re.Match[str]], *, quoted: bool
) -> Iterator[SecretSpan]:
    """Yield quoted literals; literals that are joined count as one value."""
    text = place.text
    if how == "pair" and not quoted and place.before not in ("{", "("):
        return
    spans = [get_extent(one) for one in literals]
    raw = "".join(text[first:last] for first, last in spans)
    if is_prefixed(literals[0], "f$") and "{" in raw:
        return
    trust = place.trust
    if how == "space" and raw[:1] in ",;:)]}+ ":  # the quote closes a text that ends with the name
        return
    if how in ("space", "call", "pair", "cell"):
        line = place.get_line_before()
        stated = how == "space" and place.name.lower() == "password" and _STATEMENT.search(line)
        trust = (
            Trust.SETTINGS
            if stated or (how == "pair" and _DEFINITION.search(line))
            else min(trust, Trust.PROSE)
        )
    if is_prefixed(literals[0], "r"):
        good = _is_secret(place, raw, trust)
    elif has_escapes(raw):
        good = place.kind == "secret" and values.is_random_bytes(raw)
    else:
        value = raw.replace("\\", "")  # an escape hides nothing
        good = _is_secret(place, value, trust) or (
            trust is Trust.PROSE and values.is_prose_secret(value, place.kind)
        )
    if good:
        yield from ((first, last, place.kind) for first, last in spans)


def _judge_bare(
    place: SecretName, operator: str, first: int, *, quoted: bool
) -> Iterator[SecretSpan]:
    """Yield a value without quotes, where such a value can be a literal at all."""
    text = place.text
    if operator not in _BARE_OPERATORS or "{{" in place.get_line_before():
        return
    block = (
        _BLOCK.match(text, first) if operator == ":" and place.trust is not Trust.PROGRAM else None
    )
    bare = _BARE.match(text, first) if text[first : first + 1] not in ("[", "{", "(") else None
    if block:
        yield from _judge_block(place, block)
    elif not bare:
        return
    elif place.before in ("?", "&", ";") or (
        place.before in ("'", '"', "`") and operator == "=" and not quoted
    ):
        yield from _judge_string(place, first) if operator == "=" and not quoted else ()
    elif place.trust is Trust.CREDENTIALS:
        yield from _judge_line(place, first, bare.end())
    elif place.trust is Trust.SETTINGS and not quoted:
        yield from _judge_setting(place, first, bare.end())
    elif not quoted:
        yield from _judge_program(place, operator, first)


def _judge_string(place: SecretName, first: int) -> Iterator[SecretSpan]:
    """Yield a value inside a connection string or a query.

    Nearly every literal counts as a password.
    """
    inside = _IN_STRING.match(place.text, first)
    value = NEXT_SETTING.split(inside[0], maxsplit=1)[0].rstrip(".,:)") if inside else ""
    if not value or _is_expression(value):
        return
    plain = (
        place.kind == "password"
        and _is_secret(place, value, Trust.SETTINGS)
        and not values.is_fake(value)
    )
    if plain or _is_secret(
        place, value, place.trust if place.trust is Trust.CREDENTIALS else Trust.PROGRAM
    ):
        yield first, first + len(value), place.kind


def _judge_line(place: SecretName, first: int, last: int) -> Iterator[SecretSpan]:
    """Yield a value of a file of credentials: a word, or the rest of the line if it is a
    passphrase.
    """
    text = place.text
    rest = text[first : get_line(text, first)[1]].split(" #")[0].split(" ;")[0].rstrip()
    if " " in rest and values.looks_like_passphrase(rest):
        last = first + len(rest)
    if _is_secret(place, text[first:last], Trust.CREDENTIALS):
        yield first, last, place.kind


def _judge_setting(place: SecretName, first: int, last: int) -> Iterator[SecretSpan]:
    """Yield a value of a settings file: a word, or the rest of the line if it is a passphrase."""
    text = place.text
    start, end = get_line(text, first)
    rest = text[first:end].split(" #")[0].rstrip()
    if text[first] in "!&*" and " " in rest:  # a tag or an anchor of YAML
        return
    phrase = place.kind == "password" or "mnemonic" in place.name.lower()
    if phrase and values.looks_like_passphrase(rest) and not is_locale(place.path):
        yield first, first + len(rest), place.kind
        return
    if any(char in text[start : place.start] for char in "{[<\"'(,") or extension(place.path) in (
        ".xml",
        ".config",
        ".plist",
    ):
        inside = _IN_FLOW.match(text, first)
        last = inside.end() if inside else first
    elif (
        place.kind == "password"
        and " " in rest
        and "{{" not in rest
        and values.is_prose_secret(text[first:last], "password")
    ):
        last = first + len(rest)
    value = text[first:last].rstrip(",;")
    if not _is_expression(value) and (" " in value or _is_secret(place, value, Trust.SETTINGS)):
        yield first, first + len(value), place.kind


def _judge_block(place: SecretName, block: re.Match[str]) -> Iterator[SecretSpan]:
    """Yield the lines of a YAML block scalar."""
    text, at = place.text, block.start("first")
    value = text[at : block.end("first")].rstrip()
    if not (_is_secret(place, value, Trust.SETTINGS) or values.looks_like_passphrase(value)):
        return
    yield at, at + len(value), place.kind
    following = re.compile(rf"\r?\n{block['indent']}(\S[^\r\n]*)")
    at = block.end("first")
    for _ in range(_BLOCK_LINES):
        line = following.match(text, at)
        if not line:
            return
        yield (*line.span(1), place.kind)
        at = line.end()


def _judge_program(place: SecretName, operator: str, first: int) -> Iterator[SecretSpan]:
    """Yield a bare value in program text or prose."""
    text, name = place.text, place.name
    shell = is_shell(place.path)
    inside = _IN_SHELL.match(text, first)
    value = inside[0].rstrip(".:\\") if inside else ""
    following = text[first + len(value) : first + len(value) + 1]
    if operator in ("=", ":-", ":=") and (
        shell
        or place.before == "$"
        or name.startswith("--")
        or (name.isupper() and place.before in _SHELL_BEFORE)
    ):
        # A call, an index or an attribute of something: program text, not a value.
        if not (following and following in "([{") and not values.is_reference(value):
            plain = (
                place.kind == "password"
                and place.trust is Trust.PROSE
                and name.isupper()
                and not following.strip()
            )
            if _is_secret(place, value, Trust.SETTINGS if shell or plain else Trust.PROGRAM):
                yield first, first + len(value), place.kind
        return
    if (
        operator in ("=", ":")
        and place.before in ("", " ", "\t", "\n")
        and _DSN.search(text, *get_line(text, place.start, 160))
    ):
        found = list(_judge_string(place, first))
        if found:
            yield from found
            return
    if text[place.start - 2 : place.start] == "${" and operator == ":":
        default = _DEFAULT.match(text, first)
        if default and _is_secret(place, default[0], Trust.PROGRAM):
            yield (*default.span(), place.kind)
    elif place.trust is Trust.PROSE or place.is_commented():
        if operator in ("=", ":", "->", "=>", "\u2192", "\uff1a"):
            yield from judge_label(place, first)
    elif operator in ("=", ":") and _IN_PROGRAM.match(text, first) and values.count_digits(value):
        named = re.fullmatch(r"[\w.]+", value) and (
            place.kind == "password" or values.is_identifier(value)
        )
        if not named and not values.is_reference(value) and _is_secret(place, value, Trust.PROGRAM):
            yield first, first + len(value), place.kind


_ABBREVIATED = 3  # "pw" and "psk" mean many things
_SPACED = frozenset({".conf", ".cfg", ".cnf"})  # names and values with a space between them
_SHELL_BEFORE = ("", " ", "\t", "\n", "'", '"', "`", ":", "-", ",", "{")


def _judge_next_word(place: SecretName, first: int) -> Iterator[SecretSpan]:
    """Yield a value behind a name and a space: a flag, a Dockerfile's `ENV`, or a directive."""
    text = place.text
    word = _WORD.match(text, first)
    if not word:
        return
    value = word[0].rstrip(",).") if place.trust is Trust.PROSE else word[0]
    if place.name.startswith("-"):
        mixed = values.looks_random(value) or values.is_prose_secret(value, "password")
        plain = (
            place.kind == "password"
            and is_shell(place.path)
            and _is_secret(place, value, Trust.SETTINGS)
        )
        if not value.startswith("-") and not _is_expression(value) and (mixed or plain):
            yield first, first + len(value), place.kind
    elif place.trust is Trust.PROSE and _is_told(place, value):
        yield first, first + len(value), place.kind
    elif _DIRECTIVE.search(line := place.get_line_before()) or (
        extension(place.path) in _SPACED and not line.strip(" \t#")
    ):
        rest = text[first : get_line(text, first)[1]].split(" #")[0].rstrip("\\ \t\r")
        trust = Trust.SETTINGS if rest == value else Trust.PROGRAM
        if (
            not value.startswith("=")
            and not _is_expression(value)
            and _is_secret(place, value, trust)
        ):
            yield first, first + len(value), place.kind


def _is_told(place: SecretName, value: str) -> bool:
    """Judge a word that follows a name in a sentence: "with password x", "use the token x"."""
    return (
        is_striking(value)
        if place.kind == "password"
        else bool(_BARE_TOKEN.match(value)) and values.looks_random(value)
    )
