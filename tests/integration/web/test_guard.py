"""The guard on the real application refuses requests without rights, and requests of other sites."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.operations.audit_sql import list_operations
from dlq_handler.operations.operation import Client
from dlq_handler.ui import ui_app
from dlq_handler.web.application import HEADERS
from dlq_handler.web.guard import LARGEST_BODY_BYTES, MOST_FIELDS, Guard
from dlq_handler.web.session import COOKIE
from dlq_handler.web.users import NamedToken, Tokens
from tests.support.builders import a_dead_letter
from tests.support.eventually import eventually
from tests.support.ui import OPERATE, READ, TOKENS, a_ui_world, asking, listening, put_on_record

RELEASE = "/api/v1/brake/release"


@pytest.fixture
async def on_loopback(ui_store: Database) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(await a_ui_world(ui_store)) as client:
        yield client


@pytest.fixture
async def behind_tokens(ui_store: Database) -> AsyncIterator[httpx.AsyncClient]:
    """Without a session."""
    async with asking(await a_ui_world(ui_store, tokens=TOKENS)) as client:
        yield client


async def log_in(client: httpx.AsyncClient, token: str, **more: Any) -> httpx.Response:
    return await client.post("/login", data={"token": token, **more})


async def a_release(client: httpx.AsyncClient) -> dict[str, object]:
    version = (await client.get("/api/v1/brake")).json()["version"]
    return {"comment": "it is real", "version": version}


async def csrf_of(client: httpx.AsyncClient) -> str:
    page = (await client.get("/audit")).text
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found
    return found[1]


async def test_every_answer_lets_a_browser_load_nothing_but_ours(on_loopback: httpx.AsyncClient) -> None:
    for path in ("/", "/api/v1/letters", "/static/app.css", "/nowhere", "/api/v1/nowhere", "/login"):
        answer = await on_loopback.get(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert len(answer.headers["X-Request-Id"]) == 12


async def test_a_name_that_is_not_ours_is_refused(on_loopback: httpx.AsyncClient) -> None:
    for path in ("/", "/api/v1/letters", "/static/app.css"):
        answer = await on_loopback.get(path, headers={"Host": "evil.example"})
        assert answer.status_code == 421
        assert "external_url" in answer.text


async def test_the_api_needs_a_token(behind_tokens: httpx.AsyncClient) -> None:
    for header in (None, "Bearer wrong-0123456789ab", "Basic YTpi", "Bearer", ""):
        for path in ("letters", "letters/1/body", "nowhere", "openapi.json", "events"):
            headers = {} if header is None else {"Authorization": header}
            answer = await behind_tokens.get(f"/api/v1/{path}", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["error"]["request_id"] == answer.headers["X-Request-Id"]
            assert "0123456789ab" not in answer.text


async def test_a_browser_is_led_to_the_login_and_back(behind_tokens: httpx.AsyncClient) -> None:
    led = await behind_tokens.get("/letters?search=7")
    assert (led.status_code, led.headers["Location"]) == (303, "/login?next=%2Fletters%3Fsearch%3D7")
    assert (await behind_tokens.get(led.headers["Location"])).status_code == 200

    wrong = await log_in(behind_tokens, "wrong", next="/letters?search=7")
    assert wrong.headers["Location"] == "/login?refused=1&next=%2Fletters%3Fsearch%3D7"
    assert COOKIE not in behind_tokens.cookies

    elsewhere = await log_in(behind_tokens, READ, next="//evil.example")
    assert elsewhere.headers["Location"] == "/"
    right = await log_in(behind_tokens, f" {READ}\n", next="/letters?search=7")
    assert (right.status_code, right.headers["Location"]) == (303, "/letters?search=7")
    assert (await behind_tokens.get("/letters?search=7")).status_code == 200
    assert (await behind_tokens.get("/api/v1/letters")).status_code == 200


async def test_a_link_from_elsewhere_is_followed_once_more_before_the_login(
    behind_tokens: httpx.AsyncClient,
) -> None:
    """A SameSite=Strict cookie does not come with it, although the user may have one."""
    fetched = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = await behind_tokens.get("/letters?search=a'\"><script>", headers=fetched)
    assert answer.status_code == 200
    assert 'content="0;url=/letters?search=a' in answer.text
    assert "<script>" not in answer.text
    away = await behind_tokens.get("//evil.example/", headers=fetched)
    assert "evil" not in away.text


async def test_who_may_only_read_cannot_steer_and_sees_no_raw_body(ui_store: Database) -> None:
    async with asking(await a_ui_world(ui_store, tokens=TOKENS), token=READ) as client:
        refused = await client.post(RELEASE, json=await a_release(client))
        assert refused.status_code == 403
        assert "grace has the role read" in refused.json()["error"]["detail"]
        assert (await client.post("/api/v1/letters/1/body")).status_code == 403
    assert await list_operations(ui_store) == []


async def test_who_may_operate_is_on_record_by_its_name(ui_store: Database) -> None:
    async with asking(await a_ui_world(ui_store, tokens=TOKENS), token=OPERATE) as client:
        assert (await client.post(RELEASE, json=await a_release(client))).status_code == 200
    [operation] = await list_operations(ui_store)
    assert (operation.username, operation.client, operation.comment) == ("ada", Client.API, "it is real")


async def test_on_loopback_every_user_operates_and_is_recorded_as_anonymous(
    ui_store: Database, on_loopback: httpx.AsyncClient
) -> None:
    assert (await on_loopback.post(RELEASE, json=await a_release(on_loopback))).status_code == 200
    [operation] = await list_operations(ui_store)
    assert operation.username == "anonymous@loopback"


async def test_what_another_page_sends_is_refused(ui_store: Database, on_loopback: httpx.AsyncClient) -> None:
    ask = await a_release(on_loopback)
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost:1",
        "https://localhost:8085.evil.example",
    ):
        for path in (RELEASE, "/brake/release", "/login", "/logout"):
            answer = await on_loopback.post(path, json=ask, headers={"Origin": origin})
            assert answer.status_code == 403
    assert await list_operations(ui_store) == []


async def test_without_a_bearer_the_api_takes_only_what_no_form_can_send(
    ui_store: Database, on_loopback: httpx.AsyncClient
) -> None:
    """A browser sends the others to any host without asking, and before it knows whether it may."""
    body = httpx.Request("POST", "http://x", json=await a_release(on_loopback)).content
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = await on_loopback.post(RELEASE, content=body, headers={"Content-Type": kind})
        assert answer.status_code == 415
    assert await list_operations(ui_store) == []


async def test_a_form_without_its_secret_does_nothing(
    ui_store: Database, behind_tokens: httpx.AsyncClient
) -> None:
    await log_in(behind_tokens, OPERATE)
    for csrf in (None, "", "made-up", "é"):
        form = {"comment": "it is real", **({} if csrf is None else {"csrf": csrf})}
        answer = await behind_tokens.post("/brake/release", data=form)
        assert answer.status_code == 403
        assert "Nothing was done" in answer.text
    assert await list_operations(ui_store) == []


async def test_a_form_of_another_session_does_nothing(
    ui_store: Database, behind_tokens: httpx.AsyncClient
) -> None:
    await log_in(behind_tokens, OPERATE)
    csrf = await csrf_of(behind_tokens)
    await log_in(behind_tokens, OPERATE)
    answer = await behind_tokens.post("/brake/release", data={"comment": "x", "csrf": csrf})
    assert answer.status_code == 403
    assert await list_operations(ui_store) == []


async def test_a_login_that_ended_does_nothing_and_says_so(behind_tokens: httpx.AsyncClient) -> None:
    answer = await behind_tokens.post("/brake/release", data={"comment": "x", "csrf": "y"})
    assert answer.status_code == 401
    assert "log in" in answer.text


async def test_a_body_is_bounded(on_loopback: httpx.AsyncClient) -> None:
    too_much = b" " * (LARGEST_BODY_BYTES + 1)
    answer = await on_loopback.post(RELEASE, content=too_much, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


async def test_before_a_token_is_shown_a_body_is_small(behind_tokens: httpx.AsyncClient) -> None:
    """At most 4 KiB, also of a body that does not state its length, and on any path that is open to all."""
    too_much = b"token=" + b"x" * (4097 - 6)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(4097):
            yield b"x"

    for path in ("/login", "/static/app.css"):
        for content in (too_much, chunks()):
            answer = await behind_tokens.post(path, content=content)
            assert (answer.status_code, answer.headers["Connection"]) == (413, "close")
    fits = b"token=" + b"x" * (4096 - 6)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await behind_tokens.post("/login", content=fits, headers=form)).status_code == 303


async def test_a_fault_of_ours_shows_an_id_and_nothing_else(ui_store: Database) -> None:
    async def fall_over(_execution_id: int) -> None:
        raise RuntimeError("amqp://guest:s3cret@host fell over")

    world = await a_ui_world(ui_store, explain=fall_over)
    async with asking(world) as client:
        for path in ("/api/v1/executions/7", "/executions/7"):
            with capture_logs() as lines:
                answer = await client.get(path)
            assert answer.status_code == 500
            assert answer.headers["X-Request-Id"] in answer.text
            assert "s3cret" not in answer.text
            assert "RuntimeError" not in answer.text
            [line] = [one for one in lines if one["event"] == "request.failed"]
            assert (line["request_id"], line["path"]) == (answer.headers["X-Request-Id"], path)


async def test_a_fault_in_the_guard_is_answered_as_any_other(
    behind_tokens: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall_over(_guard: Guard, _request: object) -> None:
        raise RuntimeError("s3cret")

    monkeypatch.setattr(Guard, "_refused", fall_over)
    for path in ("/", "/api/v1/letters"):
        with capture_logs() as lines:
            answer = await behind_tokens.get(path)
        assert answer.status_code == 500
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert answer.headers["X-Request-Id"] in answer.text
        assert "s3cret" not in answer.text
        assert [one["event"] for one in lines] == ["request.failed"]


@pytest.mark.parametrize(
    ("explanation", "sentence"),
    [("is database.url right?", "is database.url right? Nothing"), ("gone", "gone. Nothing")],
)
async def test_an_unreachable_server_is_answered_in_whole_sentences(
    ui_store: Database, explanation: str, sentence: str
) -> None:
    async def away(_execution_id: int) -> None:
        raise Unavailable("database", explanation)

    async with asking(await a_ui_world(ui_store, explain=away)) as client:
        answer = await client.get("/api/v1/executions/7")
    assert answer.status_code == 503
    assert sentence in answer.json()["error"]["detail"]


async def test_a_form_of_too_many_fields_is_not_understood(behind_tokens: httpx.AsyncClient) -> None:
    form = {f"field{number}": "x" for number in range(MOST_FIELDS + 1)}
    answer = await behind_tokens.post("/login", data=form)
    assert answer.status_code == 400
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["X-Request-Id"] in answer.text


async def test_a_cookie_of_thousands_of_digits_is_no_session(behind_tokens: httpx.AsyncClient) -> None:
    cookie = {"Cookie": f"{COOKIE}=ada|{'9' * 5000}|salt|signature"}
    assert (await behind_tokens.get("/api/v1/letters", headers=cookie)).status_code == 401
    assert (await behind_tokens.get("/", headers=cookie)).status_code == 303


ELSEWHERE = ("cross-site", "same-site")
"""The second: another port of this machine, where anything may run."""


@pytest.mark.parametrize("site", ELSEWHERE)
async def test_what_a_browser_marks_as_asked_by_another_site_is_refused(
    ui_store: Database, on_loopback: httpx.AsyncClient, site: str
) -> None:
    [letter_id] = await put_on_record(ui_store, a_dead_letter())
    for mode, target in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
        marks = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target}
        for path in ("/", "/letters", f"/api/v1/letters/{letter_id}", "/static/app.css", "/login"):
            assert (await on_loopback.get(path, headers=marks)).status_code == 403, path
    for path in (RELEASE, f"/api/v1/letters/{letter_id}/body", f"/letters/{letter_id}/body", "/login"):
        marks = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        answer = await on_loopback.post(path, json={}, headers=marks)
        assert (answer.status_code, "another site" in answer.text) == (403, True), path
    assert await list_operations(ui_store) == []


@pytest.mark.parametrize("site", ELSEWHERE)
async def test_a_link_from_another_site_leads_to_a_page(on_loopback: httpx.AsyncClient, site: str) -> None:
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in ("/", "/letters?search=7", "/login"):
        assert (await on_loopback.get(path, headers=link)).status_code == 200
    assert (await on_loopback.get("/api/v1/letters", headers=link)).status_code == 403


async def test_our_own_pages_and_typed_addresses_are_served(on_loopback: httpx.AsyncClient) -> None:
    for site in ("same-origin", "none"):
        for path in ("/", "/api/v1/letters", "/static/app.css"):
            assert (await on_loopback.get(path, headers={"Sec-Fetch-Site": site})).status_code == 200


async def test_reading_a_raw_body_is_no_get(on_loopback: httpx.AsyncClient) -> None:
    """A GET is what a browser sends by itself: for an image, a prefetch, a link."""
    assert (await on_loopback.get("/api/v1/letters/1/body")).status_code == 405


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Client", "True-Client-IP"]
)
async def test_what_a_proxy_forwards_does_not_come_from_this_machine(
    ui_store: Database, on_loopback: httpx.AsyncClient, header: str
) -> None:
    ask = await a_release(on_loopback)
    for path in ("/", "/api/v1/letters"):
        answer = await on_loopback.get(path, headers={header: "203.0.113.7"})
        assert (answer.status_code, "dlq_handler.ui.tokens" in answer.text) == (403, True)
    assert (await on_loopback.post(RELEASE, json=ask, headers={header: "127.0.0.1"})).status_code == 403
    assert await list_operations(ui_store) == []


async def status_of_http_1_0(url: str, *headers: str) -> int:
    """As the default `proxy_pass` of nginx sends it: HTTP/1.0, the listener's own host name, no other header."""
    _, _, address = url.rpartition("/")
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = ("GET /api/v1/brake HTTP/1.0", f"Host: {address}", "Connection: close", *headers, "", "")
    writer.write("\r\n".join(lines).encode())
    try:
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()


