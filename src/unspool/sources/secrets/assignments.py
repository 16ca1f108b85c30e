"""Values given to a name that says secret: `password = "..."`, `"api_key": "..."`,
`DB_PASSWORD=...`. Pure.

How much a value must look like a secret depends on the file. A `.env` file contains little else, a
YAML file contains settings, and in program text most such values are words, paths and names of
other things. Sentences and labels are in `prose.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.names import get_extension
from unspool.sources.secrets import values
from unspool.sources.secrets.names import SecretName, identify, identify_foreign
from unspool.sources.secrets.prose import NEXT_SETTING, find_in_prose, is_striking, judge_label
from unspool.sources.secrets.scanning import (
    ScannedText,
    SecretSpan,
    Trust,
    find_literals,
    get_extent,
    get_line,
    is_locale,
    is_prefixed,
    is_shell,
    match_text,
)

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
_LABEL_OPERATORS = frozenset({"=", ":", "->", "=>", "\u2192", "\uff1a"})
_BARE = re.compile(r"[^\s\"'`\u2018-\u201e(\[{]\S{0,511}+")
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


_ABBREVIATED = 3  # "pw" and "psk" mean many things
_SPACED = frozenset({".conf", ".cfg", ".cnf"})  # names and values with a space between them
_SHELL_BEFORE = ("", " ", "\t", "\n", "'", '"', "`", ":", "-", ",", "{")


def find_at_name(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the value of a secret name, given the position of the name's last word."""
    place = identify(scan, at)
    return _find_value(place) if place else []


def find_foreign(scan: ScannedText) -> Iterator[SecretSpan]:
    """Yield the values of names in other scripts and languages."""
    for place in identify_foreign(scan):
        yield from _find_value(place)


def _find_value(place: SecretName) -> list[SecretSpan]:
    end = place.end + len(match_text(_CLOSE, place.text, place.end))
    separator = _SEPARATOR.match(place.text, end)
    spans = _follow(place, end, separator) if separator else []
    if spans or place.is_short:
        return spans
    is_plain = place.trust is Trust.PROSE or place.is_commented()
    if separator and separator["assign"] and not is_plain:
        return []
    spans = find_in_prose(place, end)
    return [span for span in spans if is_plain or is_striking(place.text[span[0] : span[1]])]


def _follow(place: SecretName, end: int, separator: re.Match[str]) -> list[SecretSpan]:
    """Return the value behind a separator."""
    text, first = place.text, separator.end()
    how = "assign" if separator["assign"] else separator.lastgroup or ""
    quoted = text[end - 1 : end] in ("'", '"', "`", ";", "]")
    if (
        (place.is_short and how != "assign")
        or (len(place.name) <= _ABBREVIATED and how not in ("assign", "space"))
        or (
            how == "named"
            and not quoted
            and not separator[0].startswith(":")
            and not _KEYED.search(place.get_line_before())
        )
    ):
        return []
    if how in ("element", "markup"):
        return _judge_element(place, how, first)
    if literals := find_literals(text, first):
        return _judge_literals(place, how, literals, quoted=quoted)
    if how == "named":
        value = match_text(_IN_FLOW, text, first)
        is_secret = place.accepts(value, max(place.trust, Trust.SETTINGS))
        return place.mark(first, value, when=is_secret and not _is_expression(value))
    if how == "assign":
        return _judge_bare(place, separator["operator"], first, quoted=quoted)
    if how == "cell" and place.trust is Trust.PROSE:
        return judge_label(place, first, stops="|")
    return _judge_next_word(place, first) if how == "space" else []


def _is_expression(value: str) -> bool:
    """Tell if a bare value is a call or a dotted name."""
    return bool(_CALLED.match(value)) or values.is_reference(value.rstrip(".,)"))


def _judge_element(place: SecretName, how: str, first: int) -> list[SecretSpan]:
    """Return the text of an element or of the next element."""
    content, stop, _ = place.text[first : first + 200].replace("]]>", "<  ").partition("<")
    if not stop or _MARKED.search(place.get_line_before()):
        return []
    value = content.strip()
    is_named = how == "element" and place.text[place.end : place.end + 1] == ">"
    trust = max(place.trust, Trust.SETTINGS) if is_named else place.trust
    is_secret = not value.endswith(":") and place.accepts(value, trust)
    return place.mark(first + content.find(value), value, when=is_secret)


