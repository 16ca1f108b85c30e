"""Secrets in the forms in which people write them: code, prose, configuration, shell, addresses,
tokens.

Every secret is random, made when the corpus is built and the same for the same seed. No form is in
this file as a whole, so that scanners for leaked secrets find nothing here.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS
HEX = DIGITS + "abcdef"
URLSAFE = ALNUM + "-_"
WORDS = (
    "walrus copper lantern meadow pickle saddle thunder velvet harbor cactus ribbon tunnel "
    "marble falcon ginger puzzle"
).split()


class Form(NamedTuple):
    """A text with a planted secret.

    `group` is a class of forms, `path` the name of the file that contains the text.
    """

    group: str
    path: str
    text: str
    secret: str


class Maker:
    """A source of random secrets."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def draw(self, alphabet: str, length: int) -> str:
        """Return random characters."""
        return "".join(self._random.choice(alphabet) for _ in range(length))

    def password(self) -> str:
        """Return a password as people choose one: a word with capitals, digits and a sign."""
        return (
            self._random.choice(WORDS).capitalize()
            + self.draw(DIGITS, 3)
            + self._random.choice("!#%*+?")
            + self.draw(LOWER, 3)
        )

    def simple(self) -> str:
        """Return a short password of letters and digits."""
        return self._random.choice(WORDS) + self.draw(DIGITS, 2)

    def odd(self) -> str:
        """Return a password with signs that have a meaning in many languages."""
        return (
            self.draw(ALNUM, 4)
            + self._random.choice("!^~%")
            + self.draw(LOWER, 3)
            + self._random.choice("@#*+")
            + self.draw(DIGITS, 3)
        )

    def phrase(self) -> str:
        """Return a passphrase of four words."""
        return " ".join(self._random.sample(WORDS, 4))

    def key(self) -> str:
        """Return a random key."""
        return self.draw(ALNUM, 32)

    def hexadecimal(self) -> str:
        """Return a random key in hexadecimal digits."""
        return self.draw("123456789", 2) + self.draw(HEX, 38)

    def block(self) -> str:
        """Return lines of base64, as in a key file."""
        return "\n".join(self.draw(ALNUM + "+/", 64) for _ in range(5))


