"""The forms of credentials that a provider makes recognisable, as data: a prefix and a body, or a pattern.

Rule 1: a form matches only what its provider issues. Random-looking text alone is no form: hashes, UUIDs, ids of cells
        and images would match.
Rule 2: nothing is compiled here. `secrets.py` compiles a pattern when one of its words occurs in a text.

The prefixes are facts from the providers' documentation and from the rule set of gitleaks.
"""

from __future__ import annotations

from typing import NamedTuple

BODIES = {
    "word": r"[A-Za-z0-9_-]+",
    "alnum": r"[A-Za-z0-9]+",
    "upper": r"[A-Z0-9]+",
    "hex": r"[0-9a-fA-F]+",
    "base64": r"[A-Za-z0-9+/_=-]+",
    "uuid": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}
"""The kinds of bodies, as patterns."""


class PrefixedForm(NamedTuple):
    """A kind of credential: one of the prefixes, then at least `least` characters of a body."""

    label: str
    prefixes: tuple[str, ...]
    body: str
    least: int
    digit: bool = True
    """Whether the body must contain a digit, or a run of 20 letters: a word has neither."""
    tail: str = ""
    """A pattern that must follow the body, and is masked with it."""


class PatternForm(NamedTuple):
    """A kind of credential as a pattern; the group `v`, or else the whole match, is masked."""

    label: str
    words: tuple[str, ...]
    """One of them is in every match, in this case of letters."""
    pattern: str


class JoinedForm(NamedTuple):
    """A kind of credential whose parts are joined by a dot, a colon, a slash or a tilde.

    `before` ends right before its last long part; the pattern matches from at most `back` characters before that part.
    """

    label: str
    before: tuple[str, ...]
    back: int
    pattern: str
    begins: str = ""
    """The beginning of its last long part."""


_HEX = "0123456789abcdef"