def _judge_literals(
    place: SecretName, how: str, literals: list[re.Match[str]], *, quoted: bool
) -> list[SecretSpan]:
    """Return quoted literals; literals that are joined count as one value."""
    spans = [get_extent(one) for one in literals]
    raw = "".join(place.text[first:last] for first, last in spans)
    if (
        (how == "pair" and not quoted and place.before not in ("{", "("))
        or (is_prefixed(literals[0], "f$") and "{" in raw)
        # the quote closes a text that ends with the name
        or (how == "space" and raw[:1] in ",;:)]}+ ")
    ):
        return []
    trust = _rate_literal(place, how)
    if is_prefixed(literals[0], "r"):
        is_secret = place.accepts(raw, trust)
    elif values.has_escapes(raw):
        is_secret = place.kind == "secret" and values.is_random_bytes(raw)
    else:
        value = raw.replace("\\", "")  # an escape hides nothing
        is_secret = place.accepts(value, trust) or (
            trust is Trust.PROSE and values.is_prose_secret(value, place.kind)
        )
    return [(*span, place.kind) for span in spans] if is_secret else []


def _rate_literal(place: SecretName, how: str) -> Trust:
    """Return the trust of a literal, which is lower if no operator precedes the literal."""
    if how not in ("space", "call", "pair", "cell"):
        return place.trust
    line = place.get_line_before()
    is_statement = how == "space" and place.name.lower() == "password" and _STATEMENT.search(line)
    if is_statement or (how == "pair" and _DEFINITION.search(line)):
        return Trust.SETTINGS
    return min(place.trust, Trust.PROSE)


def _judge_bare(place: SecretName, operator: str, first: int, *, quoted: bool) -> list[SecretSpan]:
    """Return a value without quotes, where such a value can be a literal at all."""
    text, trust = place.text, place.trust
    if operator not in _BARE_OPERATORS or "{{" in place.get_line_before():
        return []
    is_block = operator == ":" and trust is not Trust.PROGRAM
    if is_block and (block := _BLOCK.match(text, first)):
        return _judge_block(place, block)
    bare = match_text(_BARE, text, first)
    is_inside = operator == "=" and not quoted
    if not bare:
        return []
    if place.before in ("?", "&", ";") or (place.before in ("'", '"', "`") and is_inside):
        return _judge_string(place, first) if is_inside else []
    if trust is Trust.CREDENTIALS:
        rest = place.get_line_after(first).split(" ;")[0].rstrip()
        value = rest if " " in rest and values.looks_like_passphrase(rest) else bare
        return place.mark(first, value, when=place.accepts(value, trust))
    if quoted:
        return []
    is_setting = trust is Trust.SETTINGS
    return (
        _judge_setting(place, first, bare) if is_setting else _judge_program(place, operator, first)
    )


def _judge_string(place: SecretName, first: int) -> list[SecretSpan]:
    """Return a value inside a connection string or a query.

    Nearly every literal counts as a password.
    """
    inside = match_text(_IN_STRING, place.text, first)
    value = NEXT_SETTING.split(inside, maxsplit=1)[0].rstrip(".,:)")
    if not value or _is_expression(value):
        return []
    trust = place.trust if place.trust is Trust.CREDENTIALS else Trust.PROGRAM
    is_plain = (
        place.kind == "password"
        and place.accepts(value, Trust.SETTINGS)
        and not values.is_fake(value)
    )
    return place.mark(first, value, when=is_plain or place.accepts(value, trust))


def _judge_setting(place: SecretName, first: int, bare: str) -> list[SecretSpan]:
    """Return a value of a settings file: a word, or the rest of the line if it is a passphrase."""
    text, rest = place.text, place.get_line_after(first)
    if bare[0] in "!&*" and " " in rest:  # a tag or an anchor of YAML
        return []
    may_be_phrase = place.kind == "password" or "mnemonic" in place.name.lower()
    if may_be_phrase and values.looks_like_passphrase(rest) and not is_locale(place.path):
        return place.mark(first, rest)
    is_flow = any(char in place.get_line_before() for char in "{[<\"'(,")
    if is_flow or get_extension(place.path) in (".xml", ".config", ".plist"):
        bare = match_text(_IN_FLOW, text, first)
    elif (
        place.kind == "password"
        and " " in rest
        and "{{" not in rest
        and values.is_prose_secret(bare, "password")
    ):
        bare = rest
    value = bare.rstrip(",;")
    is_secret = " " in value or place.accepts(value, Trust.SETTINGS)
    return place.mark(first, value, when=is_secret and not _is_expression(value))


