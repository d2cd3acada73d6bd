"""Each kind of refusal has its class, since the class is what is done about it; and nothing else
ever leaves a provider, least of all a secret.
"""

from __future__ import annotations

import traceback

import pytest

from elasticd.provider import (
    AuthFailed,
    BillingBlocked,
    NoCapacity,
    PriceTooHigh,
    Provider,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Rejected,
    Unavailable,
)
from tests.conformance.subject import Trouble
from tests.conformance.world import JOIN_TOKEN, World, error_of

LAUNCHES: dict[Trouble, type[ProviderError]] = {
    Trouble.SOLD_OUT: NoCapacity,
    Trouble.NO_QUOTA: QuotaExceeded,
    Trouble.TOO_EXPENSIVE: PriceTooHigh,
    Trouble.CANNOT_PAY: BillingBlocked,
    Trouble.INVALID: Rejected,
    Trouble.IN_CONFLICT: Unavailable,
    Trouble.THROTTLED: RateLimited,
    Trouble.BAD_CREDENTIALS: AuthFailed,
    Trouble.FORBIDDEN: AuthFailed,
    Trouble.BROKEN: Unavailable,
    Trouble.UNREACHABLE: Unavailable,
    Trouble.ERROR_PAGE: Unavailable,
}
EVERY_CALL: dict[Trouble, type[ProviderError]] = {
    Trouble.THROTTLED: RateLimited,
    Trouble.BAD_CREDENTIALS: AuthFailed,
    Trouble.FORBIDDEN: AuthFailed,
    Trouble.BROKEN: Unavailable,
    Trouble.UNREACHABLE: Unavailable,
    Trouble.ERROR_PAGE: Unavailable,
    Trouble.NOT_FOUND_PAGE: Unavailable,
}


def _name(value: object) -> str:
    return value.name.lower() if isinstance(value, Trouble) else ""


@pytest.mark.parametrize(("trouble", "expected"), LAUNCHES.items(), ids=_name)
async def test_a_launch_that_fails_says_why_by_its_class_and_makes_nothing(
    world: World, trouble: Trouble, expected: type[ProviderError], caplog: pytest.LogCaptureFixture
) -> None:
    provider, request = world.provider(), await world.request()
    await world.provoke(trouble)
    if expected is Unavailable:
        error = await error_of(provider.launch(request))
    else:
        error = await world.refusal(provider, request)
    assert type(error) is expected, repr(error)
    _keeps_secrets(world, provider, error, caplog.text)
    await world.heal()
    assert await world.machines() == []
    launched = await world.launch(provider, request)  # the very same object is well again
    assert await world.machines() == [launched.instance_id]


@pytest.mark.parametrize(("trouble", "expected"), EVERY_CALL.items(), ids=_name)
async def test_a_call_that_fails_says_why_by_its_class_and_destroys_nothing(
    world: World, trouble: Trouble, expected: type[ProviderError], caplog: pytest.LogCaptureFixture
) -> None:
    provider = world.provider()
    launched = await provider.launch(await world.request())
    await world.provoke(trouble)
    for call in (
        provider.offerings(),
        provider.instances(),
        provider.terminate(launched.instance_id),
    ):
        error = await error_of(call)
        assert type(error) is expected, repr(error)
        _keeps_secrets(world, provider, error, caplog.text)
    await world.heal()
    assert await world.machines() == [launched.instance_id]
    assert [i.instance_id for i in await provider.instances()] == [launched.instance_id]


async def test_a_throttled_call_tells_how_long_the_vendor_asks_to_wait(world: World) -> None:
    provider, request = world.provider(), await world.request()
    await world.provoke(Trouble.THROTTLED)
    for call in (provider.instances(), provider.launch(request)):
        error = await error_of(call)
        assert isinstance(error, RateLimited)
        assert error.after == world.subject.pause


async def test_an_offering_that_is_not_the_pools_is_rejected(world: World) -> None:
    provider, (offering, *_) = world.provider(), await world.offerings()
    values = {name: getattr(offering, name) for name in type(offering).__slots__}
    unheard_of = type(offering)(**(values | {"machine_type": "unheard-of"}))
    error = await world.refusal(provider, await world.request("1", (unheard_of,)))
    assert isinstance(error, Rejected)
    assert "unheard-of" in str(error), "it names what is wrong"
    assert await world.machines() == []


def _keeps_secrets(world: World, provider: Provider, error: ProviderError, logged: str) -> None:
    seen = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(provider)) + logged
    assert str(error).strip(), "it says what, where and what to do"
    for secret in (*world.subject.secrets, JOIN_TOKEN):
        assert secret not in seen
