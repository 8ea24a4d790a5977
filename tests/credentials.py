"""Credentials of many kinds, made by formula from a seed: none of them was ever issued, and none is in this repository.

A formula is a text with parts in braces: a letter for the characters, and how many (`{H32}`: 32 hexadecimal digits).
"""

from __future__ import annotations

import random
import re
import string

LETTERS = {
    "A": string.ascii_letters + string.digits,
    "W": string.ascii_letters + string.digits + "-_",
    "H": "0123456789abcdef",
    "U": string.ascii_uppercase + string.digits,
    "D": string.digits,
    "B": string.ascii_letters + string.digits + "+/",
    "L": string.ascii_lowercase + string.digits,
}
_PART = re.compile(r"\{([AWHUDBL])(\d+)\}")

ISSUED = {
    "Anthropic": "sk-ant-api03-{W90}AA",
    "OpenAI project": "sk-proj-{W70}",
    "OpenAI": "sk-{A48}",
    "OpenRouter": "sk-or-v1-{H64}",
    "Langfuse": "sk-lf-{H8}-{H4}-{H4}-{H4}-{H12}",
    "ElevenLabs": "sk_{H48}",
    "Stripe live": "sk_live_{A24}",
    "Stripe restricted": "rk_test_{A24}",
    "Stripe webhook": "whsec_{A32}",
    "Google API": "AIza{W35}",
    "Google OAuth secret": "GOCSPX-{W28}",
    "Google access": "ya29.a0{W120}",
    "Google refresh": "1//0{W60}",
    "Hugging Face": "hf_{A34}",
    "npm": "npm_{A36}",
    "PyPI": "pypi-AgEIcHlwaS5vcmc{W100}",
    "GitLab": "glpat-{W20}",
    "GitLab deploy": "gldt-{W20}",
    "GitLab runner": "glrt-{W20}",
    "GitHub": "ghp_{A36}",
    "GitHub app": "ghs_{A36}",
    "GitHub fine-grained": "github_pat_{A22}_{A59}",
    "AWS": "AKIA{U16}",
    "AWS session": "ASIA{U16}",
    "AWS Bedrock": "ABSK{B120}",
    "Slack bot": "xoxb-{D12}-{D12}-{A24}",
    "Slack app": "xapp-1-{U11}-{D13}-{H64}",
    "Slack webhook": "https://hooks.slack.com/services/T{U8}/B{U8}/{A24}",
    "Discord webhook": "https://discord.com/api/webhooks/{D18}/{W68}",
    "Discord": "MTA{A21}.G{A5}.{W38}",
    "Teams webhook": "https://acme.webhook.office.com/webhookb2/{H8}-{H4}-{H4}-{H4}-{H12}@{H8}-{H4}-{H4}-{H4}-{H12}/x",
    "SendGrid": "SG.{W22}.{W43}",
    "DigitalOcean": "dop_v1_{H64}",
    "xAI": "xai-{A80}",
    "Groq": "gsk_{A52}",
    "Shopify": "shpat_{H32}",
    "Shopify shared": "shpss_{H32}",
    "age": "AGE-SECRET-KEY-1{U58}",
    "Telegram": "{D9}:AA{W33}",
    "Azure client": "{A3}8Q~{W34}",
    "Databricks": "dapi{H32}",
    "Twilio": "SK{H32}",
    "Mailgun": "key-{H32}",
    "Mailchimp": "{H32}-us12",
    "Linear": "lin_api_{A40}",
    "Notion": "ntn_{D11}{A35}",
    "Postman": "PMAK-{H24}-{H34}",
    "Pulumi": "pul-{H40}",
    "Prefect": "pnu_{A36}",
    "PlanetScale": "pscale_tkn_{W43}",
    "RubyGems": "rubygems_{H48}",
    "Perplexity": "pplx-{A48}",
    "Replicate": "r8_{A37}",
    "Grafana": "glsa_{A32}_{H8}",
    "New Relic": "NRAK-{U27}",
    "Doppler": "dp.pt.{A43}",
    "Dynatrace": "dt0c01.{U24}.{U64}",
    "Vault": "hvs.{W95}",
    "Terraform": "{A14}.atlasv1.{W67}",
    "Fly.io": "fo1_{W43}",
    "Square": "sq0atp-{W22}",
    "Facebook": "EAAC{A120}",
    "Heroku": "HRKU-AA{W58}",
    "Atlassian": "ATATT3xFfGF0{W180}",
    "Sentry": "sntryu_{H64}",
    "Figma": "figd_{W40}",
    "Tailscale": "tskey-auth-{A16}-{A32}",
    "1Password": "ops_eyJ{A250}",
    "Artifactory": "AKCp{A69}",
    "Alibaba": "LTAI{A20}",
    "Airtable": "pat{A14}.{H64}",
    "Netlify": "nfp_{A36}",
    "Supabase": "sbp_{H40}",
    "SonarQube": "squ_{H40}",
    "Sourcegraph": "sgp_{H40}",
    "Typeform": "tfp_{W59}",
    "Shippo": "shippo_live_{H40}",
    "Duffel": "duffel_live_{W43}",
    "Brevo": "xkeysib-{H64}-{A16}",
    "LangSmith": "lsv2_pt_{H32}_{H10}",
    "Pinecone": "pcsk_{A6}_{A60}",
    "Tavily": "tvly-{A32}",
    "NVIDIA": "nvapi-{W64}",
    "Docker": "dckr_pat_{W27}",
    "Contentful": "CFPAT-{W43}",
    "Dropbox": "sl.B{W130}",
    "OpenShift": "sha256~{W43}",
    "MaxMind": "{A6}_{A29}_mmk",
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJ{A60}.{W43}",
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----\n{B64}\n{B64}\n-----END OPENSSH PRIVATE KEY-----",
    "Salesforce": "00D{A12}!{A90}",
    "LaunchDarkly": "sdk-{H8}-{H4}-{H4}-{H4}-{H12}",
    "crates.io": "cio{A32}",
    "Mapbox": "sk.eyJ{A60}.{W22}",
    "Asana": "1/{D16}:{H32}",
    "Braintree": "access_token$production${L16}${H32}",
    "Zoho": "1000.{H32}.{H32}",
    "Mollie": "live_{A30}",
    "Apify": "apify_api_{A36}",
    "bcrypt": "$2b$12${A53}",
}
"""The kinds that are recognised by their form."""

