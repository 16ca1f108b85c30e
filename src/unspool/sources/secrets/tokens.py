"""Tokens with a form of their own: keys of known providers, web tokens, private keys. Pure.

Every provider's token contains a run of 20 letters, digits, `_` or `-`. Runs are found at memory
speed, and only the beginnings of their parts are compared with the table. The expressions use
possessive repeats, so that they never backtrack.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from unspool.sources.secrets import values
from unspool.sources.secrets.scanning import Rule, ScannedText, SecretSpan

_KEY_WINDOW = 32_768  # characters; an RSA key of 16384 bits takes 13 000
_BEGIN = re.compile(
    r"-----BEGIN (?:[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V[0-9]|[A-Z]{0,10} "
    r"?PARAMETERS AND KEY)-----"
    r"|---- BEGIN (?:SSH2 )?[A-Z ]{0,20}PRIVATE KEY ----"
)
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{24}")
# A block without its end: header lines, blank lines and lines of base64, also as string literals of
# a program.
_KEY_LINES = re.compile(
    r"(?:[ \t\"'+\\,nr]*+(?:[A-Za-z0-9+/=]{16,}+|[A-Z][A-Za-z-]{2,20}+: [^\n]{0,100}+)?[ "
    r"\t\"'+\\,;nr]*+\r?+(?:\n|$))*+"
)
# base64 of "-----BEGIN "; wrapped lines included.
_ENCODED_KEY = re.compile(
    r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{10,}+(?:(?:\\n|[ \t]*+\r?\n[ \t]*+)?[A-Za-z0-9+/]{16,}+)*+={0,2}"
)
_ENCODED_HEAD = 120


def _define(kind: str, prefixes: str, expression: str, *, glued: str = "A-Za-z0-9") -> Rule:
    """Define a form. `glued` are the characters that may not precede it."""
    return Rule(
        kind, tuple(prefixes.split()), re.compile(f"(?<![{glued}]){expression}", re.ASCII), bool
    )


def _is_encoded_key(encoded: str) -> bool:
    """Tell if base64 begins with the header of a private key, not of a certificate."""
    head = re.sub(r"\\n|\s", "", encoded[:_ENCODED_HEAD])
    try:
        return b"PRIVATE" in base64.b64decode(head[: len(head) // 4 * 4])
    except ValueError:
        return False


_FORMS = (
    _define(
        "aws access key", "AKIA ASIA ABIA ACCA", r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?![A-Za-z0-9])"
    ),
    _define(
        "aws bedrock key", "ABSK bedrock-api-key-", r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/=]{80,}+"
    ),
    _define("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,}+"),
    _define("github token", "github_pat_", r"github_pat_\w{22,}+"),
    _define(
        "gitlab token",
        "glpat- gldt- glrt- glrtr- glptt- glcbt- glsoat- glft- glimt- glagent- gloas- glffct- "
        "glwt-",
        r"gl(?:pat|dt|rtr?|ptt|cbt|soat|ft|imt|agent|oas|ffct|wt)-[\w-]{20,}+(?:\.[0-9a-z]{2}\.?[0-9a-z]{7})?",
    ),
    _define("gitlab token", "GR1348941", r"GR1348941[\w-]{20,}+"),
    _define("bitbucket token", "ATBB", r"ATBB[A-Za-z0-9]{28,}+(?!\w)"),
    _define("slack token", "xox xapp-", r"x(?:ox[a-z](?:\.xox[a-z])?|app)-[A-Za-z0-9-]{15,}+"),
    _define("google api key", "AIza", r"AIza[\w-]{35}(?![\w-])", glued=r"\w-"),
    _define("google oauth secret", "GOCSPX-", r"GOCSPX-[\w-]{20,}+", glued=r"\w-"),
    _define(
        "stripe key",
        "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_",
        r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{12,}+",
    ),
    _define("webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{20,}+"),
    _define("anthropic key", "sk-ant-", r"sk-ant-[\w-]{20,}+", glued=r"\w-"),
    _define(
        "openai key",
        "sk-",
        r"sk-(?:(?:proj|svcacct|admin|or-v1|None|lf)-[\w-]{20,}+|[A-Za-z0-9]{32,}+(?![\w-]))",
        glued=r"\w-",
    ),
    _define(
        "hugging face token", "hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,}+(?!\w)", glued=r"\w"
    ),
    _define("groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}+(?!\w)", glued=r"\w"),
    _define("xai key", "xai-", r"xai-[A-Za-z0-9]{40,}+(?![\w-])", glued=r"\w-"),
    _define("perplexity key", "pplx-", r"pplx-[A-Za-z0-9]{32,}+(?!\w)", glued=r"\w-"),
    _define("replicate token", "r8_", r"r8_[A-Za-z0-9]{30,}+(?!\w)", glued=r"\w"),
    _define("fireworks key", "fw_", r"fw_[A-Za-z0-9]{22,}+(?!\w)", glued=r"\w"),
    _define("together key", "tgp_v1_", r"tgp_v1_[\w-]{30,}+", glued=r"\w"),
    _define("voyage key", "pa-", r"pa-[A-Za-z0-9_-]{40,}+(?![\w-])", glued=r"\w-"),
    _define("jina key", "jina_", r"jina_[A-Za-z0-9_-]{40,}+", glued=r"\w"),
    _define("tavily key", "tvly-", r"tvly-[A-Za-z0-9-]{20,}+", glued=r"\w-"),
    _define("langsmith key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{8,}+", glued=r"\w"),
    _define("langfuse key", "sk-lf- pk-lf-", r"[sp]k-lf-[0-9a-f-]{30,}+", glued=r"\w-"),
    _define("pinecone key", "pcsk_", r"pcsk_[A-Za-z0-9_]{40,}+", glued=r"\w"),
    _define("npm token", "npm_", r"npm_[A-Za-z0-9]{36}(?!\w)", glued=r"\w"),
    _define("pypi token", "pypi-AgE", r"pypi-AgE[\w-]{20,}+", glued=r"\w-"),
    _define("rubygems key", "rubygems_", r"rubygems_[0-9a-f]{40,}+", glued=r"\w"),
    _define("nuget key", "oy2", r"oy2[a-z0-9]{43}(?!\w)", glued=r"\w"),
    _define("clojars token", "CLOJARS_", r"CLOJARS_[A-Za-z0-9]{50,}+"),
    _define("crates.io token", "cio", r"cio[A-Za-z0-9]{32}(?!\w)", glued=r"\w"),
    _define("docker hub token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{20,}+", glued=r"\w"),
    _define(
        "databricks token",
        "dapi dose dkea",
        r"d(?:api|ose|kea)[0-9a-f]{32}(?:-[0-9]{1,2})?(?!\w)",
        glued=r"\w",
    ),
    _define(
        "notion token",
        "ntn_ secret_",
        r"(?:ntn_[0-9]{9,}+[A-Za-z0-9]{30,}+|secret_[A-Za-z0-9]{43}(?!\w))",
        glued=r"\w",
    ),
    _define(
        "linear key",
        "lin_api_ lin_oauth_ lin_wh_",
        r"lin_(?:api|oauth|wh)_[A-Za-z0-9]{32,}+",
        glued=r"\w",
    ),
    _define("sentry token", "sntrys_ sntryu_", r"sntry[su]_[\w=+/-]{40,}+", glued=r"\w"),
    _define(
        "postman key",
        "PMAK- PMAT-",
        r"PM(?:AK-[0-9a-f]{24}-[0-9a-f]{30,}+|AT-[A-Z0-9]{20,}+)",
        glued=r"\w",
    ),
    _define(
        "square token",
        "EAAA sq0atp- sq0csp- sq0idp-",
        r"(?:EAAA[\w-]{56,60}(?![\w-])|sq0[a-z]{3}-[\w-]{20,}+)",
        glued=r"\w-",
    ),
    _define("facebook token", "EAA", r"EAA[A-Za-z0-9]{90,}+", glued=r"\w"),
    _define(
        "new relic key",
        "NRAK- NRII- NRJS- NRIQ- NRRA-",
        r"NR(?:AK|II|JS|IQ|RA)-[A-Za-z0-9_-]{18,}+",
        glued=r"\w",
    ),
    _define("mailgun key", "key-", r"key-[0-9a-f]{32}(?!\w)", glued=r"\w-"),
    _define(
        "sendinblue key",
        "xkeysib- xsmtpsib-",
        r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}",
        glued=r"\w-",
    ),
    _define("resend key", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}(?!\w)", glued=r"\w"),
    _define(
        "twilio key",
        " ".join(f"SK{digit}" for digit in "0123456789abcdefABCDEF"),
        r"SK[0-9a-fA-F]{32}(?!\w)",
        glued=r"\w",
    ),
    _define("digitalocean token", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{40,}+"),
    _define("shopify token", "shpat_ shpss_ shpca_ shppa_", r"shp[a-z]{2}_[0-9a-fA-F]{32}(?!\w)"),
    _define("atlassian token", "ATATT3 ATCTT3", r"AT[AC]TT3[\w=+/.-]{20,}+", glued=r"\w"),
    _define("figma token", "figd_ figu_ figo_", r"fig[duo]_[\w-]{20,}+", glued=r"\w"),
    _define(
        "grafana token",
        "glsa_ glc_",
        r"gl(?:sa_[A-Za-z0-9]{32}_[0-9a-f]{8}|c_[A-Za-z0-9+/=]{32,}+)(?!\w)",
        glued=r"\w",
    ),
    _define("heroku key", "HRKU-", r"HRKU-[\w-]{30,}+", glued=r"\w"),
    _define("netlify token", "nfp_ nfc_ nfo_", r"nf[pco]_[A-Za-z0-9]{30,}+", glued=r"\w"),
    _define(
        "vercel token",
        "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_",
        r"(?:vc[piark]|vercel_blob_rw)_[A-Za-z0-9_]{24,}+",
        glued=r"\w",
    ),
    _define(
        "supabase key",
        "sbp_ sb_secret_",
        r"(?:sbp_[0-9a-f]{40}|sb_secret_[\w-]{20,}+)",
        glued=r"\w",
    ),
    _define(
        "planetscale token", "pscale_", r"pscale_(?:tkn|pw|oauth|otkn)_[\w=.-]{30,}+", glued=r"\w"
    ),
    _define("neon key", "napi_", r"napi_[a-z0-9]{40,}+", glued=r"\w"),
    _define("prefect key", "pnu_ pnb_", r"pn[ub]_[A-Za-z0-9]{36}(?!\w)", glued=r"\w"),
    _define("pulumi token", "pul-", r"pul-[0-9a-f]{40}(?!\w)", glued=r"\w-"),
    _define("infracost key", "ico-", r"ico-[A-Za-z0-9]{32}(?!\w)", glued=r"\w-"),
    _define("scalingo token", "tk-us-", r"tk-us-[\w-]{48}", glued=r"\w-"),
    _define("readme key", "rdme_", r"rdme_[a-z0-9]{60,}+", glued=r"\w"),
    _define("shippo token", "shippo_", r"shippo_(?:live|test)_[0-9a-fA-F]{40}", glued=r"\w"),
    _define("easypost key", "EZAK EZTK", r"EZ[AT]K[A-Za-z0-9]{54}(?!\w)", glued=r"\w"),
    _define("duffel token", "duffel_", r"duffel_(?:test|live)_[\w=-]{40,}+", glued=r"\w"),
    _define(
        "flutterwave key", "FLWSECK", r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}+(?:-X)?", glued=r"\w"
    ),
    _define(
        "razorpay key", "rzp_live_ rzp_test_", r"rzp_(?:live|test)_[A-Za-z0-9]{14,}+", glued=r"\w"
    ),
    _define(
        "plaid token",
        "access-sandbox- access-production- access-development-",
        r"access-[a-z]{7,11}-[0-9a-f-]{36}",
        glued=r"\w-",
    ),
    _define(
        "sonar token",
        "squ_ sqp_ sqa_ sgp_",
        r"(?:sq[upa]|sgp(?:_[0-9a-f]{16}|_local)?)_[0-9a-f]{40}(?!\w)",
        glued=r"\w",
    ),
    _define(
        "artifactory key",
        "AKCp cmVmd",
        r"(?:AKCp[A-Za-z0-9]{60,}+|cmVmd[A-Za-z0-9]{59}(?!\w))",
        glued=r"\w",
    ),
    _define("alibaba key", "LTAI", r"LTAI[A-Za-z0-9]{12,26}(?!\w)", glued=r"\w"),
    _define("tencent key", "AKID", r"AKID[A-Za-z0-9]{32}(?!\w)", glued=r"\w"),
    _define(
        "yandex key",
        "AQVN YCAJ YCM",
        r"(?:AQVN[\w-]{35,38}|YC(?:AJ|M)[\w-]{30,40})(?![\w-])",
        glued=r"\w-",
    ),
    _define(
        "hubspot token",
        "pat-na1- pat-eu1- pat-na2- pat-ap1-",
        r"pat-[a-z]{2}[0-9]-[0-9a-f-]{36}",
        glued=r"\w-",
    ),
    _define("1password token", "ops_eyJ", r"ops_eyJ[A-Za-z0-9+/=_-]{40,}+", glued=r"\w"),
    _define(
        "1password key",
        "A3-",
        r"A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}",
        glued=r"\w-",
    ),
    _define(
        "fly.io token", "fo1_ fm1a_ fm1r_ fm2_", r"f(?:o1|m1[ar]|m2)_[\w+/=-]{40,}+", glued=r"\w"
    ),
    _define("contentful token", "CFPAT-", r"CFPAT-[\w-]{40,}+", glued=r"\w"),
    _define("typeform token", "tfp_", r"tfp_[\w.=-]{40,}+", glued=r"\w"),
    _define("frame.io token", "fio-u-", r"fio-u-[\w=-]{60,}+", glued=r"\w-"),
    _define("adobe secret", "p8e-", r"p8e-[A-Za-z0-9]{32}(?!\w)", glued=r"\w-"),
    _define(
        "launchdarkly key",
        "api-",
        r"api-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        glued=r"\w-",
    ),
    _define(
        "launchdarkly key",
        "sdk-",
        r"sdk-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        glued=r"\w-",
    ),
    _define("octopus key", "API-", r"API-[A-Z0-9]{26}(?!\w)", glued=r"\w-"),
    _define("pagerduty key", "pdus+_", r"pdus\+_[\w+-]{18,}+", glued=r"\w"),
    _define("tailscale key", "tskey-", r"tskey-[a-z]{3,10}-[A-Za-z0-9-]{15,}+", glued=r"\w-"),
    _define("turborepo token", "ntl_", r"ntl_[A-Za-z0-9]{30,}+", glued=r"\w"),
    _define("segment token", "sgp_", r"sgp_[A-Za-z0-9]{60,}+", glued=r"\w"),
    _define("buildkite token", "bkua_", r"bkua_[0-9a-f]{40}", glued=r"\w"),
    _define("circleci token", "CCIPAT_", r"CCIPAT_[A-Za-z0-9]{20,}+_[0-9a-f]{40}", glued=r"\w"),
    _define("mapbox token", "sk. tk.", r"[st]k\.eyJ[\w-]{20,}+\.[\w-]{20,}+", glued=r"\w."),
    _define("vault token", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{24,}+", glued=r"\w."),
    _define("sendgrid key", "SG.", r"SG\.[\w-]{16,32}+\.[\w-]{16,64}+", glued=r"\w."),
    _define("google oauth token", "ya29.", r"ya29\.[\w-]{20,}+", glued=r"\w-"),
    _define("google refresh token", "1//", r"1//0[\w-]{30,}+", glued=r"\w/"),
    _define("dropbox token", "sl.", r"sl\.(?:u\.)?[\w-]{100,}+", glued=r"\w."),
    _define(
        "dynatrace token",
        "dt0c01. dt0s01.",
        r"dt0[a-z]01\.[A-Z0-9]{24}\.[A-Z0-9]{64}",
        glued=r"\w.",
    ),
    _define("yandex token", "t1.", r"t1\.[\w-]{20,}+={0,2}\.[\w-]{86}={0,2}", glued=r"\w."),
    _define("unspool key", "unspool_", r"unspool_[0-9a-f]{12}_[A-Za-z0-9]{43}(?!\w)", glued=r"\w"),
    _define("age secret key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{50,}+"),
    Rule("private key", ("LS0tLS1CRUdJTi",), _ENCODED_KEY, _is_encoded_key),
    _define("bitcoin key", "xprv yprv zprv", r"[xyz]prv[1-9A-HJ-NP-Za-km-z]{100,}+", glued=r"\w"),
    _define(
        "jwt",
        "eyJ",
        r"eyJ[\w-]{8,}+\.(?:ey[\w-]{8,}+|[\w-]{0,500}+\.[\w-]{8,100}+\.[\w-]{8,}+)\.[\w-]{8,}+",
        glued=r"\w-",
    ),
    _define("jwt", "eyJrIjoi", r"eyJrIjoi[\w+/-]{60,}+={0,2}", glued=r"\w-"),
    _define(
        "jwt",
        "ZXlK",
        r"ZXlK(?:aGJH|MGVY|cmFX|cmRI|cGMz|bGJt)[A-Za-z0-9+/]{40,}+={0,2}",
        glued=r"\w-",
    ),
)
_START = 3
_BY_START: dict[str, list[Rule]] = {}
_BY_TAIL: dict[str, list[tuple[str, Rule]]] = {}  # by the last characters before the run
for _form in _FORMS:
    for _prefix in _form.anchors:
        _outside = _prefix[: max(map(_prefix.rfind, "./+")) + 1]
        if _outside:
            _BY_TAIL.setdefault(_outside[-_START:], []).append((_outside, _form))
        elif _form not in _BY_START.setdefault(_prefix[:_START], []):
            _BY_START[_prefix[:_START]].append(_form)

_RUN = b"a" * 20
_RUN_CHARACTERS = bytes(
    ord("a") if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-") else ord(" ")
    for code in range(256)
)
_PIECE = re.compile(r"[A-Za-z0-9]++")
# Forms whose first part is before the run, by the character before the run: kind, a part that the
# preceding characters contain, the number of these characters, expression.
_BY_CHARACTER: dict[str, tuple[tuple[str, str, int, re.Pattern[str]], ...]] = {
    ".": (
        (
            "doppler token",
            "dp.",
            40,
            re.compile(
                r"(?<![\w.])dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{1,30}\.)?[A-Za-z0-9]{40,}+",
                re.ASCII,
            ),
        ),
        (
            "airtable token",
            "pat",
            23,
            re.compile(r"(?<!\w)pat[A-Za-z0-9]{14}\.[0-9a-f]{64}(?!\w)"),
        ),
        (
            "terraform token",
            ".atlasv1.",
            23,
            re.compile(r"(?<!\w)[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}+", re.ASCII),
        ),
    ),
    ":": (
        (
            "telegram token",
            "",
            11,
            re.compile(r"(?:(?<=bot)|(?<![\w-]))[0-9]{8,10}+:A[\w-]{34}(?![\w-])", re.ASCII),
        ),
    ),
    "~": (
        (
            "azure client secret",
            "Q~",
            7,
            re.compile(r"(?<![\w~.])[\w~.]{3}[0-9]Q~[\w~.-]{31,34}(?![\w~])", re.ASCII),
        ),
        (
            "openshift token",
            "sha256~",
            7,
            re.compile(r"sha256~[\w-]{43}(?![\w-])", re.ASCII),
        ),
    ),
    "|": (
        (
            "facebook token",
            "",
            18,
            re.compile(r"(?<!\w)[0-9]{15,17}+\|[\w-]{27,40}+(?!\w)", re.ASCII),
        ),
    ),
}
# Forms without a prefix, by the length of the run.
_BY_LENGTH: tuple[tuple[str, range, re.Pattern[str]], ...] = (
    (
        "discord token",
        range(23, 29),
        re.compile(r"(?<![\w.-])[MNO][\w-]{22,27}+\.[\w-]{6,7}+\.[\w-]{27,}+", re.ASCII),
    ),
    ("mailchimp key", range(36, 38), re.compile(r"(?<![\w-])[0-9a-f]{32}-us[0-9]{1,2}(?![\w-])")),
    (
        "mailgun key",
        range(50, 51),
        re.compile(r"(?<![\w-])[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![\w-])"),
    ),
    (
        "maxmind key",
        range(40, 41),
        re.compile(r"(?<!\w)[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)"),
    ),
)
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])")
_AWS_NEAR = 200  # characters behind an access key


def find_tokens(scan: ScannedText) -> Iterator[SecretSpan]:
    """Yield the tokens of known providers."""
    text = scan.text
    runs = scan.flat.translate(_RUN_CHARACTERS) + b" "  # so that the last run has an end
    at, done = runs.find(_RUN), 0
    while at >= 0:
        end = runs.find(b" ", at)
        for span in _find_in_run(text, at, end, done):
            done = span[1]
            if values.is_varied(text[span[0] : done]):
                yield span
                if span[2] == "aws access key":
                    yield from _find_aws_secret(text, done)
        at = runs.find(_RUN, max(end, done))


def _find_in_run(text: str, at: int, end: int, done: int) -> Iterator[SecretSpan]:
    if at and (span := _match_before(text, at)) and span[0] >= done:
        yield span
        done = span[1]
    for piece in _PIECE.finditer(text, at, end):
        start = piece.start()
        if start < done:
            continue
        for form in _BY_START.get(text[start : start + _START], ()):
            if (found := form.pattern.match(text, start)) and form.is_secret(found[0]):
                done = found.end()
                yield start, done, form.kind
                break
    if done <= at:  # a form without a prefix
        for kind, lengths, expression in _BY_LENGTH:
            if end - at in lengths and (found := expression.match(text, at)):
                yield (*found.span(), kind)


def _match_before(text: str, at: int) -> SecretSpan | None:
    """Match a form whose first part is before the run: `SG.`, `hvs.`, digits and a colon."""
    for outside, form in _BY_TAIL.get(text[max(0, at - _START) : at], ()):
        start = at - len(outside)
        if start >= 0 and (found := form.pattern.match(text, start)):
            return (*found.span(), form.kind)
    for kind, part, reach, expression in _BY_CHARACTER.get(text[at - 1], ()):
        least = max(0, at - reach)
        for start in range(least, at) if part in text[least:at] else ():
            if found := expression.match(text, start):
                return (*found.span(), kind)
    return None


def _find_aws_secret(text: str, at: int) -> Iterator[SecretSpan]:
    """Yield the secret key that follows an access key without a name."""
    for found in _AWS_SECRET.finditer(text, at, at + _AWS_NEAR):
        if values.looks_random(found[0]):
            yield (*found.span(), "aws secret key")


def find_at_begin(scan: ScannedText, at: int) -> list[SecretSpan]:
    """Return the body of a private key block, given the position of `BEGIN`."""
    text = scan.text
    dashes = next((dashes for dashes in ("-----", "---- ") if text.endswith(dashes, 0, at)), "")
    begin = _BEGIN.match(text, at - len(dashes)) if dashes else None
    if not begin:
        return []
    first = begin.end()
    following = text.find("BEGIN ", first, first + _KEY_WINDOW)
    limit = following - len(dashes) if following >= 0 else first + _KEY_WINDOW
    end = text.find(f"{dashes}END ", first, limit)
    if end < 0 and (lines := _KEY_LINES.match(text, first, limit)):
        end = lines.end()
    # Programs that handle keys name the markers without anything between them.
    return [(first, end, "private key")] if _KEY_MATERIAL.search(text, first, end) else []
