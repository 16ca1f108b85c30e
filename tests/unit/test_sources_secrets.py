"""What is masked, what is not, and that masking never moves a character.

Secrets are put together from pieces, so that none stands here.
"""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.sources.secrets.masking import mask_secrets as mask

RANDOM = "q7Zp3XvK9mWc2RtY8bNf5LsD4gHj6TuA1eQo0ViBxMnCzPkJ"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
BODY = "\n".join([RANDOM + "abcdefghijkl0+/="] * 4)
PEM = "-----BEGIN RSA PRIVATE" + " KEY-----"
JWT = ".".join(["eyJ" + RANDOM[:20], "eyJ" + RANDOM[5:40], RANDOM[:43]])

TOKENS = [
    ("aws access key", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("aws access key", "ASIA" + "Y34FZKBOKMUTVV7A"),
    *(("github token", f"gh{letter}_" + RANDOM[:36]) for letter in "pousr"),
    ("github token", "github_pat_" + RANDOM[:22] + "_" + RANDOM[:40]),
    ("gitlab token", "glpat-" + RANDOM[:20]),
    ("slack token", "xoxb-" + "123456789012-" + RANDOM[:24]),
    ("slack token", "xoxp-" + "123456789012-" + RANDOM[:24]),
    ("google api key", "AIza" + RANDOM[:35]),
    ("google oauth secret", "GOCSPX-" + RANDOM[:28]),
    ("google oauth token", "ya29." + RANDOM[:40]),
    ("stripe key", "sk_live_" + RANDOM[:24]),
    ("unspool key", "unspool_" + "3f9c1a7b2e4d_" + (RANDOM * 2)[:43]),
    ("stripe key", "rk_live_" + RANDOM[:24]),
    ("stripe key", "sk_test_" + RANDOM[:24]),
    ("openai key", "sk-" + RANDOM[:48]),
    ("openai key", "sk-proj-" + RANDOM[:40] + "-_" + RANDOM[:20]),
    ("anthropic key", "sk-ant-" + "api03-" + RANDOM[:40] + "-" + RANDOM[:20]),
    ("hugging face token", "hf_" + RANDOM[:34]),
    ("npm token", "npm_" + RANDOM[:36]),
    ("pypi token", "pypi-AgE" + RANDOM + RANDOM),
    ("sendgrid key", "SG." + RANDOM[:22] + "." + RANDOM[:43]),
    ("twilio key", "SK" + HEX[:32]),
    ("digitalocean token", "dop_v1_" + HEX),
    ("vault token", "hvs." + RANDOM[:30]),
    ("jwt", JWT),
]


@pytest.mark.parametrize(
    ("kind", "token"), TOKENS, ids=[f"{kind} {index}" for index, (kind, _) in enumerate(TOKENS)]
)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "x = '{}'\n",
        "export T={}\n",
        "see ({}), or",
        '{{"k": "{}"}}',
        "line one\nline two {} end",
        "https://h/?t={}&x=1",
    ],
)
def test_tokens_of_known_form_are_masked_wherever_they_stand(
    kind: str, token: str, around: str
) -> None:
    text = around.format(token)
    masked, found = mask(text, "notes.md")
    assert masked == text.replace(token, "*" * len(token))
    assert [item.kind for item in found] == [kind]
    assert found[0].line == 1 + text[: text.index(token)].count("\n")


@pytest.mark.parametrize(
    ("text", "secret", "kind"),
    [
        (
            "https://hooks.slack.com/services/{}",
            "T0AAAAAAA/B0BBBBBBB/" + RANDOM[:24],
            "slack webhook",
        ),
        (
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=x",
            RANDOM[:40] + "+/ab==",
            "secret",
        ),
        ("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={}", RANDOM[:43] + "=", "secret"),
        ("curl -H 'Authorization: Bearer {}'", RANDOM[:30], "bearer token"),
        (
            "Authorization: Basic {}",
            base64.b64encode(b"alice:wonder1and").decode(),
            "basic credentials",
        ),
        ("postgresql://app:{}@db.internal:5432/app", "s3cr3t-pw", "password in url"),
        ("redis://:{}@cache/0", "Tr0ub4dor", "password in url"),
        ("amqp://guest:{}@mq", "p%40ss%2Fw0rd", "password in url"),
        ("git clone https://bob:{}@example.org/x.git", "kittens", "password in url"),
    ],
)
def test_what_stands_behind_a_telling_context_is_masked_alone(
    text: str, secret: str, kind: str
) -> None:
    masked, found = mask(text.format(secret), "README.md")
    assert masked == text.format("*" * len(secret))
    assert [item.kind for item in found] == [kind]


