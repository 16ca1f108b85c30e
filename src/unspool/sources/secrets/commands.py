"""Secrets in command lines and statements: `curl -u`, `sshpass -p`, `IDENTIFIED BY`,
`ConvertTo-SecureString`. Pure.

Names that say secret, such as `--password`, are in `assignments.py`. Here are the short options,
whose meaning depends on the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unspool.sources.names import words
from unspool.sources.secrets import values
from unspool.sources.secrets.spans import ScannedText, SecretSpan, Trust, get_line

_WORD = r"(?:\"(?P<double>[^\"\r\n]{1,200}+)\"|'(?P<single>[^'\r\n]{1,200}+)'|(?P<bare>[^\s\"'`|;&<>]{1,200}+))"
_VALUE = re.compile(_WORD)
_LOOK_BACK = 240
_MIN_LENGTH = 4

# Commands by the letter of the option that takes a password.
_COMMANDS = {
    "p": words(
        "sshpass cqlsh rdesktop 7z 7za rar unrar influx ccloud couchbase-cli useradd usermod "
        "argocd rabbitmqadmin jfrog jf psexec cadaver vncviewer"
    ),
    "P": words("zip unzip sqlcmd bcp ipmitool isql tsql osql ssh-keygen"),
    "u": words("curl lftp xh curlie"),
    "U": words("curl smbclient rpcclient net winexe smbget"),
    "a": words("redis-cli redis-benchmark keydb-cli valkey-cli http https xh"),
    "w": frozenset[str](),
    "N": words("ssh-keygen"),
    "b": words("htpasswd"),
    "k": words("openssl"),
    "A": frozenset[str](),
    "X": frozenset[str](),
}
# The same for families of commands, by the beginning of their names.
_FAMILIES = {
    "p": ("mysql", "mariadb", "mongo", "mosquitto_", "ncftp"),
    "P": ("mosquitto_",),
    "w": ("ldap",),
    "A": ("snmp",),
    "X": ("snmp",),
}
# with the word `login` or `upload`
_REGISTRIES = words("docker podman nerdctl buildah skopeo oras helm crane az oc cf twine")
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
        r"net user?[ \t]+[^\r\n|]{1,80}?[ \t](?P<double>(?!))?(?P<single>(?!))?(?P<bare>(?=[^\s/]{0,60}[0-9!@#$%])[^\s/\"']{6,60})(?=\s|$)",
        re.IGNORECASE,
    ),
    re.compile(
        r"sqlplus[ \t]+(?:-\w+[ \t]+){0,3}[\"']?[\w$]{1,30}/(?P<double>(?!))?(?P<single>(?!))?(?P<bare>[^\s@\"'/]{3,60})@",
        re.IGNORECASE,
    ),
    re.compile(r"freerdp[^\r\n]{0,300}?[ \t]/p(?:assword)?:" + _WORD, re.IGNORECASE),
)
# A call whose last argument is a password. The other arguments are strings, names or addresses.
_CALL = re.compile(
    r"(?:basic_?auth\w{0,20}|credentials?|(?<=password)token|mysqli|pdo|login|connect(?:ion)?|auth(?:[ \t]{0,4}=)?|passwordauthentication)"
    r"[ \t]{0,4}[(\[ ][ \t]{0,4}"
    r"(?:(?:[\w.]{1,60}|N?[\"'][^\"'\r\n]{0,80}[\"'])[ \t]{0,4},[ "
    r"\t]{0,4}){1,3}N?[\"'](?P<password>[^\"'\r\n]{6,200})[\"'][ \t]{0,4}[,)\]\r\n;]",
    re.IGNORECASE,
)
_SIGNING = re.compile(
    r"jwt\.(?:encode|decode|sign|verify)\([ \t]{0,8}[^,\r\n]{1,80},[ "
    r"\t]{0,8}b?[\"'](?P<key>[^\"'\r\n]{6,200})[\"']",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(r"\b(?:create|alter|grant|user|role|login|convertto-|net)", re.IGNORECASE)
_LONG = re.compile(r" --(?:proxy-)?(?:user|auth|creds|src-creds|dest-creds)[ =]" + _WORD)
_PASS = re.compile(r"(?<![A-Za-z])pass:(?!:)" + _WORD)
_WPA = re.compile(
    r"(?:(?<=wpa_)passphrase)[ \t]+(?:\"[^\"\n]{1,60}\"|'[^'\n]{1,60}'|\S{1,60})[ \t]+" + _WORD
)
_ECHO = re.compile(r"(?:echo|printf)[ \t]+(?:-[a-z]+[ \t]+)?" + _WORD + r"[ \t]*\|[^|]*$")
_USERS = re.compile(r"[\w.$-]{1,40}:(?P<password>[^\s\"'|:]{4,100})[\"']?[ \t]*\|[^|]*$")
_GIVEN = re.compile(r"passwd[ \t]*<<<[ \t]*[\"']?[\w.$-]{1,40}:(?P<password>[^\s\"'|:]{4,100})")


def find_at_statement(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the password of a statement: `IDENTIFIED BY`, `ConvertTo-SecureString`, `net user`."""
    for expression in _STATEMENTS:
        if found := expression.match(scan.text, at):
            span, value = _get_word(found)
            value = value.rstrip(";)") if found["bare"] else value
            stated = _ACCOUNT.search(scan.text, get_line(scan.text, at)[0], at)
            plain = stated and not found["bare"]
            if value.startswith((":", "?", "@")) or not (
                plain or values.is_prose_secret(value, "password")
            ):
                return
            yield from _judge(span, value)