# group, path, template, how the secret is made
_TEMPLATES: list[tuple[str, str, str, str]] = [
    # Prose and Markdown
    ("prose", "notes.md", "Password: {}\n", "password"),
    ("prose", "notes.md", "Password: {}\n", "simple"),
    ("prose", "notes.md", "**Password:** {}\n", "password"),
    ("prose", "notes.md", "**Password**: {}\n", "odd"),
    ("prose", "notes.md", "- Password: `{}`\n", "password"),
    ("prose", "notes.md", "* user: bob\n* password: {}\n", "simple"),
    ("prose", "notes.md", "1. Log in as admin with password {}.\n", "password"),
    ("prose", "notes.md", "The password is {}.\n", "password"),
    ("prose", "notes.md", "The admin password is `{}`, please rotate it.\n", "password"),
    ("prose", "notes.txt", "the password for the staging database is {}\n", "password"),
    ("prose", "notes.txt", "DB password (staging): {}\n", "odd"),
    ("prose", "notes.txt", "Password for bob@example.org: {}\n", "password"),
    ("prose", "notes.txt", "your new password was set to '{}'\n", "password"),
    ("prose", "notes.txt", "Passphrase: {}\n", "phrase"),
    ("prose", "notes.txt", "pw: {}\n", "password"),
    ("prose", "notes.txt", "user: bob, pass: {}\n", "password"),
    ("prose", "notes.txt", "Username: bob\nPassword:\n\n    {}\n", "password"),
    ("prose", "notes.txt", "Das Passwort lautet {}\n", "password"),
    ("prose", "notes.txt", "Kennwort: {}\n", "password"),
    ("prose", "notes.txt", "mot de passe : {}\n", "password"),
    ("prose", "notes.txt", "API key: {}\n", "key"),
    ("prose", "notes.txt", "API token = {}\n", "key"),
    ("prose", "notes.txt", "the client secret is {}\n", "key"),
    ("prose", "notes.txt", "credentials: bob / {}\n", "password"),
    ("prose", "notes.txt", "\u5bc6\u7801: {}\n", "password"),
    (
        "prose",
        "notes.md",
        "| setting | value |\n|---|---|\n| Password | {} |\n| Host | db |\n",
        "password",
    ),
    (
        "prose",
        "notes.md",
        "| user | password | role |\n|------|:--------|---|\n| bob | {} | admin |\n",
        "password",
    ),
    ("prose", "notes.md", "| user | API key |\n| --- | --- |\n| bob | `{}` |\n", "key"),
    ("prose", "", "hi, the vpn password is {} ok?", "password"),
    ("prose", "", "password={}", "odd"),
    ("prose", "notes.html", "<table><tr><td>Password</td><td>{}</td></tr></table>\n", "password"),
    ("prose", "notes.html", "<p><b>Password:</b> {}</p>\n", "password"),
    ("prose", "a.py", "# password: {}\n", "password"),
    ("prose", "a.go", "// default password is {}\n", "password"),
    ("prose", "users.csv", "name,password,role\nbob,{},admin\n", "simple"),
    # Connection strings
    ("connection", "a.py", 'connect("host=db user=app password={} dbname=x")\n', "password"),
    ("connection", "a.py", 'connect("password={} host=db user=app")\n', "simple"),
    (
        "connection",
        "notes.md",
        "use host=db port=5432 user=app password={} sslmode=require\n",
        "simple",
    ),
    (
        "connection",
        "a.java",
        'String u = "jdbc:postgresql://db/app?user=me&password={}";\n',
        "password",
    ),
    (
        "connection",
        "a.java",
        'String u = "jdbc:sqlserver://db;user=sa;password={};encrypt=true";\n',
        "password",
    ),
    ("connection", "a.java", 'String u = "jdbc:oracle:thin:scott/{}@//db:1521/x";\n', "simple"),
    (
        "connection",
        "a.cs",
        'var c = "Server=db;User Id=sa;Password={};TrustServerCertificate=true";\n',
        "odd",
    ),
    ("connection", "a.cs", 'var c = "Password={};Server=db;User Id=sa";\n', "password"),
    ("connection", "a.vb", 'c = "Driver={{SQL Server}};Server=db;Uid=sa;Pwd={};"\n', "password"),
    (
        "connection",
        "web.config",
        '<add name="x" connectionString="Data Source=db;Password={};User ID=sa" />\n',
        "password",
    ),
    (
        "connection",
        "appsettings.json",
        '{{"ConnectionStrings": {{"Default": "Host=db;Username=app;Password={}"}}}}\n',
        "password",
    ),
    ("connection", "a.js", 'const dsn = "user:{}@tcp(db:3306)/app"; // dsn\n', "password"),
    (
        "connection",
        "notes.md",
        "Endpoint=sb://x.example/;SharedAccessKeyName=Root;SharedAccessKey={}=\n",
        "key",
    ),
    ("connection", "notes.md", "AccountName=x;AccountKey={}==;EndpointSuffix=core\n", "key"),
    # URLs
    ("url", "notes.md", "postgresql://app:{}@db.internal:5432/app\n", "simple"),
    ("url", "a.py", 'URL = "postgres://app:{}@db/app"\n', "slashed"),
    ("url", "a.py", 'URL = "mysql://app:{}@db:3306/app"\n', "at"),
    ("url", "a.py", 'URL = "mongodb+srv://app:{}@cluster0.example.net/x"\n', "at"),
    ("url", "config.yaml", "url: redis://:{}@cache:6379/0\n", "password"),
    ("url", "notes.md", "git clone https://{}@github.com/x/y.git\n", "key"),
    ("url", "notes.md", "git clone https://bob:{}@git.example.org/x/y.git\n", "key"),
    ("url", "notes.md", "git clone https://{}:x-oauth-basic@github.com/x/y.git\n", "hexadecimal"),
    ("url", "a.py", 'url = "https://api.example.org/v1?api_key={}&q=1"\n', "key"),
    ("url", "a.py", 'url = "https://api.example.org/v1?q=1&access_token={}"\n', "key"),
    (
        "url",
        "notes.md",
        "https://x.blob.core.windows.net/c/f?sv=2022-11-02&se=2030-01-01&sp=r&sig={}%3D\n",
        "key",
    ),
    (
        "url",
        "notes.md",
        "https://b.s3.amazonaws.com/f?X-Amz-Date=1&X-Amz-Signature={}\n",
        "hexadecimal",
    ),
    ("url", "notes.md", "https://hooks.slack.com/services/T01ABCDEF/B01ABCDEF/{}\n", "key"),
    ("url", "notes.md", "https://discord.com/api/webhooks/123456789012345678/{}\n", "long"),
    (
        "url",
        "notes.md",
        "https://x.webhook.office.com/webhookb2/0a1b2c3d-1111-2222-3333-444455556666@0a1b2c3d-1111-2222-3333-444455556666/IncomingWebhook/{}/0a1b2c3d-1111-2222-3333-444455556666\n",
        "key",
    ),
    ("url", "a.py", 'requests.get("https://api.telegram.org/bot{}/getMe")\n', "telegram"),
    # SQL
    ("sql", "a.sql", "CREATE USER bob IDENTIFIED BY '{}';\n", "password"),
    ("sql", "a.sql", "CREATE USER bob IDENTIFIED BY {};\n", "simple"),
    (
        "sql",
        "a.sql",
        "ALTER USER 'bob'@'%' IDENTIFIED WITH mysql_native_password BY '{}';\n",
        "password",
    ),
    ("sql", "a.sql", "ALTER ROLE app WITH PASSWORD '{}';\n", "password"),
    ("sql", "a.sql", "CREATE ROLE app LOGIN ENCRYPTED PASSWORD '{}';\n", "simple"),
    ("sql", "a.sql", "CREATE USER app PASSWORD '{}';\n", "odd"),
    ("sql", "a.sql", "SET PASSWORD FOR 'bob'@'localhost' = PASSWORD('{}');\n", "password"),
    ("sql", "a.sql", "CREATE LOGIN app WITH PASSWORD = N'{}';\n", "password"),
    ("sql", "a.sql", "CREATE LOGIN app WITH PASSWORD = '{}';\n", "password"),
    (
        "sql",
        "a.sql",
        "CREATE USER MAPPING FOR u SERVER s OPTIONS (user 'u', password '{}');\n",
        "password",
    ),
    (
        "sql",
        "notes.md",
        "```sql\nGRANT ALL ON db.* TO 'app'@'%' IDENTIFIED BY '{}';\n```\n",
        "password",
    ),
    # Code
    ("code", "a.py", 'password = "{}"\n', "password"),
    ("code", "a.py", "PASSWORD: Final[str] = '{}'\n", "simple"),
    ("code", "a.py", 'db = connect(user="app", passwd="{}")\n', "odd"),
    ("code", "a.py", 'os.environ.get("DB_PASSWORD", "{}")\n', "password"),
    ("code", "a.py", 'os.environ["API_TOKEN"] = "{}"\n', "key"),
    ("code", "a.py", 'SECRET_KEY = "django-insecure-{}"\n', "django"),
    ("code", "a.py", "SECRET_KEY = '{}'\n", "django"),
    ("code", "a.py", 'SECRET_KEY = (\n    "{}"\n)\n', "key"),
    ("code", "a.py", 'requests.get(url, auth=("bob", "{}"))\n', "password"),
    ("code", "a.py", 'requests.get(url, auth=HTTPBasicAuth("bob", "{}"))\n', "password"),
    ("code", "a.py", 'headers = {{"X-Api-Key": "{}"}}\n', "key"),
    ("code", "a.py", 'if password == "{}":\n    pass\n', "password"),
    ("code", "a.py", 'client = Client(api_key="{}")\n', "hexadecimal"),
    ("code", "a.ipynb", '{{"source": ["password = \\"{}\\"\\n"]}}\n', "password"),
    ("code", "a.js", "const apiKey = '{}';\n", "key"),
    ("code", "a.js", 'const secret = process.env.SESSION_SECRET || "{}";\n', "key"),
    ("code", "a.js", "db.password = process.env.DB_PASSWORD ?? '{}'\n", "password"),
    ("code", "a.ts", "export const clientSecret: string = '{}';\n", "key"),
    ("code", "a.tsx", '<Login password="{}" />\n', "password"),
    ("code", "a.php", "define('DB_PASSWORD', '{}');\n", "password"),
    ("code", "a.php", "define( 'DB_PASSWORD', '{}' );\n", "simple"),
    ("code", "a.php", "define('AUTH_KEY', '{}');\n", "salt"),
    ("code", "a.php", "$config['password'] = '{}';\n", "password"),
    ("code", "a.php", "$c = mysqli_connect('db', 'app', '{}', 'x');\n", "password"),
    ("code", "a.rb", "config.secret_key_base = '{}'\n", "hexadecimal"),
    ("code", "a.rb", ":password => '{}'\n", "password"),
    ("code", "a.java", 'private static final String PASSWORD = "{}";\n', "password"),
    ("code", "a.java", 'dataSource.setPassword("{}");\n', "password"),
    ("code", "a.java", 'DriverManager.getConnection(url, "app", "{}");\n', "password"),
    ("code", "a.cs", 'var c = new NetworkCredential("bob", "{}");\n', "password"),
    ("code", "a.cs", 'public string Password {{ get; set; }} = "{}";\n', "password"),
    ("code", "a.go", 'const token = "{}"\n', "key"),
    ("code", "a.go", 'req.SetBasicAuth("bob", "{}")\n', "password"),
    ("code", "a.go", 'req.Header.Set("X-Auth-Token", "{}")\n', "key"),
    ("code", "a.rs", 'let password = "{}".to_string();\n', "password"),
    ("code", "a.kt", 'val apiSecret = "{}"\n', "key"),
    ("code", "a.swift", 'let accessToken: String = "{}"\n', "key"),
    ("code", "a.c", '#define WIFI_PASSWORD "{}"\n', "password"),
    ("code", "a.clj", '{{:user "app" :password "{}"}}\n', "password"),
    ("code", "a.ex", 'config :app, Repo, password: "{}"\n', "password"),
    ("code", "a.pl", "my $password = '{}';\n", "password"),
    (
        "code",
        "a.tf",
        'variable "db_password" {{\n  type    = string\n  default = "{}"\n}}\n',
        "password",
    ),
    ("code", "a.tf", 'resource "x" "y" {{\n  master_password = "{}"\n}}\n', "password"),
    ("code", "Jenkinsfile", "environment {{ DB_PASSWORD = '{}' }}\n", "password"),
    # Configuration
    ("configuration", "a.yaml", "db:\n  password: {}\n", "password"),
    ("configuration", "a.yaml", "password: {}  # rotate\n", "odd"),
    ("configuration", "a.yaml", "passphrase: {}\n", "phrase"),
    ("configuration", "a.yaml", "password: |\n  {}\nuser: x\n", "password"),
    ("configuration", "a.yaml", "token: >-\n  {}\n", "key"),
    ("configuration", "a.yaml", "env:\n  - name: DB_PASSWORD\n    value: {}\n", "password"),
    ("configuration", "a.yaml", 'env:\n  - name: API_TOKEN\n    value: "{}"\n', "key"),
    ("configuration", "a.yaml", "environment:\n  - POSTGRES_PASSWORD={}\n", "simple"),
    ("configuration", "a.yaml", "environment:\n  POSTGRES_PASSWORD: {}\n", "simple"),
    ("configuration", "a.yaml", "x: {{user: app, password: {}, port: 1}}\n", "simple"),
    (
        "configuration",
        "a.yaml",
        "Parameters:\n  DBPassword:\n    Type: String\n    NoEcho: true\n    Default: {}\n",
        "password",
    ),
    (
        "configuration",
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\ndata:\n  anything: {}\n",
        "base64",
    ),
    (
        "configuration",
        "secret.yaml",
        "kind: Secret\nstringData:\n  config.ini: |\n    [x]\n    y = {}\n",
        "password",
    ),
    ("configuration", "secret.yaml", "kind: Secret\ndata:\n  tls.key: {}\n", "pem64"),
    ("configuration", "a.toml", 'password = "{}"\n', "password"),
    ("configuration", "a.ini", "[db]\npassword = {}\n", "simple"),
    ("configuration", "a.properties", "spring.datasource.password={}\n", "odd"),
    ("configuration", "a.properties", "api.key = {}\n", "key"),
    ("configuration", "redis.conf", "requirepass {}\n", "password"),
    (
        "configuration",
        "wpa_supplicant.conf",
        'network={{\n  ssid="x"\n  psk="{}"\n}}\n',
        "password",
    ),
    ("configuration", "wg0.conf", "[Interface]\nPrivateKey = {}=\n", "key43"),
    ("configuration", ".env", "DB_PASSWORD={}\n", "word"),
    ("configuration", ".env", 'SECRET_KEY="{}"\n', "salt"),
    ("configuration", ".npmrc", "//registry.npmjs.org/:_authToken={}\n", "key"),
    ("configuration", ".pypirc", "[pypi]\nusername = bob\npassword = {}\n", "password"),
    ("configuration", ".netrc", "machine example.org login bob password {}\n", "word"),
    ("configuration", ".pgpass", "db:5432:app:bob:{}\n", "word"),
    ("configuration", ".htpasswd", "bob:$apr1${}\n", "apr1"),
    ("configuration", ".htpasswd", "bob:$2y$05${}\n", "bcrypt"),
    ("configuration", ".htpasswd", "bob:{{SHA}}{}=\n", "sha"),
    ("configuration", "shadow.txt", "bob:$6$saltsalt${}:19000:0:99999:7:::\n", "sha512"),
    ("configuration", "web.config", '<add key="Password" value="{}" />\n', "password"),
    ("configuration", "a.xml", '<property name="connection.password">{}</property>\n', "password"),
    ("configuration", "a.xml", '<property name="password" value="{}"/>\n', "simple"),
    ("configuration", "settings.xml", "<server><password>{}</password></server>\n", "simple"),
    ("configuration", "a.xml", "<Password><![CDATA[{}]]></Password>\n", "password"),
    ("configuration", "strings.xml", '<string name="api_key">{}</string>\n', "key"),
    ("configuration", "a.plist", "<key>Password</key>\n<string>{}</string>\n", "password"),
    ("configuration", "a.json", '{{"password": "{}"}}\n', "password"),
    ("configuration", "a.json", '{{"name": "DB_PASSWORD", "value": "{}"}}\n', "password"),
    ("configuration", "a.json", '{{"key": "apiKey",\n "value": "{}"}}\n', "key"),
    ("configuration", "config.json", '{{"auths": {{"x": {{"auth": "{}"}}}}}}\n', "basic"),
    ("configuration", "service.json", '{{"private_key": "{}"}}\n', "pem1"),
    ("configuration", "Dockerfile", "ENV POSTGRES_PASSWORD {}\n", "password"),
    ("configuration", "Dockerfile", "ENV POSTGRES_PASSWORD={} USER=x\n", "password"),
    ("configuration", "Dockerfile", "ARG NPM_TOKEN={}\n", "key"),
    ("configuration", "a.hcl", 'password = "{}"\n', "simple"),
    # Shell
    ("shell", "a.sh", "export DB_PASSWORD={}\n", "simple"),
    ("shell", "a.sh", "DB_PASSWORD='{}' ./run\n", "odd"),
    ("shell", "a.sh", "PGPASSWORD={} psql -h db\n", "password"),
    ("shell", "a.sh", 'PASS="${{DB_PASSWORD:-{}}}"\n', "simple"),
    ("shell", "notes.md", "$ curl -u bob:{} https://example.org\n", "password"),
    ("shell", "notes.md", "$ curl --user 'bob:{}' https://example.org\n", "password"),
    ("shell", "notes.md", "$ curl -ubob:{} https://example.org\n", "simple"),
    ("shell", "notes.md", "$ tool login --password {} --user bob\n", "password"),
    ("shell", "notes.md", "$ tool login --password={}\n", "odd"),
    ("shell", "notes.md", "$ tool login --token {}\n", "key"),
    ("shell", "notes.md", "$ tool --api-key '{}' run\n", "key"),
    ("shell", "notes.md", "$ sshpass -p {} ssh host\n", "password"),
    ("shell", "notes.md", "$ sshpass -p'{}' ssh host\n", "password"),
    ("shell", "notes.md", "$ mysql -u root -p{} app\n", "simple"),
    ("shell", "notes.md", "$ mysqldump -uroot -p'{}' app\n", "password"),
    ("shell", "notes.md", "$ docker login -u bob -p {} registry\n", "password"),
    ("shell", "notes.md", "$ echo {} | docker login -u bob --password-stdin\n", "password"),
    ("shell", "notes.md", "$ redis-cli -h db -a {} ping\n", "password"),
    ("shell", "notes.md", "$ mongosh -u bob -p {} db\n", "password"),
    ("shell", "notes.md", "$ ldapsearch -x -D cn=admin -w {} -b dc=x\n", "password"),
    ("shell", "notes.md", "$ openssl rsa -in k.pem -passin pass:{}\n", "password"),
    ("shell", "notes.md", "$ zip -P {} a.zip b\n", "password"),
    ("shell", "notes.md", "$ echo {} | sudo -S apt update\n", "password"),
    ("shell", "notes.md", '$ echo "bob:{}" | chpasswd\n', "password"),
    ("shell", "notes.md", "$ htpasswd -b .htpasswd bob {}\n", "password"),
    ("shell", "notes.md", "$ sqlcmd -S db -U sa -P '{}'\n", "password"),
    ("shell", "notes.md", "$ smbclient //h/s -U bob%{}\n", "password"),
    (
        "shell",
        "notes.md",
        "$ kubectl create secret generic x --from-literal=password={}\n",
        "password",
    ),
    ("shell", "notes.md", "$ helm install x y --set auth.password={}\n", "password"),
    ("shell", "notes.md", "$ aws configure set aws_secret_access_key {}\n", "key40"),
    (
        "shell",
        "notes.md",
        "$ git config --global http.extraheader 'Authorization: Basic {}'\n",
        "basic",
    ),
    ("shell", "notes.md", "$ keytool -storepass {} -list\n", "password"),
    ("shell", "a.ps1", '$s = ConvertTo-SecureString "{}" -AsPlainText -Force\n', "password"),
    (
        "shell",
        "a.ps1",
        "$s = ConvertTo-SecureString -String '{}' -AsPlainText -Force\n",
        "password",
    ),
    ("shell", "a.ps1", '$env:API_KEY = "{}"\n', "key"),
    ("shell", "a.bat", "set DB_PASSWORD={}\n", "password"),
    ("shell", "a.bat", "net user bob {} /add\n", "password"),
    ("shell", "a.fish", "set -gx API_TOKEN {}\n", "key"),
    ("shell", "a.csh", "setenv DB_PASSWORD {}\n", "password"),
    ("shell", "Makefile", "TOKEN := {}\n", "key"),
    # Headers
    ("header", "notes.md", "X-Api-Key: {}\n", "key"),
    ("header", "notes.md", "x-api-key: {}\n", "hexadecimal"),
    ("header", "notes.md", "curl -H 'PRIVATE-TOKEN: {}' https://x\n", "key"),
    ("header", "notes.md", 'curl -H "X-Vault-Token: {}" https://x\n', "key"),
    ("header", "notes.md", "Authorization: Bearer {}\n", "key"),
    ("header", "notes.md", "Authorization: Token {}\n", "hexadecimal"),
    ("header", "notes.md", "Authorization: {}\n", "key"),
    ("header", "notes.md", "Authorization: Basic {}\n", "basic"),
    (
        "header",
        "notes.md",
        'Authorization: Digest username="bob", realm="x", nonce="n", uri="/", response="{}"\n',
        "hex32",
    ),
    ("header", "a.js", "headers: {{ 'Authorization': 'Bearer {}' }}\n", "key"),
    ("header", "notes.md", "Cookie: sessionid={}; theme=dark\n", "key"),
    ("header", "notes.md", "Set-Cookie: sid={}; Path=/; HttpOnly\n", "key"),
    ("header", "notes.md", "Ocp-Apim-Subscription-Key: {}\n", "hex32"),
    ("header", "a.http", "GET / HTTP/1.1\nX-Auth-Token: {}\n", "key"),
]