async def test_http_1_0_counts_as_forwarded(ui_store: Database) -> None:
    async with listening(await a_ui_world(ui_store)) as url:
        assert await status_of_http_1_0(url) == 403
    async with listening(await a_ui_world(ui_store, tokens=TOKENS)) as url:
        assert await status_of_http_1_0(url, f"Authorization: Bearer {READ}") == 200


async def test_with_a_token_a_proxy_may_forward(behind_tokens: httpx.AsyncClient) -> None:
    headers = {"Authorization": f"Bearer {READ}", "X-Forwarded-For": "203.0.113.7", "Client": "1.1 proxy"}
    assert (await behind_tokens.get("/api/v1/letters", headers=headers)).status_code == 200


async def test_a_cookie_is_worth_nothing_after_the_logout(behind_tokens: httpx.AsyncClient) -> None:
    await log_in(behind_tokens, OPERATE)
    cookie = {"Cookie": f"{COOKIE}={behind_tokens.cookies[COOKIE]}"}
    csrf = await csrf_of(behind_tokens)
    behind_tokens.cookies.clear()
    assert (await behind_tokens.get("/api/v1/letters", headers=cookie)).status_code == 200
    assert (await behind_tokens.post("/logout", data={"csrf": csrf}, headers=cookie)).status_code == 303
    assert (await behind_tokens.get("/api/v1/letters", headers=cookie)).status_code == 401


