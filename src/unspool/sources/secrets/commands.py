"""Secrets in command lines and statements: `curl -u`, `sshpass -p`, `IDENTIFIED BY`, `ConvertTo-SecureString`. Pure.

Names that say secret, such as `--password`, are in `assignments.py`. Here are the short options, whose meaning depends on the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.secrets import values
from unspool.sources.secrets.spans import Scan, Span, get_line

_WORD = r"(?:\"(?P<double>[^\"\r\n]{1,200}+)\"|'(?P<single>[^'\r\n]{1,200}+)'|(?P<bare>[^\s\"'`|;&<>]{1,200}+))"
_VALUE = re.compile(_WORD)
_LOOK_BACK = 400

# Commands by the letter of the option that takes a password; `glued` when the value may follow without a space.
_COMMANDS: dict[str, re.Pattern[str]] = {
    "p": re.compile(
        r"(?:sshpass|mysql\w*|mariadb(?:-\w+)?|(?:docker|podman|nerdctl|buildah|skopeo|oras|helm|crane|registry)[^|;\n]{0,200}\blogin|mongo\w*|cqlsh|az[ \t]+login"
        r"|rdesktop|7za?|rar|unrar|influx|oc[ \t]+login|ccloud|couchbase-cli|useradd|usermod|keystone|cf[ \t]+login|argocd|rabbitmqadmin|jfrog|jf|nexus"
        r"|psexec(?:64)?|cadaver|ncftp\w*|mosquitto_\w+|doveadm|xfs|twine[ \t]+upload|vncviewer)\b"
    ),
    "P": re.compile(r"(?:zip|unzip|sqlcmd|bcp|ipmitool|mosquitto_\w+|isql|tsql|ssh-keygen|freebcp|osql|clusterctl)\b"),
    "u": re.compile(r"(?:curl|lftp|xh|curlie)\b"),
    "U": re.compile(r"(?:curl|smbclient|rpcclient|net|winexe|wmic|smbget|crackmapexec)\b"),
    "a": re.compile(r"(?:redis-\w+|keydb-cli|valkey-cli|https?|xh)\b"),
    "w": re.compile(r"ldap\w+\b"),
    "N": re.compile(r"(?:ssh-keygen)\b"),
    "b": re.compile(r"(?:htpasswd)\b"),
    "k": re.compile(r"(?:openssl|gpg)\b"),
    "A": re.compile(r"snmp\w+\b"),
    "X": re.compile(r"snmp\w+\b"),
}
_GLUED = frozenset("puPUa")
_PAIRED = frozenset("uU")  # the value is `user:password`, `user%password` or `user,password`
_PROMPTING = re.compile(r"mysql|mariadb")  # `-p` alone asks; a word behind a space is the database
_SHELL_WORD = re.compile(r"(?:^|[ \t;|&(`$\"'/>])$")
# Matched at "identified", "securestring", "net use", "sqlplus" and "freerdp".
_STATEMENTS = (
    re.compile(
        r"identified\s{1,4}(?:with\s{1,4}[\"'`]?\w+[\"'`]?\s{1,4})?(?:by|as|using)\s{1,4}(?:password\s{1,4}|values\s{1,4})?" + _WORD,
        re.IGNORECASE,
    ),
    re.compile(r"securestring(?:[ \t]+-(?:string|asplaintext|force|key))*[ \t]*\(?[ \t]*" + _WORD, re.IGNORECASE),
    re.compile(r"net user?[ \t]+[^\r\n|]{1,80}?[ \t](?P<double>(?!))?(?P<single>(?!))?(?P<bare>(?=[^\s/]{0,60}[0-9!@#$%])[^\s/\"']{6,60})(?=[ \t]|$)", re.IGNORECASE),
    re.compile(r"sqlplus[ \t]+(?:-\w+[ \t]+){0,3}[\"']?[\w$]{1,30}/(?P<double>(?!))?(?P<single>(?!))?(?P<bare>[^\s@\"'/]{3,60})@", re.IGNORECASE),
    re.compile(r"freerdp[^\r\n]{0,300}?[ \t]/p(?:assword)?:" + _WORD, re.IGNORECASE),
)
# A call whose last argument is a password. The other arguments are strings, names or addresses.
_CALL = re.compile(
    r"(?:basic_?auth\w{0,20}|credentials?|login|connect(?:ion)?|auth(?:[ \t]{0,4}=)?|passwordauthentication)[ \t]{0,4}[(\[ ][ \t]{0,4}"
    r"(?:(?:[\w.]{1,60}|N?[\"'][^\"'\r\n]{0,80}[\"'])[ \t]{0,4},[ \t]{0,4}){1,3}N?[\"'](?P<password>[^\"'\r\n]{6,200})[\"'][ \t]{0,4}[,)\]\r\n;]",
    re.IGNORECASE,
)
_LONG = re.compile(r" --(?:proxy-)?(?:user|auth|creds|src-creds|dest-creds)[ =]" + _WORD)
_PASS = re.compile(r"pass:" + _WORD)
_WPA = re.compile(r"(?:(?<=wpa_)passphrase)[ \t]+(?:\"[^\"\n]{1,60}\"|'[^'\n]{1,60}'|\S{1,60})[ \t]+" + _WORD)
_ECHO = re.compile(r"(?:echo|printf)[ \t]+(?:-[a-z]+[ \t]+)?" + _WORD + r"[ \t]*\|[^|]*$")
_USERS = re.compile(r"[\w.$-]{1,40}:(?P<password>[^\s\"'|:]{4,100})[\"']?[ \t]*\|[^|]*$")
_GIVEN = re.compile(r"passwd[ \t]*<<<[ \t]*[\"']?[\w.$-]{1,40}:(?P<password>[^\s\"'|:]{4,100})")


def find_at_statement(scan: Scan, at: int) -> Iterator[Span]:
    """Yield the password of a statement: `IDENTIFIED BY`, `ConvertTo-SecureString`, `net user`."""
    for expression in _STATEMENTS:
        if found := expression.match(scan.text, at):
            span, value = _get_word(found)
            value = value.rstrip(";)") if found["bare"] else value
            if value.startswith((":", "?", "@")) or (found["bare"] and not values.is_prose_secret(value, "password")):
                return
            yield from _judge(span, value)


def find_at_call(scan: Scan, at: int) -> Iterator[Span]:
    """Yield the last argument of a call that takes a user and a password."""
    found = _CALL.match(scan.text, at)
    if found and (values.looks_random(found["password"]) or values.looks_like_password(found["password"])) and found["password"].isprintable():
        if not values.is_secret_name(found["password"]):
            yield (*found.span("password"), "password")


def find_at_password(scan: Scan, at: int) -> Iterator[Span]:
    """Yield passwords that are told by the word `pass`: `-passin pass:x`, `chpasswd`, `--password-stdin`, `wpa_passphrase`."""
    text = scan.text
    if found := _PASS.match(text, at) or _WPA.match(text, at):
        yield from _judge(*_get_word(found))
    if text.startswith(("passwd", "password-stdin"), at):
        line = text[(start := get_line(text, at)[0]) : at]
        if text.startswith("ch", max(0, at - 2)) and (found := _USERS.search(line)):
            yield from _judge((start + found.start("password"), start + found.end("password")), found["password"])
        elif found := _GIVEN.match(text, at):
            yield from _judge(found.span("password"), found["password"])
        elif (text.startswith("password-stdin", at) or "--stdin" in text[at : at + 20]) and (found := _ECHO.search(line)):
            (first, last), value = _get_word(found)
            yield from _judge((start + first, start + last), value)


def find_at_option(scan: Scan, at: int) -> Iterator[Span]:
    """Yield the value of a short option whose command takes a password there."""
    text = scan.text
    letter = text[at + 2 : at + 3]
    commands = _COMMANDS.get(letter)
    if commands and text[at + 3 : at + 4] != "-":
        yield from _judge_option(text, at, letter, commands)
    elif letter == "-" and (found := _LONG.match(text, at)):
        (start, _), value = _get_word(found)
        user, sign, password = value.partition(":")
        if sign and user.count("{") == user.count("}"):
            yield from _judge((start + len(user) + 1, start + len(value)), password)
    elif letter == "S" and text.endswith("sudo", max(0, at - 4), at):
        line = text[(start := get_line(text, at)[0]) : at]
        if found := _ECHO.search(line):
            (first, last), value = _get_word(found)
            yield from _judge((start + first, start + last), value)


def _judge_option(text: str, at: int, letter: str, commands: re.Pattern[str]) -> Iterator[Span]:
    start = get_line(text, at, _LOOK_BACK)[0]
    while start > 1 and text[start - 2] in "\\`^" and at - start < _LOOK_BACK:  # the line before is continued
        start = get_line(text, start - 2, _LOOK_BACK)[0]
    command = None
    for found in commands.finditer(text, start, at):
        if _SHELL_WORD.search(text[max(0, found.start() - 1) : found.start()] or " "):
            command = found
    if command is None or re.search(r"[|;]|&&", text[command.end() : at]):
        return
    first = at + 3
    glued = text[first : first + 1] not in (" ", "=", "\t", "")
    if glued and letter not in _GLUED:
        return
    if not glued and letter == "p" and _PROMPTING.match(command[0]):
        return
    if letter == "b":
        first = (re.compile(r"\w*[ \t]+\S+[ \t]+\S+[ \t]+").match(text, first) or re.compile("").match(text, first)).end()  # type: ignore[union-attr]
    elif not glued:
        first += 1
    word = _VALUE.match(text, first)
    if not word:
        return
    span, value = _get_word(word)
    if letter in _PAIRED or (letter == "a" and command[0] in ("http", "https", "xh")):
        sign = next((one for one in (":", "%", ",") if one in value), "")
        if not sign:
            if letter == "u" and values.looks_random(value):
                yield (*span, "password")
            return
        cut = value.index(sign) + 1
        if values.looks_random(value[: cut - 1]):
            yield span[0], span[0] + cut - 1, "password"
        span, value = (span[0] + cut, span[1]), value[cut:]
    yield from _judge(span, value, glued=glued and letter == "p")


def _judge(span: tuple[int, int], value: str, *, glued: bool = False) -> Iterator[Span]:
    """Yield an option's value unless it is a placeholder, a number of a port or an option."""
    kept = value.rstrip(")") if "(" not in value else value
    if len(kept) < 4 or kept.startswith(("-", "$", "<", "%", "{", "@")) or values.is_placeholder(kept) or values.is_ordinary(kept) or values.is_reference(kept):
        return
    if kept.isupper() and kept.isalpha() or re.fullmatch(r"[0-9.:]+(?:/(?:tcp|udp))?", kept) or kept.startswith(("/", "./", "~")):
        return
    if glued and (kept.isalpha() and not kept.islower()):
        return
    yield span[0], span[0] + len(kept), "password"


def _get_word(found: re.Match[str]) -> tuple[tuple[int, int], str]:
    group = next(name for name in ("double", "single", "bare") if found[name] is not None)
    return found.span(group), found[group]
