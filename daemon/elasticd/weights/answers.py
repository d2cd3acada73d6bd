"""What a hub's refusal means and what to do about it: one sentence each. Pure.

The hub tells its reason in the header `X-Error-Code`; a repository that is unknown and one that
is private look alike to somebody without a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from elasticd.weights.foreign import printable
from elasticd.weights.source import HubSource

PUBLIC_HUB = "https://huggingface.co"
# Addresses of content carry signatures that open it.
_SECRET_PART = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]+")


def usual_hub(environ: Mapping[str, str]) -> str:
    """Where the hub is if the configuration names none, as the hub's own library has it."""
    return (environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")


class HubRefused(Exception):
    """The hub's answer is final: asking again changes nothing before somebody acts."""


class HubAway(Exception):
    """The hub did not answer, or not now; asking again may help."""


def refusal(
    status: int, code: str, source: HubSource, endpoint: str, *, has_token: bool
) -> HubRefused | HubAway:
    """The error for an HTTP status of 400 or more; `code` is `X-Error-Code`, maybe empty."""
    what, where, code = str(source), endpoint, printable(code, 60)
    match status:
        case 401 | 403 if code == "GatedRepo":
            page = f"accept its licence at {endpoint}/{source.repo}"
            act = (
                f"{page} with the account of weights.token"
                if has_token
                else f"{page} and set weights.token to a token of that account"
            )
            return HubRefused(f"{what} is gated ({status} from {where}): {act}")
        case 401 if has_token:
            return HubRefused(
                f"{what}: {where} does not accept the token (401): set weights.token to a valid "
                "one that may read it"
            )
        case 401:
            return HubRefused(
                f"{what} is unknown to {where}, or private (401): check the name, or set "
                "weights.token to a token that may read it"
            )
        case 403:
            return HubRefused(
                f"{what}: {where} forbids it (403): give the token of weights.token the right to "
                "read it"
            )
        case 404:
            return HubRefused(_not_found(code, source, endpoint))
        case 429:
            return HubAway(f"{where} says too many requests (429)")
        case _ if status >= 500 or status == 408:
            return HubAway(f"{where} answers {status}")
        case _:
            return HubRefused(f"{what}: {where} answers {status} {code}".rstrip())


def _not_found(code: str, source: HubSource, endpoint: str) -> str:
    if code == "RevisionNotFound":
        return (
            f"{endpoint} knows no revision {source.revision!r} of {source.repo} (404): name a "
            "branch, a tag or a commit that is there"
        )
    if code == "EntryNotFound":
        return f"{source} lacks a file that its own list names (404 from {endpoint})"
    return (
        f"{endpoint} knows no repository {source.repo} (404): check its name, and set "
        "weights.token if it is private"
    )


def away(error: BaseException, endpoint: str) -> HubAway:
    """The hub could not be reached, or the connection broke."""
    text = without_secrets(str(error)) or type(error).__name__
    return HubAway(
        f"{endpoint} cannot be reached ({text}): is this machine offline? weights.mirror may "
        "name a mirror"
    )


def circle(endpoint: str) -> HubAway:
    """The hub sends us on and on."""
    return HubAway(
        f"{endpoint} redirects in a circle: is weights.mirror right, or does a proxy want a login?"
    )


def not_a_hub(error: BaseException, endpoint: str) -> HubAway:
    """Somebody answers, but not as a hub does."""
    return HubAway(
        f"{endpoint} gives answers that are not a hub's ({type(error).__name__}): is "
        "weights.mirror right, or is a proxy between?"
    )


def without_secrets(text: str) -> str:
    """One line of at most 200 characters, with the signed parts of addresses cut off."""
    return printable(_SECRET_PART.sub(r"\1", text), 200)
