"""Classification of values: random token, password, placeholder or ordinary text. Pure."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from itertools import pairwise

from unspool.sources.names import split_words
from unspool.sources.secrets.scanning import Trust

MIN_LENGTH = 6
_MIN_RANDOM = 16
_MIN_CREDENTIAL = 4
_MIN_DISTINCT = 6  # fewer different characters: "ghp_xxxxxxxx" in a manual
_MIN_BITS = 4.2  # Shannon entropy per character of a long token with all character classes
_MIN_PART_BITS = 3.0  # the same of its longest alphanumeric part

# References to a value that is stored elsewhere. Literal text around them may still be a secret.
_TEMPLATE = re.compile(
    r"\$\{[^}\s]{0,80}+\}|\$\([^)]{0,80}+\)|(?<!\w)\$[A-Za-z_]\w*+|\{\{[^}]{0,80}+\}\}|\{[\w.:!]{0,60}+\}|<[\w %.:/|-]{0,60}+>|<%[^%]{0,60}+%>"
    r"|%\(\w{1,40}+\)[sdr]|(?<!\w)%[sdrv](?!\w)|%[A-Z_]{3,40}+%|@@?[A-Z_]{3,40}+@@?|#\{[^}]{0,80}+\}|__[A-Z_]{3,40}+__"
)
_CONSTANT = re.compile(r"[A-Z]+[0-9]?(?:[_,][A-Z]+[0-9]?)+$|\[[A-Za-z_ ]+\]$")
_ELIDED = re.compile(r"\.\.\.|\u2026|\*\*\*|\x00|\ufffd|\[\.\.|[\u2022\u25cf]{3}")
_LOOKUP = re.compile(
    r"(?:\[%|[#$%]\{|\{\{|<%|os\.|env[.(\[]|process\.|system\.|secrets?\.|vars?\.|config\.|vault:|ssm:|arn:|op://|enc\[|data\.|local\.|module\.|secretref:|keyvault"
    r"|\$[\w{(]+$|~/|\./|\.\./|/\w+/[\w./-]*$|[a-z]:\\|file:|env:|aws:|base64\(|\w+://$)"
)
_DUMMY = re.compile(
    r"x{4,}|your|my[_-]?(?:pass|secret|token|api|key)|change[_ "
    r"-]?(?:me|it|this)|place[_-]?holder|redacted|example|dummy|insert|replace|todo|fixme"
    r"|undefined|not[_ -]?set|masked|removed|sample|omitted|enter[_-]|goes[_ -]here|<your|todo:"
)
_FAKE = re.compile(
    r"passw|pwd|secret|token|test|foo|fake|mock|invalid|wrong|default|apikey|api[_-]key|user|admin|auth|login|abc|qwerty|asdf|temp|demo|sha[0-9]|md5|base64|aes|gcm|ecdsa|rsa|ed25519|chacha|hmac|argon|crypt|pbkdf"
)
# Words that follow a label such as `password:` in forms, schemas and manuals.
_ORDINARY = split_words(
    "string integer number boolean object required optional enabled disabled default password "
    "passwd passwort passphrase "
    "passcode secret secrets private public hidden return returns digest bearer simple native "
    "prompt system manual always "
    "unless before during kerberos negotiate github google oauth inherit environment secretstr "
    "undefined nullable varchar "
    "nvarchar varbinary binary sensitive protected encrypted plaintext cleartext unknown "
    "incorrect correct invalid missing "
    "expired forgotten forgot wrong changed updated reset random generated stored hashed masked "
    "removed empty username "
    "account email emails address confirm confirmation current repeat please choose create "
    "update delete change cancel submit "
    "minlength maxlength length strength policy policies rotation credential credentials token "
    "tokens apikey accesskey "
    "secretkey function method variable constant setting settings option options argument "
    "parameter property attribute header "
    "cookie cookies session sessions request response server client provider service database "
    "external internal global locale "
    "project tenant custom nobody anyone anything something nothing whether without within "
    "because should cannot allowed "
    "denied accepted rejected supported unsupported available deprecated implied see also yes "
    "true false none null nil self "
    "this that will must may can here there where which when with from into only same other each "
    "either neither"
)
_DOTTED = re.compile(r"[A-Za-z_$@][\w$]*(?:(?:\??\.|->|::)[A-Za-z_$][\w$]*)+\(?\)?;?$")
_WORDY = re.compile(
    r"(?:[A-Za-z]+|[0-9]{1,4}|[A-Za-z]+[0-9]{1,2}|v[0-9]+)(?:[_.:/@-](?:[A-Za-z]+|[0-9]{1,4}|[A-Za-z]+[0-9]{1,2}|[a-z][0-9]{1,2}[a-z]))*$"
)
_SIMPLE = re.compile(r"[\w!@#$%^&*+=?~.,-]+$")
# Program text that stands in quotes.
_CODE = re.compile(
    "|".join(
        (
            r"\[[^\]]{0,40}+[=-][^\]]{0,40}+\]",  # an attribute selector, a set of characters
            r"\(\?|\.\*|\.\+|\\[dws]|\[\^",  # a regular expression
            r"\w\(\)|\(\w*\)|^[A-Za-z_][\w.]{3,}\(",  # a call
            r"^[.#][A-Za-z][\w-]*$|^@\w+$|^[a-z_/]+#[a-z_]+$",  # a selector, a handle, a route
            r"</?\w+|/>|&[a-z]+;?$",  # markup
            r"=>|&&|\|\||^--?[a-z]",  # operators and options
            # a label, an assignment, a name of a directory
            r"^[A-Za-z_ -]+[=:]$|^[A-Za-z_.]{4,}=[A-Za-z]|^\w+=[^,]{1,40},\w+=",
            r"^0x[0-9a-fA-F]+$|^[0-9a-f.]*:[0-9a-f:.]+(?:%\w+)?$",  # a number, an address
        )
    )
)
_PATTERN = re.compile(
    r"\\|\(\?[:=!<P]|\[\^|\.\*|\[[a-z0-9]-[a-z0-9]|://|\$\{|\{\{|[\w.]{12,}\(|\w=\w[^&]{0,60}&\w+=|,\w{3,}:",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r"[a-zA-Z_-]*(?:pass(?:word|wd|phrase|code)?|pwd|pw|secret|token|key)[_-]?[0-9]?", re.IGNORECASE
)
_LETTER = re.compile(r"[^\W\d_]")
_MARK = re.compile(r"[\d!@#$%^&*+=?~]")
_INNER_MARK = re.compile(r"[!@#$%^&*+?~]")
_TOKEN = re.compile(r"[!-~]+$")
_PART = re.compile(r"[A-Za-z0-9+=]+")
_HUMP = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|[abfnrtv])")
_LINE_END = re.compile(r"(?:\\[nr])+$")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*$")
# The letters that follow a letter in 94 of 100 places of identifiers and documentation; in random
# text they do in 39.
_FOLLOWERS = {
    letter: frozenset(followers)
    for letter, followers in zip(
        "abcdefghijklmnopqrstuvwxyz",
        "bcdfgiklmnprstuvy aeilorsu acehiklorstuy abcdefilorsu abcdefgilmnopqrstvwxy aefilortu "
        "aeghilnorsu aeiort abcdefglmnoprstvxz e eis "
        "adeilopstuy abeimopsu acdefgiklnostuv abcdfgiklmnoprstuvw aehiloprstuy u "
        "acdefgiklmnoprstuvy acdehiklmopstuy acehilmoprstuy "
        "abcdegilmnprst aeio aeinors eipt ps ae".split(),
        strict=True,
    )
}
_MIN_COMMON = 0.68
_FUNCTION_WORDS = split_words(
    "a an the is are be to of in on for and or if your you our we my it its this that with not "
    "no please must can will use enter type password "
    "passwords passphrase secret token key per as at by from has have was were should may which "
    "used when who"
)


def is_placeholder(value: str) -> bool:
    """Tell if a value only marks the place of a secret: a variable, a lookup or a word of a
    manual.
    """
    if len(set(value)) < 3 or _ELIDED.search(value) or _LOOKUP.match(value.lower()):
        return True
    literal = _TEMPLATE.sub("", value)
    if literal != value and (
        sum(map(str.isalnum, literal)) < MIN_LENGTH or is_wordy(literal.strip("/._-: "))
    ):
        return True
    return bool(_CONSTANT.match(value)) or (
        bool(_DUMMY.search(value.lower())) and not has_all_classes(value)
    )


def is_varied(value: str) -> bool:
    """Tell if a value has so many different characters that it is no illustration."""
    return len(set(value)) >= _MIN_DISTINCT


def is_filler(value: str) -> bool:
    """Tell if a value is a placeholder or a common word."""
    return is_placeholder(value) or is_ordinary(value)


def looks_random(value: str) -> bool:
    """Tell if a value is so long and mixed that it is no word, name or path."""
    if len(value) < _MIN_RANDOM or not _TOKEN.match(value):
        return False
    if len(value) >= 40 and not value.isalnum() and _is_dense(value):
        return not _ELIDED.search(value)
    if is_placeholder(value):
        return False
    if _UUID.match(value):
        return True
    if is_identifier(value) or is_reference(value) or _CODE.search(value):
        return False
    if (has_all_classes(value) and _compute_entropy(value) >= _MIN_BITS) or (
        len(value) >= 24
        and _count_classes(value) >= 3
        and count_digits(value) >= 2
        and not _is_pronounceable(value)
        and _compute_entropy(value) >= 4
    ):
        return True
    longest = max(_PART.findall(value), key=len, default="")
    if len(longest) < 12 or _compute_entropy(longest) < _MIN_PART_BITS or is_identifier(longest):
        return False
    digits = count_digits(longest)
    return 2 <= digits < len(longest) or (digits < 2 and _is_scrambled(longest))


def looks_like_password(value: str) -> bool:
    """Tell if a value mixes letters with digits or signs, as a chosen password does."""
    if (
        len(value) < MIN_LENGTH
        or is_placeholder(value)
        or not (_MARK.search(value) and _LETTER.search(value))
        or (is_wordy(value) and not value.isalnum())
        or _DOTTED.match(value)
        or _CODE.search(value)
        or "://" in value
    ):
        return False
    return bool(_SIMPLE.match(value)) or (
        len(value) >= 8 and _count_classes(value) >= 3 and value.isprintable() and " " not in value
    )


def looks_like_passphrase(value: str) -> bool:
    """Tell if a value is a row of three to ten plain words without the words that make a
    sentence.
    """
    parts = value.split()
    return (
        3 <= len(parts) <= 24
        and all(part.strip(",-").isalnum() and (part.islower() or part.isdigit()) for part in parts)
        and _FUNCTION_WORDS.isdisjoint(parts)
    )


def is_ordinary(value: str) -> bool:
    """Tell if a value is a common word of schemas, forms and manuals."""
    return value.lower() in _ORDINARY


def is_wordy(value: str) -> bool:
    """Tell if a value consists of words and small numbers with separators, as names of things
    do.
    """
    return bool(_WORDY.match(value)) and _is_pronounceable(value)


def is_reference(value: str) -> bool:
    """Tell if a value is a dotted name of program text."""
    return bool(_DOTTED.match(value))


def is_secret_name(value: str) -> bool:
    """Tell if a value is itself the name of a field: `password2`, `new_password1`."""
    return bool(_FIELD.fullmatch(value))


def is_fake(value: str) -> bool:
    """Tell if a value contains a word that test data is made of."""
    return bool(_FAKE.search(value.lower()))


def is_identifier(value: str) -> bool:
    """Tell if a value is a name of program text in camel case or snake case."""
    if not _IDENTIFIER.match(value):
        return False
    humps = _HUMP.findall(value)
    letters = [hump for hump in humps if hump[0].isalpha()]
    numbers = len(humps) - len(letters)
    return (
        numbers <= 3
        and bool(letters)
        and sum(map(len, letters)) >= 3 * len(letters)
        and _is_pronounceable(value)
    )


def count_digits(value: str) -> int:
    """Count the digits of a value."""
    return sum(char.isdigit() for char in value)


def _is_dense(value: str) -> bool:
    """Tell if characters of all sorts follow each other without an order."""
    signs = sum(not (char.isalnum() or char in "-_./:") for char in value)
    return (
        _count_classes(value) >= 3
        and _compute_entropy(value) >= 4.5
        and not _PATTERN.search(value)
        and (signs >= 5 or not _is_pronounceable(value))
    )


def _is_pronounceable(value: str) -> bool:
    """Tell if the letters follow each other as in words."""
    pairs = [
        (first, second)
        for first, second in pairwise(value.lower())
        if first in _FOLLOWERS and second in _FOLLOWERS
    ]
    return sum(second in _FOLLOWERS[first] for first, second in pairs) >= _MIN_COMMON * len(pairs)


def _is_scrambled(value: str) -> bool:
    """Tell if letters form no words: they change their case too often or follow each other as in
    no language.
    """
    is_mixed = (
        not value.isupper() and not value.islower() and len(value) < 2.6 * len(_HUMP.findall(value))
    )
    return len(value) >= _MIN_RANDOM and (is_mixed or not _is_pronounceable(value))


def _is_scrambled_word(value: str) -> bool:
    """Tell if a value consists of letters in both cases that form no words, as a generated
    password without digits does.
    """
    is_mixed = not value.isupper() and not value[1:].islower()
    return (
        is_mixed
        and value.isalpha()
        and value.isascii()
        and len(value) >= 8
        and not _is_pronounceable(value)
        and len(value) < 2.6 * len(_HUMP.findall(value))
    )


def has_all_classes(value: str) -> bool:
    """Tell if a value is long and has digits and both cases, so that a word in it is chance."""
    return (
        len(value) >= 32
        and any(map(str.isdigit, value))
        and any(map(str.isupper, value))
        and any(map(str.islower, value))
    )


def _count_classes(value: str) -> int:
    return sum(
        (
            any(map(str.isdigit, value)),
            any(map(str.isupper, value)),
            any(map(str.islower, value)),
            not value.isalnum(),
        )
    )


def _compute_entropy(value: str) -> float:
    """Return the Shannon entropy in bits per character."""
    return -sum(
        count / len(value) * math.log2(count / len(value)) for count in Counter(value).values()
    )


def is_secret(value: str, kind: str, trust: Trust, *, captions: bool = False) -> bool:
    """Judge a literal by its look and by the trust of the file.

    `captions`: plain words of the file are captions, as in translations.
    """
    if trust is Trust.CREDENTIALS:
        least = _MIN_CREDENTIAL if kind == "password" else MIN_LENGTH
        return (
            len(value) >= least
            and not is_filler(value)
            and not (kind == "secret" and value.isdigit())
        )
    if len(value) < MIN_LENGTH or is_filler(value) or "://" in value or is_secret_name(value):
        return False
    if any(map(str.isspace, value)):
        least = 3 if trust is Trust.SETTINGS else 4
        return (
            kind == "password"
            and not captions
            and looks_like_passphrase(value)
            and len(value.split()) >= least
        )
    if trust is Trust.SETTINGS and kind == "password":
        # One capitalised or foreign word is a caption, not a password.
        return not value.isalpha() or (value.isascii() and value.islower() and not captions)
    if looks_random(value) or (kind == "secret" and len(value) >= 12 and is_basic(value)):
        return True
    if kind == "password":
        return looks_like_password(value)
    if trust is not Trust.SETTINGS and not (len(value) >= 10 and count_digits(value) >= 3):
        return False
    return looks_like_password(value) and not is_wordy(value) and not is_fake(value)


def is_prose_secret(value: str, kind: str) -> bool:
    """Judge a word of a sentence.

    It must be mixed, because any plain word may follow in a sentence.
    """
    if (
        len(value) < MIN_LENGTH
        or is_ordinary(value)
        or is_secret_name(value)
        or "://" in value
        or any(map(str.isspace, value))
        or value[0] in "<([{"
    ):
        return False
    if looks_random(value) or (kind == "password" and _is_scrambled_word(value)):
        return True
    if not looks_like_password(value) or value[0] in "/.-=" or value.endswith(")"):
        return False
    if kind == "secret":
        return len(value) >= 10 and count_digits(value) >= 3 and not is_fake(value)
    return count_digits(value) > 0 or (
        _count_classes(value) >= 3 and bool(_INNER_MARK.search(value[1:-1]))
    )


def has_escapes(raw: str) -> bool:
    """Tell if a literal contains escapes of bytes or control characters."""
    return bool(_ESCAPE.search(_LINE_END.sub("", raw.replace("\\\\", "/"))))


def is_random_bytes(raw: str) -> bool:
    """Tell if a literal with escapes is a random key. The signature of a file format is shorter."""
    plain = _ESCAPE.sub("\x01", raw.replace("\\\\", "/"))
    return len(plain) >= _MIN_RANDOM and " " not in plain.strip()


def is_basic(value: str) -> bool:
    """Tell if a value is the base64 of `user:password`."""
    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:  # not base64, or not text
        return False
    return ":" in plain and plain.isprintable()