@pytest.mark.parametrize(
    ("path", "text", "secret"),
    [
        ("a.py", 'password = "{}"', "hunter2!x"),
        ("a.py", "password = '{}'", "hunter2"),
        ("a.py", 'connect(host="h", password="{}")', "n0tS0easy"),
        ("a.py", 'password: str = "{}"', "hunter2!x"),
        ("a.py", 'config["api_key"] = "{}"', RANDOM[:24]),
        ("a.py", 'SECRET_KEY = b"{}"', RANDOM[:40]),
        ("a.py", 'aws_secret_access_key="{}"', "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"),
        ("a.js", 'const apiKey = "{}";', HEX[:32]),
        ("a.js", "clientSecret: '{}',", RANDOM[:20]),
        ("a.ts", "const dbPassword: string = `{}`;", "hunter2!x"),
        ("A.java", 'private static final String PASSWORD = "{}";', "Tr0ub4dor&3"),
        ("a.rb", ":secret => '{}'", RANDOM[:32]),
        ("a.php", "'password' => '{}',", "wp#Passe8"),
        ("a.go", 'token := "{}"', RANDOM[:32]),
        ("a.json", '{{"api_key": "{}"}}', RANDOM[:32]),
        ("a.json", '{{"auth": "{}"}}', RANDOM[:32]),
        ("deploy.sh", "export DB_PASSWORD={}\n", "hunter2!x"),
        ("Dockerfile", "ENV API_TOKEN={}\n", RANDOM[:24]),
        ("README.md", "curl https://h/v1?api_key={}&q=1", RANDOM[:24]),
        ("README.md", "tool --token={} run", RANDOM[:24]),
        ("a.cs", 'var c = "Server=db;User Id=sa;Password={};";', "Str0ngEnough"),
        ("a.yaml", "db:\n  password: {}\n  user: app\n", "hunter2"),
        ("a.yaml", "password: {}\n", "postgres"),
        ("a.yml", 'api_key: "{}"', RANDOM[:20]),
        ("a.toml", 'password = "{}"', "correct-horse"),
        ("application.properties", "spring.datasource.password={}\n", "hunter2"),
        ("web.config", '<add key="x" connectionString="Server=h;Password={};" />', "Hunter22"),
        ("settings.xml", "<password>{}</password>", "hunter22"),
        (".env", "DB_PASSWORD={}\n", "letmein"),
        (".env", 'SECRET="{}"\n', "one two three four"),
        (".env.production", "API_TOKEN={}\n", "plainword"),
        ("app.ini", "password = {}\n", "letmein"),
        (".npmrc", "//registry.npmjs.org/:_authToken={}\n", "abcdef-plain"),
        (".netrc", "machine h login me password {}\n", "letmein"),
        (".pgpass", "db:5432:app:me:{}\n", "letmein"),
        (".aws/credentials", "[default]\naws_secret_access_key = {}\n", RANDOM[:40]),
    ],
)
def test_literals_of_telling_names_are_masked(path: str, text: str, secret: str) -> None:
    masked, found = mask(text.format(secret), path)
    assert masked == text.format(re_star(secret))
    assert len(found) == 1
    assert found[0].path == path


