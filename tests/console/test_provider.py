"""Sign-in at a real OpenID provider, in the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.browser import headless_shell
from playwright.sync_api import Browser, Page, expect
from tests.accounts.identity.openid.provider import Provider, running_provider
from tests.platform.running import running
from tests.shared import SharedServers

pytestmark = [pytest.mark.group("console"), pytest.mark.deep]

CLIENT = "moorage-basic"
CONTINUE = "Continue with 127.0.0.1"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as started:
        yield started


@pytest.fixture(scope="module")
def url(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A platform whose provider wants a client secret."""
    env = {
        "MOORAGE_OIDC_ISSUERS": provider.issuer,
        "MOORAGE_OIDC_AUDIENCE": CLIENT,
        "MOORAGE_OIDC_CLIENT_SECRET": f"{CLIENT}-secret",
    }
    with running(tmp_path_factory.mktemp("provider") / "data", env=env) as platform:
        yield platform.url


@pytest.fixture
def page(shared: SharedServers, url: str) -> Iterator[Page]:
    browser: Browser = shared.get("browser", headless_shell)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{url}/functions")
        yield page


def log_in(page: Page, account: str) -> None:
    """Fill in the form of the provider."""
    page.get_by_label("Account").fill(account)
    page.get_by_role("button", name="Log in").click()


def test_a_person_signs_in_at_the_provider_and_accepts_the_terms_once(page: Page, url: str) -> None:
    page.get_by_role("button", name=CONTINUE).click()
    log_in(page, "ada")
    go_on = page.get_by_role("button", name="Continue", exact=True)
    expect(go_on).to_be_disabled()
    assert "code=" not in page.url
    page.get_by_role("checkbox").check()
    go_on.click()
    expect(page.get_by_role("heading", name="Functions")).to_be_visible()  # the page that was asked for
    page.get_by_role("button", name="Account").click()
    expect(page.get_by_text("ada@example.com")).to_be_visible()
    page.get_by_role("menuitem", name="Sign out").click()
    page.get_by_role("button", name=CONTINUE).click()
    log_in(page, "ada")

    expect(page.get_by_role("heading", name="Home")).to_be_visible()


def test_an_address_that_another_page_made_signs_nobody_in(page: Page, url: str) -> None:
    page.goto(f"{url}/sign-in/return?code=stolen&state=guessed")

    expect(page.get_by_text("This sign-in was not started in this browser")).to_be_visible()
    page.get_by_role("link", name="Back to the sign-in").click()
    expect(page.get_by_role("button", name=CONTINUE)).to_be_visible()


def test_a_refusal_of_the_provider_is_told_as_text(page: Page, url: str) -> None:
    page.goto(f"{url}/sign-in/return?error=access_denied&error_description=<img src=x onerror=alert(1)>")

    expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0