PREFIXED = (
    PrefixedForm("Anthropic key", ("sk-ant-",), "word", 12, digit=False),
    PrefixedForm("OpenRouter key", ("sk-or-",), "word", 16),
    PrefixedForm("Langfuse key", ("sk-lf-", "pk-lf-"), "word", 16),
    PrefixedForm("OpenAI key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), "word", 16),
    PrefixedForm("API key", ("sk-",), "word", 16),
    PrefixedForm("ElevenLabs key", ("sk_",), "hex", 40),
    PrefixedForm("Stripe key", ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "sk_prod_"), "alnum", 10, digit=False),
    PrefixedForm("Google API key", ("AIza",), "word", 30, digit=False),
    PrefixedForm("Google OAuth secret", ("GOCSPX-",), "word", 20, digit=False),
    PrefixedForm("Hugging Face token", ("hf_", "api_org_"), "alnum", 20, digit=False),
    PrefixedForm("npm token", ("npm_",), "alnum", 30, digit=False),
    PrefixedForm("PyPI token", ("pypi-",), "word", 40, digit=False),
    PrefixedForm(
        "GitLab token",
        (
            *("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "gloas-", "glft-", "glsoat-", "glagent-", "glimt-"),
            *("glffct-", "GR1348941"),
        ),
        "word",
        16,
        digit=False,
    ),
    PrefixedForm("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "alnum", 16, digit=False),
    PrefixedForm("GitHub token", ("github_pat_",), "word", 20, digit=False),
    PrefixedForm("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), "upper", 12, digit=False),
    PrefixedForm("AWS Bedrock key", ("bedrock-api-key-",), "base64", 40),
    PrefixedForm("Slack token", ("xapp-", *(f"xox{kind}-" for kind in "abcdeoprs")), "word", 10, digit=False),
    PrefixedForm("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), "hex", 32),
    PrefixedForm("xAI key", ("xai-",), "alnum", 24),
    PrefixedForm("Groq key", ("gsk_",), "alnum", 24),
    PrefixedForm("Shopify token", ("shpat_", "shpca_", "shppa_", "shpss_"), "hex", 24),
    PrefixedForm("age secret key", ("AGE-SECRET-KEY-1",), "upper", 40),
    PrefixedForm("Databricks token", ("dapi",), "hex", 30),
    PrefixedForm("Twilio key", tuple(f"SK{one}" for one in _HEX), "hex", 31),
    PrefixedForm("Mailgun key", ("key-",), "hex", 30),
    PrefixedForm("Linear key", ("lin_api_", "lin_oauth_"), "alnum", 24),
    PrefixedForm("Notion token", ("ntn_", "secret_"), "alnum", 38),
    PrefixedForm("Postman key", ("PMAK-",), "word", 40),
    PrefixedForm("Pulumi token", ("pul-",), "hex", 38),
    PrefixedForm("Prefect key", ("pnu_", "pnb_"), "alnum", 30),
    PrefixedForm("PlanetScale token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), "word", 30),
    PrefixedForm("RubyGems key", ("rubygems_",), "hex", 40),
    PrefixedForm("Perplexity key", ("pplx-",), "alnum", 30),
    PrefixedForm("Replicate token", ("r8_",), "alnum", 30),
    PrefixedForm("Grafana token", ("glsa_",), "word", 32),
    PrefixedForm("Grafana token", ("glc_",), "base64", 32),
    PrefixedForm("Grafana key", ("eyJrIjoi",), "base64", 50),
    PrefixedForm("New Relic key", ("NRAK-", "NRII-", "NRJS-", "NRRA-"), "word", 19),
    PrefixedForm("Terraform token", ("tfc_", "tfe_"), "alnum", 30),
    PrefixedForm("Fly.io token", ("fo1_",), "word", 36),
    PrefixedForm("Fly.io token", ("fm1r_", "fm1a_", "fm2_"), "base64", 60),
    PrefixedForm("Square token", ("sq0atp-", "sq0csp-", "EAAA"), "word", 20),
    PrefixedForm("Facebook token", ("EAA",), "alnum", 80),
    PrefixedForm("Heroku key", ("HRKU-AA",), "word", 40),
    PrefixedForm("Atlassian token", ("ATATT3", "ATCTT3", "ATBB"), "base64", 30),
    PrefixedForm("Sentry token", ("sntryu_",), "hex", 48),
    PrefixedForm("Sentry token", ("sntrys_",), "base64", 48),
    PrefixedForm("Figma token", ("figd_", "figo_"), "word", 30),
    PrefixedForm("Tailscale key", ("tskey-",), "word", 20),
    PrefixedForm("1Password token", ("ops_eyJ",), "base64", 60),
    PrefixedForm("1Password secret key", ("A3-",), "word", 30),
    PrefixedForm("Artifactory key", ("AKCp", "cmVmd"), "alnum", 55),
    PrefixedForm("Alibaba access key", ("LTAI",), "alnum", 16),
    PrefixedForm("Tencent secret id", ("AKID",), "alnum", 28),
    PrefixedForm("Netlify token", ("nfp_",), "alnum", 30),
    PrefixedForm("Render key", ("rnd_",), "alnum", 24),
    PrefixedForm("Supabase key", ("sbp_",), "hex", 36),
    PrefixedForm("Supabase key", ("sb_secret_",), "word", 20),
    PrefixedForm("Neon key", ("napi_", "npg_"), "alnum", 12),
    PrefixedForm("SonarQube token", ("sqp_", "squ_", "sqa_"), "hex", 36),
    PrefixedForm("Sourcegraph token", ("sgp_",), "word", 40),
    PrefixedForm("Typeform token", ("tfp_",), "word", 40),
    PrefixedForm("ReadMe key", ("rdme_",), "alnum", 60),
    PrefixedForm("Shippo token", ("shippo_live_", "shippo_test_"), "hex", 36),
    PrefixedForm("EasyPost key", ("EZAK", "EZTK"), "alnum", 50),
    PrefixedForm("Duffel token", ("duffel_live_", "duffel_test_"), "word", 40),
    PrefixedForm("Flutterwave key", ("FLWSECK-", "FLWSECK_TEST-"), "word", 12),
    PrefixedForm("Frame.io token", ("fio-u-",), "word", 60),
    PrefixedForm("Infracost key", ("ico-",), "alnum", 30),
    PrefixedForm("Adobe client secret", ("p8e-",), "alnum", 30),
    PrefixedForm("Octopus Deploy key", ("API-",), "upper", 25),
    PrefixedForm("Brevo key", ("xkeysib-", "xsmtpsib-"), "word", 60),
    PrefixedForm("Clojars token", ("CLOJARS_",), "hex", 50),
    PrefixedForm("LangSmith key", ("lsv2_pt_", "lsv2_sk_", "ls__"), "word", 32),
    PrefixedForm("Pinecone key", ("pcsk_",), "word", 40),
    PrefixedForm("Tavily key", ("tvly-",), "word", 20),
    PrefixedForm("Firecrawl key", ("fc-",), "hex", 30),
    PrefixedForm("Fireworks key", ("fw_",), "alnum", 20),
    PrefixedForm("Voyage key", ("pa-",), "word", 40),
    PrefixedForm("Jina key", ("jina_",), "alnum", 40),
    PrefixedForm("NVIDIA key", ("nvapi-",), "word", 40),
    PrefixedForm("Cerebras key", ("csk-",), "alnum", 40),
    PrefixedForm("Together key", ("tgp_v1_",), "word", 30),
    PrefixedForm("Weights & Biases key", ("wandb_v1_",), "word", 30),
    PrefixedForm("Resend key", ("re_",), "alnum", 20),
    PrefixedForm("Settlemint token", ("sm_aat_", "sm_pat_", "sm_sat_"), "alnum", 16),
    PrefixedForm("Scalingo token", ("tk-us-",), "word", 40),
    PrefixedForm("Docker token", ("dckr_pat_", "dckr_oat_"), "word", 20),
    PrefixedForm("CircleCI token", ("CCIPAT_", "CCIPRJ_"), "word", 30),
    PrefixedForm("Buildkite token", ("bkua_", "bkct_"), "alnum", 30),
    PrefixedForm("Contentful token", ("CFPAT-",), "word", 36),
    PrefixedForm("HubSpot token", ("pat-na1-", "pat-na2-", "pat-eu1-", "pat-ap1-"), "word", 30),
    PrefixedForm("Plaid token", ("access-sandbox-", "access-production-", "access-development-"), "word", 30),
    PrefixedForm(
        "JSON web token", ("eyJ",), "word", 6, digit=False, tail=r"\.eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)*"
    ),
    PrefixedForm("Firebase key", ("APA91b",), "word", 60),
    PrefixedForm("Airtable token", ("pat",), "alnum", 14, digit=False, tail=r"\.[0-9a-f]{40,}"),
    PrefixedForm(
        "Discord token",
        tuple(f"{first}{second}" for first in "MNO" for second in "ADEIMQTUYZcgjkwz"),
        "word",
        21,
        digit=False,
        tail=r"\.[\w-]{6}\.[\w-]{27,}",
    ),
    PrefixedForm("Salesforce token", ("00D",), "alnum", 12, tail=r"![\w.]{60,}"),
    PrefixedForm("Intercom token", ("dG9rOj",), "base64", 30),
    PrefixedForm("LaunchDarkly key", ("sdk-", "mob-"), "uuid", 36, digit=False),
    PrefixedForm("WakaTime key", ("waka_",), "uuid", 36, digit=False),
    PrefixedForm("Axiom token", ("xaat-", "xapt-"), "uuid", 36, digit=False),
    PrefixedForm("Lob key", ("live_", "test_"), "hex", 35),
    PrefixedForm("payment key", ("live_", "rzp_live_", "rzp_test_"), "alnum", 14),
    PrefixedForm("crates.io token", ("cio",), "alnum", 32),
    PrefixedForm("NuGet key", ("oy2",), "alnum", 43),
    PrefixedForm("Packagist token", ("packagist_",), "word", 30),
    PrefixedForm("Vercel token", ("vcp_", "vci_", "vca_", "vcr_", "vck_"), "alnum", 20),
    PrefixedForm("Cursor key", ("key_", "crsr_"), "hex", 60),
    PrefixedForm("Baidu access key", ("ALTAK",), "alnum", 15),
    PrefixedForm("Volcengine access key", ("AKLT",), "alnum", 40),
    PrefixedForm("Yandex key", ("AQVN", "y0_"), "word", 35),
    PrefixedForm("Adafruit key", ("aio_",), "alnum", 26),
    PrefixedForm("Trigger.dev key", ("tr_dev_", "tr_prod_"), "alnum", 18),
    PrefixedForm("Inngest key", ("signkey-prod-", "signkey-test-"), "hex", 32),
    PrefixedForm("secret key", ("sk_dev_", "sk_prod_"), "word", 20),
    PrefixedForm("Xata key", ("xau_",), "alnum", 24),
    PrefixedForm("Apify token", ("apify_api_",), "alnum", 24),
    PrefixedForm("Modal token", ("ak-", "as-"), "alnum", 22),
    PrefixedForm("RunPod key", ("rpa_",), "alnum", 30),
    PrefixedForm("Anyscale key", ("esecret_",), "alnum", 20),
    PrefixedForm("Humanloop key", ("hl_sk_",), "alnum", 24),
    PrefixedForm("PostHog key", ("phx_",), "alnum", 30),
    PrefixedForm("Honeycomb key", ("hcaik_", "hcbik_"), "alnum", 24),
    PrefixedForm("Logfire token", ("pylf_v1_",), "word", 30),
    PrefixedForm("Cloudflare token", ("cfut_", "cfat_"), "word", 36),
)


def _after_digit(sign: str) -> tuple[str, ...]:
    return tuple(f"{digit}{sign}" for digit in "0123456789")


JOINED = (
    JoinedForm("SendGrid key", ("SG.",), 3, r"\bSG\.[\w-]{16,}(?:\.[\w-]{16,})?"),
    JoinedForm("Google OAuth token", ("ya29.",), 5, r"\bya29\.[\w.-]{20,}"),
    JoinedForm("Google OAuth token", ("1//",), 3, r"(?<![\w/])1//0[\w-]{30,}"),
    JoinedForm(
        "Doppler token",
        ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."),
        9,
        r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}",
    ),
    JoinedForm(
        "Dynatrace token", ("dt0c01.", "dt0s01.", "dt0s16."), 7, r"\bdt0[a-z]\d\d\.[A-Z0-9]{20,}\.[A-Z0-9]{20,}"
    ),
    JoinedForm("Vault token", ("hvs.", "hvb.", "hvr."), 4, r"\bhv[sbr]\.[\w-]{20,}"),
    JoinedForm("Terraform token", (".atlasv1.",), 23, r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}"),
    JoinedForm("Dropbox token", ("sl.", "sl.u."), 5, r"\bsl\.(?:u\.)?(?=[A-Za-z_-]{0,60}\d)[\w-]{60,}"),
    JoinedForm("Harness token", ("pat.", "sat."), 4, r"\b[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    JoinedForm("Mapbox token", ("sk.", "tk."), 3, r"\b[st]k\.eyJ[\w-]{20,}\.[\w-]{20,}"),
    JoinedForm("Zoho token", ("1000.",), 5, r"\b1000\.[0-9a-f]{32}\.[0-9a-f]{32}"),
    JoinedForm("Asana token", _after_digit(":"), 42, r"(?<![\w/])[012]/\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}\b"),
    JoinedForm("Facebook token", _after_digit("|"), 18, r"(?<!\d)\d{15,17}\|[\w-]{26,}"),
    JoinedForm("Cloudflare origin key", ("v1.",), 3, r"\bv1\.0-[0-9a-f]{24}-[0-9a-f]{100,}"),
    JoinedForm("Telegram token", (":",), 13, r"(?<!\d)\d{8,12}:AA[\w-]{30,}", "AA"),
    JoinedForm("Azure client secret", ("Q~",), 6, r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{30,}"),
    JoinedForm("OpenShift token", ("sha256~",), 7, r"\bsha256~[\w-]{40,}"),
)
"""The forms that are recognised by what stands before their last long part."""

WHOLE = (
    PatternForm("Mailchimp key", ("-us",), r"[0-9a-f]{32}-us\d{1,2}"),
    PatternForm("MaxMind key", ("_mmk",), r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    PatternForm("Azure DevOps token", ("AZDO",), r"[A-Za-z0-9]{70,80}AZDO[A-Za-z0-9]{4}"),
)
"""The forms that are a whole run of letters, digits, `_` and `-`."""
WHOLE_LENGTHS = frozenset({36, 37, 40, *range(78, 89)})

PATTERNS = (
    PatternForm(
        "private key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END )[\s\S])*"
        r"(?:-----END [A-Z0-9 ]{0,40}-----)?",
    ),
    PatternForm(
        "private key", ("Private-Lines: ",), r"Private-Lines: \d{1,4}\s{1,4}(?P<v>(?:[A-Za-z0-9+/=]{16,}\s{0,4})+)"
    ),
    PatternForm("webhook signing secret", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{20,}"),
    PatternForm("AWS Bedrock key", ("ABSK",), r"ABSK[A-Za-z0-9+/]{40,}={0,2}"),
    PatternForm(
        "Slack webhook",
        ("hooks.slack",),
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<v>[\w/+-]{20,})",
    ),
    PatternForm(
        "Braintree token",
        ("access_token$",),
        r"access_token\$(?:production|sandbox)\$[0-9a-z]{10,20}\$[0-9a-f]{32}",
    ),
    PatternForm("Discord webhook", ("/api/webhooks/",), r"/api/webhooks/(?P<v>\d{10,}/[\w-]{30,})"),
    PatternForm("Teams webhook", (".webhook.office.com/",), r"\.webhook\.office\.com/(?P<v>[\w/@-]{36,})"),
    PatternForm(
        "password hash",
        ("$",),
        r"\$(?:2[aby]\$\d\d\$[./A-Za-z0-9]{53}|argon2(?:id|i|d)\$[\w=,$+/.-]{40,}|[56y]\$[\w./=,$-]{40,})",
    ),
)
"""The other forms."""

_NAMES = (
    r"passwords?|passwd|passphrase|passcode|pwd|secrets?|tokens?|credentials?"
    r"|(?:api|access|account|auth|private|secret|client|signing|encryption|subscription|license|master|service)[_-]?key"
)

CONTEXTS = (
    PatternForm("", ("bearer",), r"\bbearer[ \t]+(?P<v>[a-z0-9._~+/-]{12,}={0,2})"),
    PatternForm("", ("basic ",), r"\bbasic[ \t]+(?P<v>(?=[a-z+/]{0,200}[0-9=])[a-z0-9+/]{12,}={0,2})"),
    PatternForm(
        "",
        ("authorization",),
        r"\bauthorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:(?:bearer|basic|token|apikey|key|digest|ssws)\s{1,3})?"
        r"(?P<v>(?=[a-z._~+/=-]{0,200}[0-9])[a-z0-9._~+/=-]{12,})",
    ),
    PatternForm(
        "",
        (" -u ", " --user", "-user "),
        r"(?<!\S)(?:-u|--(?:proxy-)?user)[ =]{0,2}[\"']?[^\s:\"'{}]{1,100}:(?P<v>[^\s\"'{}\[\]]{3,200})",
    ),
    PatternForm("", ("identified by",), r"\bidentified by {1,3}'(?!\[masked)(?P<v>[^'\s]{4,200})'"),
    PatternForm("", ('"auth"',), r'"auth"\s{0,3}:\s{0,3}"(?P<v>[a-z0-9+/=]{12,})"'),
    # Signed URLs whose parameter has no name of a secret.
    PatternForm(
        "",
        ("signature=", "?sig=", "&sig=", "?key=", "&key="),
        r"[?&](?:[a-z0-9_.-]{0,40}signature|sig|key)="
        r"(?!\[masked)(?P<v>[^&\s'\"<>#\\]{6,})",
    ),
)
"""Forms that are searched in the text in lower case: the context says that a credential follows."""

NAMED_CONTEXTS = (
    # A signed URL. Its last value ends with the quote that the URL ends with.
    PatternForm("", ("?", "&"), rf"[?&][a-z0-9_.-]{{0,40}}(?:{_NAMES})=(?!\[masked)(?P<v>[^&\s'\"<>#\\]{{6,}})"),
    PatternForm(
        "",
        ("--",),
        rf"(?<!\S)--[a-z-]{{0,30}}(?:{_NAMES})[ \t]{{1,3}}[\"']?(?P<v>(?=[^\s\"'0-9]{{0,200}}[0-9])[^\s\"'{{}}\[\]<-]"
        r"[^\s\"'{}\[\]]{5,200})",
    ),
    PatternForm("", ("sshpass",), r"\bsshpass\s{1,3}-p\s{0,3}[\"']?(?P<v>[^\s\"'{}\[\]$]{4,200})"),
    PatternForm("", ("login",), r"\blogin\s{1,4}[^\s]{1,100}\s{1,8}password\s{1,4}(?P<v>[^\s\[]{4,200})"),
    PatternForm("", ("password '",), r"\bpassword {1,3}'(?!\[masked)(?P<v>[^'\s]{4,200})'"),
    PatternForm("", ("</",), rf"<[\w.:-]{{0,40}}(?:{_NAMES})>(?!\[masked)(?P<v>[^<>\s]{{4,200}})</"),
)
"""The same, for texts that contain the name of a secret such as `password`."""