# provider, prefix, alphabet, length, suffix
_TOKENS: list[tuple[str, str, str, int, str]] = [
    ("docker hub", "dckr_" + "pat_", URLSAFE, 27, ""),
    ("databricks", "dapi", HEX, 32, ""),
    ("notion", "ntn_" + "12345678901", ALNUM, 35, ""),
    ("notion", "secret_", ALNUM, 43, ""),
    ("linear", "lin_" + "api_", ALNUM, 40, ""),
    ("sentry", "sntryu_", HEX, 64, ""),
    ("sentry", "sntrys_" + "eyJ", ALNUM, 80, ""),
    ("postman", "PMAK-" + "0123456789abcdef01234567-", HEX, 34, ""),
    ("square", "sq0" + "atp-", URLSAFE, 22, ""),
    ("square", "EAAA", URLSAFE, 60, ""),
    ("new relic", "NRAK-", UPPER + DIGITS, 27, ""),
    ("discord", "M", ALNUM, 23, ""),
    ("mailgun", "key-", HEX, 32, ""),
    ("xai", "xai-", ALNUM, 80, ""),
    ("replicate", "r8_", ALNUM, 37, ""),
    ("dropbox", "sl.", URLSAFE, 135, ""),
    ("openai", "sk-" + "proj-", URLSAFE, 74, ""),
    ("anthropic", "sk-" + "ant-api03-", URLSAFE, 93, "AA"),
    ("groq", "gsk_", ALNUM, 52, ""),
    ("hugging face", "hf_", LOWER + UPPER, 34, ""),
    ("gemini", "AIza", URLSAFE[:-2], 35, ""),
    ("perplexity", "pplx-", ALNUM, 48, ""),
    ("github", "ghp_", ALNUM, 36, ""),
    ("github", "github_" + "pat_", ALNUM, 82, ""),
    ("gitlab", "glpat-", URLSAFE, 20, ""),
    ("gitlab", "glrt-", URLSAFE, 20, ""),
    ("bitbucket", "ATBB", ALNUM, 32, ""),
    ("npm", "npm_", ALNUM, 36, ""),
    ("pypi", "pypi-" + "AgEIcHlwaS5vcmc", URLSAFE, 80, ""),
    ("rubygems", "rubygems_", HEX, 48, ""),
    ("nuget", "oy2", LOWER + DIGITS, 43, ""),
    ("stripe", "sk_" + "live_", ALNUM, 24, ""),
    ("stripe", "rk_" + "live_", ALNUM, 24, ""),
    ("twilio", "SK", HEX, 32, ""),
    ("sendgrid", "SG.", ALNUM, 22, "." + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V"),
    ("shopify", "shpat_", HEX, 32, ""),
    ("digitalocean", "dop_" + "v1_", HEX, 64, ""),
    ("heroku", "HRKU-", URLSAFE, 60, ""),
    ("vault", "hvs.", URLSAFE, 92, ""),
    ("terraform cloud", "a1B2c3D4e5F6g7" + ".atlasv1.", ALNUM, 67, ""),
    ("grafana", "glsa_", ALNUM, 32, "_0a1b2c3d"),
    ("grafana", "glc_", ALNUM, 80, ""),
    ("netlify", "nfp_", ALNUM, 36, ""),
    ("vercel", "vcp_", ALNUM, 40, ""),
    ("supabase", "sbp_", HEX, 40, ""),
    ("planetscale", "pscale_" + "tkn_", URLSAFE, 43, ""),
    ("figma", "figd_", URLSAFE, 40, ""),
    ("airtable", "pat" + "a1B2c3D4e5F6g7" + ".", HEX, 64, ""),
    ("atlassian", "ATATT3" + "xFfGF0", URLSAFE, 180, ""),
    ("hubspot", "pat-na1-", HEX, 8, "-1111-2222-3333-444455556666"),
    ("mapbox", "sk." + "eyJ", ALNUM, 60, ".a1B2c3D4e5F6g7H8i9J0k1"),
    ("age", "AGE-SECRET-" + "KEY-1", UPPER + DIGITS, 58, ""),
    ("aws", "AKIA", UPPER + "234567", 16, ""),
    ("slack", "xoxb-" + "123456789012-123456789012-", ALNUM, 24, ""),
    ("doppler", "dp.pt.", ALNUM, 43, ""),
    ("pulumi", "pul-", HEX, 40, ""),
    ("fly.io", "fo1_", URLSAFE, 43, ""),
    ("1password", "ops_" + "eyJ", ALNUM, 250, ""),
    ("tailscale", "tskey-" + "auth-", ALNUM, 30, ""),
    ("google oauth", "GOCSPX-", URLSAFE, 28, ""),
    ("mailchimp", "", HEX, 32, "-us12"),
    ("azure", "a1B8Q~", ALNUM, 34, ""),
]
_TOKEN_PLACES = (
    ("notes.md", "use {} for now\n"),
    ("a.py", 'client = Client("{}")\n'),
    ("", "here: {}"),
)

# provider, name, alphabet, length: keys without a form, known by the name alone
_NAMED: list[tuple[str, str, str, int]] = [
    ("cloudflare", "CLOUDFLARE_API_TOKEN", URLSAFE[:-2], 40),
    ("datadog", "DD_API_KEY", HEX, 32),
    ("pagerduty", "PAGERDUTY_TOKEN", ALNUM, 20),
    ("okta", "OKTA_API_TOKEN", URLSAFE[:-2], 42),
    ("auth0", "AUTH0_CLIENT_SECRET", URLSAFE[:-2], 64),
    ("algolia", "ALGOLIA_ADMIN_KEY", HEX, 32),
    ("fastly", "FASTLY_API_TOKEN", URLSAFE[:-2], 32),
    ("asana", "ASANA_ACCESS_TOKEN", ALNUM, 32),
    ("zendesk", "ZENDESK_API_TOKEN", ALNUM, 40),
    ("intercom", "INTERCOM_ACCESS_TOKEN", ALNUM, 60),
    ("mistral", "MISTRAL_API_KEY", ALNUM, 32),
    ("firebase", "FIREBASE_SERVER_KEY", ALNUM, 140),
    ("aws", "aws_secret_access_key", ALNUM + "+/", 40),
    ("laravel", "APP_KEY", ALNUM, 44),
]
_NAMED_PLACES = (("a.sh", "export {}={}\n"), ("a.py", '{} = "{}"\n'), ("a.yaml", "{}: {}\n"))


def build(seed: int = 1) -> list[Form]:
    """Return the corpus."""
    return list(_iterate(Maker(seed)))


def _iterate(maker: Maker) -> Iterator[Form]:
    for group, path, template, sort in _TEMPLATES:
        secret = _SORTS[sort](maker)
        yield Form(group, path, template.format(secret), secret)
    for number, (_, prefix, alphabet, length, suffix) in enumerate(_TOKENS):
        secret = prefix + maker.draw(alphabet, length) + suffix
        if prefix == "M":
            secret = f"{secret}.{maker.draw(ALNUM, 6)}.{maker.draw(ALNUM, 38)}"
        path, template = _TOKEN_PLACES[number % len(_TOKEN_PLACES)]
        yield Form("token", path, template.format(secret), secret)
    for number, (_, name, alphabet, length) in enumerate(_NAMED):
        secret = maker.draw(alphabet, length)
        path, template = _NAMED_PLACES[number % len(_NAMED_PLACES)]
        yield Form("named key", path, template.format(name, secret), secret)
    for label in ("RSA PRIVATE", "EC PRIVATE", "OPENSSH PRIVATE", "PRIVATE", "ENCRYPTED PRIVATE"):
        block = maker.block()
        yield Form(
            "private key",
            "id.pem",
            f"-----BEGIN {label} KEY-----\n{block}\n-----END {label} KEY-----\n",
            block,
        )
    block = maker.block()
    head = (
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: x\nPublic-Lines: 1\nAAAA\n"
    )
    yield Form(
        "private key",
        "id.ppk",
        f"{head}Private-Lines: 5\n{block}\nPrivate-MAC: {maker.draw(HEX, 64)}\n",
        block,
    )


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _make_pem(maker: Maker) -> str:
    return "-----BEGIN PRIVATE" + f" KEY-----\n{maker.block()}\n-----END PRIVATE" + " KEY-----\n"


_SORTS: dict[str, Callable[[Maker], str]] = {
    "password": Maker.password,
    "simple": Maker.simple,
    "odd": Maker.odd,
    "phrase": Maker.phrase,
    "key": Maker.key,
    "hexadecimal": Maker.hexadecimal,
    "hex32": lambda maker: maker.draw(HEX, 32),
    "key40": lambda maker: maker.draw(ALNUM, 40),
    "key43": lambda maker: maker.draw(ALNUM, 43),
    "long": lambda maker: maker.draw(URLSAFE, 68),
    "word": lambda maker: maker.draw(LOWER, 9),
    "at": lambda maker: f"{maker.draw(ALNUM, 4)}@{maker.draw(ALNUM, 5)}",
    "slashed": lambda maker: (
        f"{maker.draw(ALNUM, 4)}/{maker.draw(DIGITS, 2)}{maker.draw(ALNUM, 4)}"
    ),
    "salt": lambda maker: maker.draw(ALNUM + "!@#$%^&*()-_=+[]{}|;:,.<>?~", 64),
    "django": lambda maker: maker.draw(LOWER + DIGITS + "!@#$%^&*(-_=+)", 50),
    "base64": lambda maker: _encode(maker.password()),
    "basic": lambda maker: _encode(f"bob:{maker.password()}"),
    "pem64": lambda maker: _encode(_make_pem(maker)),
    "pem1": lambda maker: json.dumps(_make_pem(maker))[1:-1],
    "apr1": lambda maker: f"{maker.draw(ALNUM, 8)}${maker.draw(ALNUM, 22)}",
    "bcrypt": lambda maker: maker.draw(ALNUM, 53),
    "sha": lambda maker: maker.draw(ALNUM, 27),
    "sha512": lambda maker: maker.draw(ALNUM, 86),
    "telegram": lambda maker: f"{maker.draw('123456789', 10)}:A{maker.draw(URLSAFE, 34)}",
}


def is_readable(secret: str, text: str) -> bool:
    """Tell if a secret, or a line of it, is still in a text."""
    lines = [
        line
        for line in secret.replace("\\n", "\n").split("\n")
        if len(line) >= 16 and "-----" not in line
    ]
    return secret in text or any(line in text for line in lines)