def find_at_call(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the last argument of a call that takes a user and a password."""
    found = _CALL.match(scan.text, at)
    value = found["password"] if found else ""
    if (
        found
        and not values.is_secret_name(value)
        and (values.looks_random(value) or values.looks_like_password(value))
    ):
        yield (*found.span("password"), "password")


def find_at_signing(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the key with which a web token is signed: `jwt.encode(payload, key)`."""
    found = _SIGNING.match(scan.text, at)
    if found and values.is_secret(found["key"], "secret", Trust.SETTINGS):
        yield (*found.span("key"), "secret")


def find_at_password(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield passwords that are told by the word `pass`: `-passin pass:x`, `chpasswd`,
    `--password-stdin`, `wpa_passphrase`.
    """
    text = scan.text
    if found := _PASS.match(text, at) or _WPA.match(text, at):
        yield from _judge(*_get_word(found))
    if text.startswith(("passwd", "password-stdin"), at):
        line = text[(start := get_line(text, at)[0]) : at]
        if text.startswith("ch", max(0, at - 2)) and (found := _USERS.search(line)):
            yield from _judge(
                (start + found.start("password"), start + found.end("password")), found["password"]
            )
        elif found := _GIVEN.match(text, at):
            yield from _judge(found.span("password"), found["password"])
        elif (text.startswith("password-stdin", at) or "--stdin" in text[at : at + 20]) and (
            found := _ECHO.search(line)
        ):
            (first, last), value = _get_word(found)
            yield from _judge((start + first, start + last), value)


def find_at_option(scan: ScannedText, at: int) -> Iterator[SecretSpan]:
    """Yield the value of a short option whose command takes a password there."""
    text = scan.text
    letter = text[at + 2 : at + 3]
    if letter in _COMMANDS and text[at + 3 : at + 4] != "-":
        yield from _judge_option(text, at, letter)
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


def _judge_option(text: str, at: int, letter: str) -> Iterator[SecretSpan]:
    first = at + 3
    glued = text[first : first + 1] not in (" ", "=", "\t", "") and letter != "b"
    if glued and letter not in _GLUED:
        return
    if letter == "b" and (arguments := _HTPASSWD_ARGUMENTS.match(text, first, first + 200)):
        first = arguments.end()
    elif not glued:
        first += 1
    word = _VALUE.match(text, first)
    if not word or len(word[0]) < _MIN_LENGTH or word[0][0] == "-":
        return
    command = _get_command(text, at, letter)
    if not command or (letter == "p" and not glued and command.startswith(_PROMPTING)):
        return
    (start, end), value = _get_word(word)
    if letter in _PAIRED or command in ("http", "https", "xh"):
        sign = next((one for one in (":", "%", ",") if one in value), "")
        user, _, value = value.partition(sign) if sign else (value, "", "")
        if values.looks_random(user):
            yield start, start + len(user), "password"
        start += len(user) + 1
    yield from _judge((start, end), value, glued=glued and letter == "p")


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
    names = _COMMANDS[letter]
    return next(
        (
            word
            for word in reversed(found)
            if word in names or word.startswith(_FAMILIES.get(letter, ("\n",)))
        ),
        "",
    )


def _judge(span: tuple[int, int], value: str, *, glued: bool = False) -> Iterator[SecretSpan]:
    """Yield an option's value unless it is a placeholder, a number of a port or an option."""
    kept = value.rstrip(")") if "(" not in value else value
    if (
        len(kept) < _MIN_LENGTH
        or kept.startswith(("-", "$", "<", "%", "{", "@"))
        or values.is_placeholder(kept)
        or values.is_ordinary(kept)
        or values.is_reference(kept)
    ):
        return
    if (
        (kept.isupper() and kept.isalpha())
        or re.fullmatch(r"[0-9.:]+(?:/(?:tcp|udp))?", kept)
        or kept.startswith(("/", "./", "~"))
    ):
        return
    if glued and (kept.isalpha() and not kept.islower()):
        return
    yield span[0], span[0] + len(kept), "password"


def _get_word(found: re.Match[str]) -> tuple[tuple[int, int], str]:
    group = next(name for name in ("double", "single", "bare") if found[name] is not None)
    return found.span(group), found[group]
