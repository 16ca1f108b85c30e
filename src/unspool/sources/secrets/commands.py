"""Secrets in command lines and statements: `curl -u`, `sshpass -p`, `IDENTIFIED BY`,
`ConvertTo-SecureString`. Pure.

Names that say secret, such as `--password`, are in `assignments.py`. Here are the short options,
whose meaning depends on the command.
"""

from __future__ import annotations

import re

from unspool.sources.names import split_words
from unspool.sources.secrets import values
from unspool.sources.secrets.scanning import ScannedText, SecretSpan, get_line

_WORD = r"(?:\"([^\"\r\n]{1,200}+)\"|'([^'\r\n]{1,200}+)'|(?P<bare>[^\s\"'`|;&<>]{1,200}+))"
_VALUE = re.compile(_WORD)
_LOOK_BACK = 240
_MIN_LENGTH = 4

# Commands by the letter of the option that takes a password, and beginnings of their names.
_COMMANDS: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "p": (
        split_words(
            "sshpass cqlsh rdesktop 7z 7za rar unrar influx ccloud couchbase-cli useradd usermod "
            "argocd rabbitmqadmin jfrog jf psexec cadaver vncviewer"
        ),
        ("mysql", "mariadb", "mongo", "mosquitto_", "ncftp"),
    ),
    "P": (split_words("zip unzip sqlcmd bcp ipmitool isql tsql osql ssh-keygen"), ("mosquitto_",)),
    "u": (split_words("curl lftp xh curlie"), ()),
    "U": (split_words("curl smbclient rpcclient net winexe smbget"), ()),
    "a": (split_words("redis-cli redis-benchmark keydb-cli valkey-cli http https xh"), ()),
    "w": (frozenset(), ("ldap",)),
    "N": (split_words("ssh-keygen"), ()),
    "b": (split_words("htpasswd"), ()),
    "k": (split_words("openssl"), ()),
    "A": (frozenset(), ("snmp",)),
    "X": (frozenset(), ("snmp",)),
}
# with the word `login` or `upload`
_REGISTRIES = split_words("docker podman nerdctl buildah skopeo oras helm crane az oc cf twine")
_GLUED = frozenset("puPUa")  # the value may follow without a space
_PAIRED = frozenset("uU")  # the value is `user:password`, `user%password` or `user,password`
_PROMPTING = ("mysql", "mariadb")  # `-p` alone asks; a word behind a space is the database
_COMMAND_WORD = re.compile(r"[\w.-]++")
_HTPASSWD_ARGUMENTS = re.compile(r"\w*[ \t]+\S+[ \t]+\S+[ \t]+")
# Matched at "identified", "securestring", "net use", "sqlplus" and "freerdp".
_STATEMENTS = (
    re.compile(
        r"identified\s{1,4}(?:with\s{1,4}[\"'`]?\w+[\"'`]?\s{1,4})?(?:by|as|using)\s{1,4}(?:password\s{1,4}|values\s{1,4})?"
        + _WORD,
        re.IGNORECASE,
    ),
    re.compile(
        r"securestring(?:[ \t]+-(?:string|asplaintext|force|key))*[ \t]*\(?[ \t]*" + _WORD,
        re.IGNORECASE,
    ),
    re.compile(
        r"net user?[ \t]+[^\r\n|]{1,80}?[ \t](?P<bare>(?=[^\s/]{0,60}[0-9!@#$%])[^\s/\"']{6,60})(?=\s|$)",
        re.IGNORECASE,
    ),
    re.compile(
        r"sqlplus[ \t]+(?:-\w+[ \t]+){0,3}[\"']?[\w$]{1,30}/(?P<bare>[^\s@\"'/]{3,60})@",
        re.IGNORECASE,
    ),
    re.compile(r"freerdp[^\r\n]{0,300}?[ \t]/p(?:assword)?:" + _WORD, re.IGNORECASE),
)
_ACCOUNT = re.compile(r"\b(?:create|alter|grant|user|role|login|convertto-|net)", re.IGNORECASE)
_LONG = re.compile(r" --(?:proxy-)?(?:user|auth|creds|src-creds|dest-creds)[ =]" + _WORD)
_PASS = re.compile(r"(?<![A-Za-z])pass:(?!:)" + _WORD)
_WPA = re.compile(
    r"(?:(?<=wpa_)passphrase)[ \t]+(?:\"[^\"\n]{1,60}\"|'[^'\n]{1,60}'|\S{1,60})[ \t]+" + _WORD
)
_ECHO = re.compile(r"(?:echo|printf)[ \t]+(?:-[a-z]+[ \t]+)?" + _WORD + r"[ \t]*\|[^|]*$")
_USERS = re.compile(r"[\w.$-]{1,40}:([^\s\"'|:]{4,100})[\"']?[ \t]*\|[^|]*$")
_GIVEN = re.compile(r"passwd[ \t]*<<<[ \t]*[\"']?[\w.$-]{1,40}:([^\s\"'|:]{4,100})")