async def test_guesses_are_limited_before_they_are_compared(
    ui_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, from one address: few are compared. Other addresses and sessions are not affected."""
    compared = 0
    owner_of = Tokens.owner_of

    def counted(tokens: Tokens, token: str) -> NamedToken | None:
        nonlocal compared
        compared += 1
        return owner_of(tokens, token)

    monkeypatch.setattr(Tokens, "owner_of", counted)
    app = ui_app(Site(world=await a_ui_world(ui_store, tokens=TOKENS)))

    def at(address: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=app, client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost:8085")

    wrong, right = ({"Authorization": f"Bearer {token}"} for token in ("wrong-0123456789ab", READ))
    async with at("203.0.113.7") as attacker, at("203.0.113.7") as session, at("198.51.100.1") as other:
        await log_in(session, READ)

        async def guess(number: int) -> httpx.Response:
            if number % 2:
                return await log_in(attacker, f"wrong-{number}")
            return await attacker.get("/api/v1/letters", headers=wrong)

        compared = 0
        with capture_logs() as lines:
            async with asyncio.TaskGroup() as group:
                guesses = [group.create_task(guess(number)) for number in range(200)]
        assert compared < 50
        answers = [one.result() for one in guesses]
        statuses = Counter(one.status_code for one in answers)
        assert statuses[401] + statuses[303] == compared
        assert statuses[429] == 200 - compared
        refused = next(one for one in answers if one.status_code == 429)
        assert int(refused.headers["Retry-After"]) > 0
        assert len([line for line in lines if line["event"] == "token.refused"]) < 20
        assert (await session.get("/api/v1/letters")).status_code == 200
        assert (await other.get("/api/v1/letters", headers=right)).status_code == 200
        assert (await log_in(other, READ)).headers["Location"] == "/"


async def test_a_logout_is_known_to_other_replicas(ui_store: Database) -> None:
    async with (
        asking(await a_ui_world(ui_store, tokens=TOKENS)) as one,
        asking(await a_ui_world(ui_store, tokens=TOKENS)) as other,
    ):
        await log_in(one, OPERATE)
        cookie = {"Cookie": f"{COOKIE}={one.cookies[COOKIE]}"}
        assert (await other.get("/api/v1/letters", headers=cookie)).status_code == 200
        await one.post("/logout", data={"csrf": await csrf_of(one)})

        async def is_refused() -> bool:
            return (await other.get("/api/v1/letters", headers=cookie)).status_code == 401

        await eventually(is_refused)


async def test_a_logout_works_while_the_database_is_away(
    behind_tokens: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("database", "gone")

    await log_in(behind_tokens, OPERATE)
    cookie = {"Cookie": f"{COOKIE}={behind_tokens.cookies[COOKIE]}"}
    csrf = await csrf_of(behind_tokens)
    monkeypatch.setattr("dlq_handler.web.logouts_sql.record", away)
    monkeypatch.setattr("dlq_handler.web.logouts_sql.recent", away)
    with capture_logs() as lines:
        assert (await behind_tokens.post("/logout", data={"csrf": csrf})).status_code == 303
    assert [line["event"] for line in lines] == ["session.end_not_recorded"]
    behind_tokens.cookies.clear()
    assert (await behind_tokens.get("/api/v1/diagnosis", headers=cookie)).status_code == 401
