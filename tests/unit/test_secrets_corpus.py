"""Masking of the corpus of planted secrets, of their neighbours, and of ordinary text that
resembles them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secrets_corpus
from unspool.sources.secrets.masking import mask_field, mask_secrets

FORMS = secrets_corpus.build()
SEEDS = range(2, 8)


def test_the_corpus_covers_every_class_with_at_least_150_forms() -> None:
    assert len(FORMS) >= 150
    groups = {form.group for form in FORMS}
    assert groups == {
        "prose",
        "connection",
        "url",
        "sql",
        "code",
        "configuration",
        "shell",
        "header",
        "token",
        "named key",
        "private key",
    }


@pytest.mark.parametrize(
    "form", FORMS, ids=[f"{form.group} {number}" for number, form in enumerate(FORMS)]
)
def test_a_planted_secret_is_masked_and_the_text_keeps_its_length(
    form: secrets_corpus.Form,
) -> None:
    masked, found = mask_secrets(form.text, form.path)
    assert not secrets_corpus.is_readable(form.secret, masked)
    assert len(masked) == len(form.text)
    assert found
    assert not secrets_corpus.is_readable(form.secret, repr(found))
    assert mask_secrets(masked, form.path) == (masked, ())


def test_other_secrets_of_the_same_forms_are_masked() -> None:
    forms = [form for seed in SEEDS for form in secrets_corpus.build(seed)]
    left = [
        form
        for form in forms
        if secrets_corpus.is_readable(form.secret, mask_secrets(form.text, form.path)[0])
    ]
    assert left == []


def test_an_independent_scanner_finds_no_token_in_the_masked_corpus(tmp_path: Path) -> None:
    scan = pytest.importorskip(
        "detect_secrets.core.scan",
        reason="pip install detect-secrets, which is part of the extra `dev`",
    )
    scanning = pytest.importorskip(
        "detect_secrets.settings",
        reason="pip install detect-secrets, which is part of the extra `dev`",
    )
    with scanning.default_settings():
        names = [type(plugin).__name__ for plugin in scanning.get_plugins()]
    by_entropy = ("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector")
    left = []
    with scanning.transient_settings(
        {"plugins_used": [{"name": name} for name in names if name not in by_entropy]}
    ):
        for number, form in enumerate(FORMS):
            file = tmp_path / f"{number}.txt"
            file.write_text(mask_secrets(form.text, form.path)[0], encoding="utf-8")
            left += [
                (form, found.type)
                for found in scan.scan_file(str(file))
                if "*" not in (found.secret_value or "*")
            ]
    # the markers of a key stay
    assert [(form, kind) for form, kind in left if kind != "Private Key"] == []


# What programs, manuals and settings say about secrets without giving one.
ORDINARY = [
    ("a.py", "password = b'\\x89PNG\\r\\n\\x1a\\n'"),
    ("a.py", "password: str"),
    ("a.py", "password: Optional[SecretStr] = None"),
    ("a.py", "password = getpass()"),
    ("a.py", 'password = getpass("Password: ")'),
    ("a.py", "password=self.password"),
    ("a.py", "connect(user=user1, password=password2)"),
    ("a.py", "def authenticate(self, request, username=None, password=None):"),
    ("a.py", "if password == expected:"),
    ("a.py", 'password = password.encode("latin1")'),
    ("a.py", 'os.environ["DB_PASSWORD"]'),
    ("a.py", 'parser.add_argument("--password", "-p", help="password of the user")'),
    ("a.py", 'fields = ("username", "password1", "password2")'),
    ("a.py", 'token = create_hash_256_token("sha256")'),
    ("a.py", "token: createHash256Token,"),
    ("a.py", 'PASSWORD = "${DB_PASSWORD}"'),
    ("a.py", 'PASSWORD_FILE = "${TMP}/new-password"'),
    ("a.py", 'TOKEN = r"[A-Za-z_][A-Za-z0-9_]*"'),
    ("a.py", 'SELECTOR = "input[name=password1]"'),
    ("a.py", "x = sort(data, key=lambda item: item.key2)"),
    ("a.py", "signature=inspect_signature_of_the_call_2"),
    ("a.ts", "password: string;"),
    ("a.ts", "token: string | undefined = getToken1();"),
    ("a.tsx", '<label htmlFor="password">Password:</label>'),
    (
        "a.go",
        'req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString(credentials1))',
    ),
    ("a.rb", 'get "admin/passwords" => "queenbee#passwords"'),
    ("a.sql", "-- the attribute identified by +attr_name+ before the cast"),
    ("a.go", "// The user is created in the database identified by dbName, while others stay."),
    ("a.go", '// split it into shards, identified by "prefix+index"'),
    ("mvnw", 'case "${MVNW_PASSWORD:+has-password}" in'),
    ("strings.json", '"x": "[%key:component::filter::step::lowpass::data::time_constant%]"'),
    (
        "notes.md",
        (
            "* Fix support for git image secrets "
            "([e3d2718](https://github.com/x/y/commit/e3d27181459993d4e6))"
        ),
    ),
    ("a.yaml", "##  fastcgi_pass phpfpm-server:9000;"),
    ("a.py", '"AWS::Redshift::EndpointAuthorization": "e72be424d109da1d"'),
    ("a.json", '{"perms": ["pr", "pw"], "value": 1570358601}'),
    ("a.sql", "ALTER ROLE app WITH PASSWORD :password;"),
    ("a.yaml", "password:\n  type: string\n"),
    ("a.yaml", '{{- $password := include "common.secrets.password" . }}\n'),
    ("a.yaml", "kind: Secret\ndata:\n  password: {{ .Values.password | b64enc | quote }}\n"),
    ("a.yaml", "existingSecret: my-release-postgresql\n"),
    ("a.xml", "<password>${env.PASSWORD}</password>"),
    ("a.sh", "docker run -v $(pwd):/repo -p 8080:80 image"),
    ("a.sh", 'mysql -u root -p "$MYSQL_PASSWORD" app'),
    ("a.sh", "mysql -u root -p app"),
    ("a.sh", 'curl -u "$USER:$TOKEN" https://example.org'),
    ("a.sh", "ssh -p 2222 host"),
    ("a.sh", "mkdir -p build/output1"),
    (
        "notes.md",
        (
            "Your password is incorrect. The password was changed, and passwords are managed by "
            "the "
            "service."
        ),
    ),
    ("notes.md", "Set the password with `--password PASSWORD` or `--password-file`."),
    ("notes.md", "| option | default |\n|---|---|\n| password | required |\n| token | `None` |\n"),
    ("notes.md", "Password: <your password>"),
    ("notes.md", "Password: changeme"),
    ("notes.md", "To prevent this, pass ``weak=False`` when you connect."),
    ("notes.md", "The server answers with `Set-Cookie: name=value; Path=/; Max-Age=3600`."),
    ("notes.md", "Cookie: theme=dark; lang=en"),
    ("notes.md", "Use an Authorization header with the scheme of your choice."),
    (
        "notes.md",
        "postgres://USER:PASSWORD@HOST/NAME https://USERNAME:PERSONAL_ACCESS_TOKEN@github.com/x",
    ),
    (
        "notes.md",
        "see http://localhost:8080/@scope/package@2.0.1 and git+ssh://git@github.com/x/y.git",
    ),
    ("notes.md", "arn:aws:secretsmanager:us-west-2:123456789012:secret:prod-database-AbC123"),
    (
        "notes.md",
        "The basic login flow: enter your user name, then the passphrase that you have chosen.",
    ),
]


@pytest.mark.parametrize(("path", "text"), ORDINARY)
def test_text_about_secrets_stays(path: str, text: str) -> None:
    assert mask_secrets(text, path) == (text, ())


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("password", "swordfish", "*********"),
        ("db_password", "one two", "*** ***"),
        ("api_key", "walrus-42", "*********"),
        ("token_count", "4711", "4711"),
        ("author", "ann", "ann"),
        ("password", "${DB_PASSWORD}", "${DB_PASSWORD}"),
        ("note", "the password is Tr0ub4dor&3", "the password is ***********"),
    ],
)
def test_a_named_value_is_masked_by_its_name_or_by_its_content(
    name: str, value: str, masked: str
) -> None:
    assert mask_field(name, value)[0] == masked


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([piece for form in FORMS for piece in (form.text, form.secret)])
        | st.text(max_size=12),
        max_size=6,
    ),
    st.sampled_from(sorted({form.path for form in FORMS})),
)
def test_any_mixture_of_forms_keeps_length_and_white_space(pieces: list[str], path: str) -> None:
    text = "".join(pieces)
    masked, found = mask_secrets(text, path)
    assert len(masked) == len(text)
    assert all(after in (before, "*") for before, after in zip(text, masked, strict=True))
    assert [at for at, char in enumerate(masked) if char.isspace()] == [
        at for at, char in enumerate(text) if char.isspace()
    ]
    assert all(1 <= item.line <= text.count("\n") + 1 for item in found)


HOSTILE = [
    "password for " * 80_000,
    "password for" + " " * 1_000_000,
    "password is is " * 70_000,
    "Password:\n" * 100_000,
    "| password " * 100_000,
    "| password |\n|--|\n" + "| a1!bcdefg |\n" * 70_000,
    "<password>" * 100_000,
    "<password " + 'a="b" ' * 160_000,
    '"password", ' * 80_000,
    "password(" * 110_000,
    "password: |\n  a\n" * 60_000,
    'password = "a" + ' * 60_000,
    "name: password\n  a: b\n" * 50_000,
    " -p" * 330_000,
    "curl" + " -u a" * 200_000,
    "curl -u a:b1234 \\\n" * 60_000,
    "identified by " * 70_000,
    "identified with " + "a" * 1_000_000,
    "net use " * 120_000,
    "freerdp " * 120_000,
    "convertto-securestring" + " -force" * 140_000,
    "login(" + '"a", ' * 200_000,
    "credential(a, " * 70_000,
    "authorization: digest " * 45_000,
    "cookie: a=b; " * 75_000,
    "cookie: " + "a=b1234567;" * 90_000,
    "sig=" * 250_000,
    "hooks/" * 160_000,
    "https://a:" + "@" * 1_000_000,
    "https://a:b1@" * 75_000,
    "a:b1c2d3@tcp(" * 75_000,
    "jdbc:oracle:thin:a/" * 50_000,
    "$2a$10$" * 140_000,
    "$6$" * 330_000,
    "$argon2id$" + "a" * 1_000_000,
    "{SSHA}" * 160_000,
    "PuTTY-User-Key-File-2: x\n" * 40_000,
    "Private-Lines: 9\n" + "ABCD\n" * 200_000,
    "LS0tLS1CRUdJTi" + "A" * 1_000_000,
    "LS0tLS1CRUdJTi" * 70_000,
    "kind: Secret\ndata:\n  a: b\n" * 40_000,
    "kind: Secret\ndata:\n" + "  a: bcdef\n" * 90_000,
    "dp." + "a" * 60 + "." * 1_000_000,
    "1234567890:" * 90_000,
    "Aa1" * 330_000,
    "\u5bc6\u7801: " * 200_000,
    "(password) values ('a')," * 40_000,
    "(password) values " + "('a1b2c3d4')," * 70_000,
    "(password, " * 90_000,
    "password a b c d: " * 55_000,
    "use a1b2c3d4 as the password " * 35_000,
    "jwt.encode(" * 90_000,
    "mysqli('a', " * 80_000,
    "${a.password:" * 70_000,
]


@pytest.mark.parametrize("path", ["notes.md", "a.yaml"])
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:16]))
def test_hostile_text_is_scanned(text: str, path: str) -> None:
    start = time.process_time()
    mask_secrets(text[: len(text) // 16], path)
    # linear work takes one second, quadratic work half a minute
    assert time.process_time() - start < 10