def re_star(secret: str) -> str:
    return "".join(" " if char == " " else "*" for char in secret)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", 'token = "identifier"'),
        ("a.py", 'TOKEN = "https://example.org/oauth/token"'),
        ("a.py", "def login(user: str, password: str) -> None:"),
        ("a.py", "password: str = Field(...)"),
        ("a.py", '{"token": token, "password": self.password}'),
        ("a.py", "token = request.headers.get('X-Token1')"),
        ("a.py", "PASSWORD=get_password1()"),
        ("a.py", "password = os.environ['DB_PASSWORD1']"),
        ("a.py", "secret = settings.SECRET_KEY2"),
        ("a.py", 'password = f"{user}:{name}1"'),
        ("a.py", 'api_key = "your-api-key-goes-here-123"'),
        ("a.py", 'password = "password"'),
        ("a.py", 'token_type = "access_token_v2"'),
        ("a.py", 'token_url = "/o/token2/"'),
        ("a.py", 'AUTH_HEADER = "X-Auth-Token"'),
        ("a.py", 'cache_key = "9f86d081884c7d65"'),
        ("a.py", 'primary_key = "user_id_2024_abcdef"'),
        ("a.py", 'tokenizer = "bert-base-uncased-2e5f1a9b8c7d6e5f"'),
        ("a.py", "max_tokens = 4096"),
        ("a.py", 'parser.add_argument("--password", help="the password1 to use")'),
        ("a.py", 'assert token == "identifier_name"'),
        ("a.py", 'public_key_token = "1fc8b3b9a1e18e3b"'),
        ("a.py", '"AWS::IAM::AccessKey": "72c2d9dd90025459"'),
        ("a.py", 'if marker == "-----BEGIN RSA PRIVATE" + " KEY-----": pass'),
        ("a.go", 'var password = flag.String("password", "", "the database\'s password1")'),
        ("en.json", '{"password": "Please enter your password", "token": "Token2 expired"}'),
        ("de.yml", "de:\n  password: Passwort\n  confirm: Bestätigen\n"),
        ("locales/nl.yml", "password: wachtwoord\n"),
        ("openapi.yaml", "password:\n  type: string\ntoken: string\n"),
        ("deploy.yaml", "secretName: my-tls-cert\nexistingSecret: postgres-credentials\n"),
        ("ci.yml", "token: ${{ secrets.GITHUB_TOKEN }}\npassword: $PASSWORD1\n"),
        ("ci.yml", "password: !vault |\n"),
        (
            ".env.example",
            "DB_PASSWORD=<your password>\nAPI_KEY=${API_KEY}\nTOKEN=changeme\nSECRET=xxxxxxxxxx\n",
        ),
        (
            "README.md",
            (
                "postgres://user:password@localhost/db postgres://u:${PASSWORD}@h/db "
                "postgres://u:<password>@h http://{{user}}:{{pass}}@h"
            ),
        ),
        ("a.py", 'f"postgres://{user}:{password}@{host}/db"'),
        ("a.py", '"postgres://%s:%s@%s/db"'),
        ("README.md", "see http://localhost:8080/@scope/package and https://h:443/x@y"),
        (
            "README.md",
            (
                "The basic idea of bearer authentication is a bearer token, basic authentication "
                "sends user:password."
            ),
        ),
        ("README.md", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        ("a.css", ".sk-fading-circle-animation-delay-1200ms-ease-in-out { }"),
        ("a.py", "task-4f9d8e7c6b5a4f9d8e7c6b5a4f9d8e7c risk-" + HEX),
        ("a.py", f'sha256 = "{HEX}"'),
        ("a.py", "hf_hub_download_some_long_function_name_here_2024"),
        ("README.md", "-----BEGIN CERTIFICATE-----\n" + BODY + "\n-----END CERTIFICATE-----"),
        ("README.md", "-----BEGIN PUBLIC KEY-----\n" + BODY + "\n-----END PUBLIC KEY-----"),
    ],
)
def test_ordinary_text_is_left_alone(path: str, text: str) -> None:
    assert mask(text, path) == (text, ())


@pytest.mark.parametrize(
    "label",
    [
        "RSA PRIVATE" + " KEY",
        "PRIVATE" + " KEY",
        "OPENSSH PRIVATE" + " KEY",
        "ENCRYPTED PRIVATE" + " KEY",
        "PGP PRIVATE" + " KEY BLOCK",
    ],
)
def test_the_body_of_a_private_key_block_is_masked_and_its_lines_stay(label: str) -> None:
    text = f"before\n-----BEGIN {label}-----\n{BODY}\n-----END {label}-----\nafter\n"
    masked, found = mask(text, "id_rsa")
    assert masked == text.replace(BODY, "\n".join("*" * len(line) for line in BODY.split("\n")))
    assert [(item.kind, item.line) for item in found] == [("private key", 2)]


def test_a_private_key_on_one_line_is_masked() -> None:
    text = (
        '{"private_key": "'
        + PEM
        + "\\n"
        + BODY.replace("\n", "\\n")
        + "\\n-----END RSA PRIVATE"
        + ' KEY-----\\n", "x": 1}'
    )
    masked, _ = mask(text, "service.json")
    assert RANDOM[:16] not in masked
    assert masked.endswith('"x": 1}')


def test_a_private_key_without_its_end_is_masked_as_far_as_it_goes() -> None:
    masked, _ = mask(f"{PEM}\n{BODY}\n\nThe text goes on here, and stays.\n", "notes.md")
    assert RANDOM[:16] not in masked
    assert masked.endswith("The text goes on here, and stays.\n")