def _judge_block(place: SecretName, block: re.Match[str]) -> list[SecretSpan]:
    """Return the lines of a YAML block scalar."""
    value = block["first"].rstrip()
    if not place.accepts(value, Trust.SETTINGS) and not values.looks_like_passphrase(value):
        return []
    spans = place.mark(block.start("first"), value)
    following = re.compile(rf"\r?\n{block['indent']}(\S[^\r\n]*)")
    line = following.match(place.text, block.end("first"))
    while line and len(spans) <= _BLOCK_LINES:
        spans.append((*line.span(1), place.kind))
        line = following.match(place.text, line.end())
    return spans


def _judge_program(place: SecretName, operator: str, first: int) -> list[SecretSpan]:
    """Return a bare value in program text or prose."""
    text, name = place.text, place.name
    value = match_text(_IN_SHELL, text, first).rstrip(".:\\")
    if operator in ("=", ":-", ":=") and (
        is_shell(place.path)
        or place.before == "$"
        or name.startswith("--")
        or (name.isupper() and place.before in _SHELL_BEFORE)
    ):
        return _judge_variable(place, first, value)
    if (
        operator in ("=", ":")
        and place.before in ("", " ", "\t", "\n")
        and _DSN.search(text, *get_line(text, place.start, 160))
        and (spans := _judge_string(place, first))
    ):
        return spans
    if text[place.start - 2 : place.start] == "${" and operator == ":":
        default = match_text(_DEFAULT, text, first)
        return place.mark(first, default, when=place.accepts(default, Trust.PROGRAM))
    if place.trust is Trust.PROSE or place.is_commented():
        return judge_label(place, first) if operator in _LABEL_OPERATORS else []
    if operator not in ("=", ":") or not _IN_PROGRAM.match(text, first):
        return []
    is_name = re.fullmatch(r"[\w.]+", value) and (
        place.kind == "password" or values.is_identifier(value)
    )
    is_secret = values.count_digits(value) and not is_name and not values.is_reference(value)
    return place.mark(first, value, when=bool(is_secret) and place.accepts(value, Trust.PROGRAM))


def _judge_variable(place: SecretName, first: int, value: str) -> list[SecretSpan]:
    """Return the value of a variable of a shell."""
    following = place.text[first + len(value) : first + len(value) + 1]
    # A call, an index or an attribute of something: program text, not a value.
    if following in ("(", "[", "{") or values.is_reference(value):
        return []
    is_plain = is_shell(place.path) or (
        place.kind == "password"
        and place.trust is Trust.PROSE
        and place.name.isupper()
        and not following.strip()
    )
    trust = Trust.SETTINGS if is_plain else Trust.PROGRAM
    return place.mark(first, value, when=place.accepts(value, trust))


def _judge_next_word(place: SecretName, first: int) -> list[SecretSpan]:
    """Return a value behind a name and a space: a flag, a Dockerfile's `ENV`, or a directive."""
    word = match_text(_WORD, place.text, first)
    value = word.rstrip(",).") if place.trust is Trust.PROSE else word
    if not word:
        return []
    if place.name.startswith("-"):
        is_secret = not value.startswith("-") and (
            values.looks_random(value)
            or values.is_prose_secret(value, "password")
            or (
                place.kind == "password"
                and is_shell(place.path)
                and place.accepts(value, Trust.SETTINGS)
            )
        )
    elif place.trust is Trust.PROSE and _is_given(place, value):
        return place.mark(first, value)
    elif _DIRECTIVE.search(line := place.get_line_before()) or (
        get_extension(place.path) in _SPACED and not line.strip(" \t#")
    ):
        rest = place.get_line_after(first).rstrip("\\ \t\r")
        trust = Trust.SETTINGS if rest == value else Trust.PROGRAM
        is_secret = not value.startswith("=") and place.accepts(value, trust)
    else:
        return []
    return place.mark(first, value, when=is_secret and not _is_expression(value))


def _is_given(place: SecretName, value: str) -> bool:
    """Judge a word that follows a name in a sentence: "with password x", "use the token x"."""
    is_token = bool(_BARE_TOKEN.match(value)) and values.looks_random(value)
    return is_striking(value) if place.kind == "password" else is_token