OPAQUE = {
    "WANDB_API_KEY": "{H40}",
    "AWS_SECRET_ACCESS_KEY": "{B40}",
    "AZURE_ACCOUNT_KEY": "{B86}==",
    "COHERE_API_KEY": "{A40}",
    "DATADOG_API_KEY": "{H32}",
    "MISTRAL_API_KEY": "{A32}",
    "DB_PASSWORD": "{A6}!%&{A6}",
    "KAGGLE_SECRET": "{H32}",
}
"""The kinds that only their name tells."""


def made(formula: str, seed: object) -> str:
    """Return the credential of a formula; the same seed gives the same one."""
    source = random.Random(f"{formula} {seed}")

    def part(found: re.Match[str]) -> str:
        kind, many = LETTERS[found[1]], int(found[2])
        text = "".join(source.choices(kind, k=many))
        # At least one digit and one letter, and a letter at the ends: as nearly all have.
        if many > 4 and kind != LETTERS["D"]:
            text = f"{source.choice([one for one in kind if one.isalpha()])}7{text[2:]}"
        return text[:-1] + "7" if text[-1] in "-_+/" else text

    return _PART.sub(part, formula)


def tails(credential: str) -> list[str]:
    """Return the parts of a credential that must be in no text: its second half, line by line."""
    lines = [line for line in credential.splitlines() if not line.startswith("-----")]
    return [line[len(line) // 2 :] for line in lines]