def test_a_private_key_in_program_text_is_masked() -> None:
    lines = "\n".join(f'    "{line}\\n"' for line in BODY.split("\n"))
    masked, _ = mask(f'KEY = (\n    "{PEM}\\n"\n{lines}\n)\nvalue = compute()\n', "a.py")
    assert RANDOM[:16] not in masked
    assert masked.endswith("value = compute()\n")


def test_nothing_that_comes_back_holds_the_secret() -> None:
    secret = RANDOM[:36]
    assert secret not in repr(mask(f'password = "{secret}" ghp_{secret}', "a.py"))


def test_several_secrets_are_reported_in_the_order_of_their_lines() -> None:
    text = (
        f'a\ntoken = "{RANDOM[:32]}"\nAKIA'
        f'IOSFODNN7EXAMPLE\n\npassword = "hunter2!x"\n{TOKENS[2][1]}\n'
    )
    assert [(item.line, item.kind) for item in mask(text, "a.py")[1]] == [
        (2, "secret"),
        (3, "aws access key"),
        (5, "password"),
        (6, "github token"),
    ]


def test_positions_hold_in_text_of_any_script() -> None:
    text = 'İstanbul ß 日本語 \U0001f600\npassword = "hunter2!x" # ключ\n'
    masked, _ = mask(text, "a.py")
    assert masked == text.replace("hunter2!x", "*********")


FRAGMENTS = st.sampled_from(
    [token for _, token in TOKENS]
    + [
        'password = "',
        "hunter2!x",
        '"',
        "'",
        "=",
        ":",
        " ",
        "\n",
        "\r\n",
        "SECRET_KEY=",
        "api_key: ",
        "://u:",
        "@h",
        "Bearer ",
        "Basic ",
        RANDOM,
        HEX,
        PEM,
        BODY,
    ]
    + [
        "-----END RSA PRIVATE KEY-----",
        "x",
        "é",
        "\U0001f600",
        "*",
        "\t",
        "<password>",
        "</",
        "AccountKey=",
        "eyJ",
        "token",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(FRAGMENTS | st.text(max_size=20), max_size=14).map("".join),
    st.sampled_from(["a.py", ".env", "a.yaml", ".netrc", ".pgpass", ""]),
)
def test_masking_keeps_length_and_lines_and_is_done_after_one_time(text: str, path: str) -> None:
    masked, found = mask(text, path)
    assert len(masked) == len(text)
    assert [i for i, c in enumerate(masked) if c.isspace()] == [
        i for i, c in enumerate(text) if c.isspace()
    ]
    assert all(after in (before, "*") for before, after in zip(text, masked, strict=True))
    assert mask(masked, path) == (masked, ())
    assert all(1 <= item.line <= text.count("\n") + 1 for item in found)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "-----BEGIN " * 10_000,
        (PEM + "\n") * 30_000,
        PEM + "\n" + (RANDOM + "\n") * 20_000,
        "password=" * 100_000,
        'password="' * 100_000,
        "password: " * 100_000,
        "password:" + " " * 1_000_000,
        "password" + "_password" * 100_000,
        "eyJ" * 330_000,
        "ghp_" * 250_000,
        "github_pat_" * 90_000,
        "sk-" * 330_000,
        "SK" * 500_000,
        "://" * 330_000,
        "://a:" * 200_000,
        "://" + "a" * 500_000 + ":" + "b" * 500_000,
        "bearer " * 140_000,
        "basic " + "A" * 1_000_000,
        "secret" * 160_000,
    ],
    ids=lambda text: text[:14],
)
def test_hostile_text_is_scanned(text: str) -> None:
    start = time.process_time()
    mask(text[: len(text) // 8], "a.py")
    assert time.process_time() - start < 10  # linear work takes one second


@pytest.mark.parametrize("path", [".env", "a.yaml", ".pgpass", ".netrc"])
@pytest.mark.parametrize(
    "text",
    ["password=" * 100_000, "password: " * 100_000, "password=" + "a" * 1_000_000, "a:" * 500_000],
    ids=lambda text: text[:14],
)
def test_hostile_settings_are_scanned(text: str, path: str) -> None:
    start = time.process_time()
    mask(text[: len(text) // 8], path)
    assert time.process_time() - start < 10  # linear work takes one second