def find_at_statement(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the password of a statement: `IDENTIFIED BY`, `ConvertTo-SecureString`, `net user`."""
    found = next(filter(None, (one.match(scan.text, at) for one in _STATEMENTS)), None)
    if not found:
        return []
    is_bare = found.lastgroup == "bare"
    value = found[found.lastindex or 0].rstrip(";)" if is_bare else "")
    is_plain = not is_bare and _ACCOUNT.search(scan.text, get_line(scan.text, at)[0], at)
    if value.startswith((":", "?", "@")) or not (
        is_plain or values.is_prose_secret(value, "password")
    ):
        return []
    return _judge(found.start(found.lastindex or 0), value)


def find_at_password(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return a password that follows or precedes the word `pass` in a command.

    Examples are `-passin pass:x`, `chpasswd`, `--password-stdin` and `wpa_passphrase`.
    """
    text = scan.text
    found = _PASS.match(text, at) or _WPA.match(text, at)
    if not found and text.startswith(("passwd", "password-stdin"), at):
        if text.startswith("ch", max(0, at - 2)) and (spans := _judge_before(_USERS, text, at)):
            return spans
        found = _GIVEN.match(text, at)
        if not found and (text.startswith("password-stdin", at) or "--stdin" in text[at : at + 20]):
            return _judge_before(_ECHO, text, at)
    return _judge_match(found)


def find_at_option(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the value of a short option whose command takes a password there."""
    text = scan.text
    letter = text[at + 2 : at + 3]
    if letter in _COMMANDS and text[at + 3 : at + 4] != "-":
        return _judge_option(text, at, letter)
    if letter == "-" and (found := _LONG.match(text, at)):
        user, sign, password = found[found.lastindex or 0].partition(":")
        is_pair = sign and user.count("{") == user.count("}")
        return _judge(
            found.start(found.lastindex or 0) + len(user) + 1, password if is_pair else ""
        )
    is_sudo = letter == "S" and text.endswith("sudo", max(0, at - 4), at)
    return _judge_before(_ECHO, text, at) if is_sudo else []


def _judge_option(text: str, at: int, letter: str) -> list[SecretSpan]:
    first = at + 3
    is_glued = text[first : first + 1] not in (" ", "=", "\t", "") and letter != "b"
    if is_glued and letter not in _GLUED:
        return []
    if letter == "b" and (arguments := _HTPASSWD_ARGUMENTS.match(text, first, first + 200)):
        first = arguments.end()
    elif not is_glued:
        first += 1
    word = _VALUE.match(text, first)
    if not word or len(word[0]) < _MIN_LENGTH or word[0][0] == "-":
        return []
    command = _get_command(text, at, letter)
    if not command or (letter == "p" and not is_glued and command.startswith(_PROMPTING)):
        return []
    start, value = word.start(word.lastindex or 0), word[word.lastindex or 0]
    spans = []
    if letter in _PAIRED or command in ("http", "https", "xh"):
        sign = next((one for one in (":", "%", ",") if one in value), "\n")
        user, _, value = value.partition(sign)
        if values.looks_random(user):
            spans.append((start, start + len(user), "password"))
        start += len(user) + 1
    return spans + _judge(start, value, is_glued=is_glued and letter == "p")


def _get_command(text: str, at: int, letter: str) -> str:
    """Return the command of an option, if the option takes a password."""
    start = get_line(text, at, _LOOK_BACK)[0]
    # the line before is continued
    while start > 1 and text[start - 2] in "\\`^" and at - start < _LOOK_BACK:
        start = get_line(text, start - 2, _LOOK_BACK)[0]
    start = max(start, *(text.rfind(mark, start, at) + 1 for mark in "|;&"))
    found = _COMMAND_WORD.findall(text, start, at)
    if letter == "p" and ("login" in found or "upload" in found):
        found += [word for word in found if word in _REGISTRIES] and ["sshpass"]
    names, beginnings = _COMMANDS[letter]
    commands = (word for word in reversed(found) if word in names or word.startswith(beginnings))
    return next(commands, "")


def _judge(start: int, value: str, *, is_glued: bool = False) -> list[SecretSpan]:
    """Return the span of a value unless it is a placeholder, an option, a number or a path."""
    kept = value.rstrip(")") if "(" not in value else value
    is_plain = (
        len(kept) < _MIN_LENGTH
        or kept.startswith(("-", "$", "<", "%", "{", "@", "/", "./", "~"))
        or values.is_filler(kept)
        or values.is_reference(kept)
        or (kept.isupper() and kept.isalpha())
        or re.fullmatch(r"[0-9.:]+(?:/(?:tcp|udp))?", kept)
        or (is_glued and kept.isalpha() and not kept.islower())
    )
    return [] if is_plain else [(start, start + len(kept), "password")]


def _judge_match(found: re.Match[str] | None, offset: int = 0) -> list[SecretSpan]:
    group = found.lastindex or 0 if found else 0
    return _judge(offset + found.start(group), found[group]) if found else []


def _judge_before(expression: re.Pattern[str], text: str, at: int) -> list[SecretSpan]:
    """Judge the value that an expression finds in the line before a position."""
    start = get_line(text, at)[0]
    return _judge_match(expression.search(text[start:at]), start)
