"""The page at "/" in real headless Chromium (selenium)."""
import pathlib
import time

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service

from server import Server, call, in_threads, wait_idle, wait_until
from sse import open_stream

CLIENT = ["/usr/bin/chromium", "--version"]
LONG = "Write a story about a frog."


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--disable-background-networking", "--window-size=1280,860"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture
def picture(request, browser):
    """Saves a screenshot when a folder was given."""
    folder = request.config.getoption("--screenshots")

    def save(name):
        if folder:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            browser.save_screenshot(str(pathlib.Path(folder) / f"{name}.png"))
    return save


@pytest.fixture(scope="module")
def slow(program):
    """A server that takes long enough for an answer to be stopped."""
    with Server(program, "--kernels", "scalar", "--threads", 1) as server:
        yield server.url


def at(browser, name):
    return browser.find_element(By.ID, name)


def complaints(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def scheme(browser, name):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                            {"features": [{"name": "prefers-color-scheme", "value": name}]})


def width(browser, pixels, height=860):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": pixels < 600})


def open_page(browser, url):
    width(browser, 1280)
    scheme(browser, "light")
    browser.get(url + "/")
    wait_until("the page is connected", lambda: at(browser, "link-text").text == "connected")
    browser.get_log("browser")


def ask(browser, text):
    at(browser, "input").send_keys(text, Keys.ENTER)


def answers(browser):
    return browser.find_elements(By.CSS_SELECTOR, ".turn.assistant")


def text_of(browser):
    return browser.execute_script("return [...document.querySelectorAll('.turn.assistant .text')].pop().textContent")


def answered(browser):
    return answers(browser) and "busy" not in answers(browser)[-1].get_attribute("class")


def test_a_chat_streams_and_its_text_grows(browser, url, picture):
    open_page(browser, url)
    # Sampled from inside the page at every change, as a round trip of the driver is slower than a short answer.
    browser.execute_script("""
      window.seen = [];
      new MutationObserver(() => {
        const texts = document.querySelectorAll('.turn.assistant .text');
        if (texts.length) window.seen.push([texts[texts.length - 1].textContent.length, performance.now()]);
      }).observe(document.getElementById('log'), {subtree: true, childList: true, characterData: true});""")
    ask(browser, LONG)
    wait_until("text comes", lambda: answers(browser) and text_of(browser))
    picture("chat-streaming")
    wait_until("the answer is whole", lambda: answered(browser))
    seen = browser.execute_script("return window.seen")
    lengths = [length for length, _ in seen]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 10, "the text came in one piece"
    moments = {moment for length, moment in seen if length}
    assert max(moments) - min(moments) > 20, "all the text came at one moment"
    whole = text_of(browser)
    assert "Once upon a time" in whole, whole
    meta = answers(browser)[-1].find_element(By.CLASS_NAME, "meta").text
    assert "tokens" in meta and "first after" in meta, meta
    assert at(browser, "log").get_attribute("aria-busy") == "false"
    assert complaints(browser) == []
    picture("chat")
    scheme(browser, "dark")
    picture("chat-dark")


def test_the_second_turn_knows_the_first(browser, url):
    open_page(browser, url)
    ask(browser, "Remember: token=8553.")
    wait_until("the first answer is whole", lambda: answered(browser))
    ask(browser, "What is token?")
    wait_until("the second answer is whole", lambda: len(answers(browser)) == 2 and answered(browser))
    assert "8553" in text_of(browser)


def numbers(browser, panel):
    """{name: number shown} of a panel whose rows are "used of total"."""
    return browser.execute_script("""
      const found = {};
      for (const name of document.querySelectorAll(`#${arguments[0]} dt`))
        found[name.textContent] = parseInt(name.nextElementSibling.textContent, 10);
      return found;""", panel)


def peaks(browser, line):
    """How many different heights a sparkline has."""
    return browser.execute_script("""
      const edge = document.querySelector(`#${arguments[0]} .edge`).getAttribute('points');
      return new Set(edge.split(' ').map((point) => point.split(',')[1])).size;""", line)


def test_the_panels_follow_the_server(browser, slow, model, picture):
    open_page(browser, slow)
    wait_until("the panels are filled", lambda: numbers(browser, "queue"))
    assert numbers(browser, "queue")["running"] == 0 and numbers(browser, "pools")["KV blocks"] == 0
    assert at(browser, "device").text and at(browser, "actors").text
    body = {"model": model, "messages": [{"role": "user", "content": LONG}], "max_completion_tokens": 1500,
            "ignore_eos": True, "stream": True}
    others = []

    def begin(_):
        others.append(open_stream(slow, "/v1/chat/completions", body))
    try:
        in_threads(5, begin)
        ask(browser, LONG)
        wait_until("five others and this one run", lambda: numbers(browser, "queue")["running"] == 6)
        wait_until("their pages and blocks are used", lambda: numbers(browser, "pools")["state pages"] >= 6 and
                   numbers(browser, "pools")["KV blocks"] >= 6)
        wait_until("the device is busy", lambda: "busy" in at(browser, "actors").text)
        wait_until("the sparklines have peaks", lambda: peaks(browser, "rate-line") > 3 and peaks(browser, "rows-line") > 1)
        wait_until("the answer is whole", lambda: answered(browser), 60)
        ask(browser, "What is 2 plus 6?")
        wait_until("the answer is whole", lambda: len(answers(browser)) == 2 and answered(browser), 60)
        time.sleep(1.2)  # one more poll
        picture("page")
    finally:
        for connection, response in others:
            response.close()
            connection.close()
    wait_until("nothing runs any more", lambda: numbers(browser, "queue")["running"] == 0 and
               numbers(browser, "pools")["KV blocks"] == 0)
    assert complaints(browser) == []


def test_escape_stops_an_answer_and_the_server_stops_too(browser, slow):
    open_page(browser, slow)
    at(browser, "settings").find_element(By.TAG_NAME, "summary").click()
    at(browser, "max-tokens").send_keys("1500")
    ask(browser, LONG)
    wait_until("text comes", lambda: answers(browser) and (text_of(browser) or answered(browser)))
    at(browser, "input").send_keys(Keys.ESCAPE)
    wait_until("the answer has ended", lambda: answered(browser), 5)
    assert answers(browser)[-1].find_element(By.CLASS_NAME, "meta").text == "stopped"
    at_stop = text_of(browser)
    assert at(browser, "send").is_displayed() and not at(browser, "stop").is_displayed()
    wait_idle(slow, 5)
    assert text_of(browser) == at_stop
    at(browser, "clear").click()
    assert answers(browser) == []
    assert browser.switch_to.active_element.get_attribute("id") == "input"
    browser.execute_script("sessionStorage.clear()")


def test_clearing_during_an_answer_leaves_an_empty_chat(browser, slow):
    open_page(browser, slow)
    ask(browser, LONG)
    wait_until("an answer begins", lambda: answers(browser))
    at(browser, "clear").click()
    wait_until("the answer has ended", lambda: at(browser, "send").is_displayed(), 5)
    assert answers(browser) == [] and at(browser, "input").get_attribute("value") == ""
    ask(browser, "What is 2 plus 6?")
    wait_until("the answer is whole", lambda: answered(browser))
    assert text_of(browser) == "2 + 6 = 8"


def test_keys(browser, url):
    open_page(browser, url)
    assert browser.switch_to.active_element.get_attribute("id") == "input"
    at(browser, "input").send_keys("one", Keys.SHIFT + Keys.ENTER + Keys.NULL, "two")
    assert at(browser, "input").get_attribute("value") == "one\ntwo"
    assert answers(browser) == []
    order = []
    browser.execute_script("document.getElementById('log').focus()")
    for _ in range(4):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        order.append(active.get_attribute("id") or active.tag_name)
        outline = active.value_of_css_property("outline-style")
        assert outline == "solid", f"no visible focus on {order[-1]}: {outline}"
    assert order == ["summary", "input", "send", "clear"]
    at(browser, "input").clear()
    ask(browser, "   ")
    assert answers(browser) == [] and not browser.find_elements(By.CSS_SELECTOR, ".turn")


def test_nothing_is_markup(browser, url):
    open_page(browser, url)
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    ask(browser, attack)
    wait_until("the answer has ended", lambda: answered(browser))
    turn = browser.find_element(By.CSS_SELECTOR, ".turn.user .text")
    assert turn.text == attack
    assert browser.find_elements(By.CSS_SELECTOR, "#log img, #log script, #log b") == []
    # The model's text and the server's errors are replaced on their way, which no real model would do on demand.
    browser.execute_script("""
      const real = window.fetch;
      window.fetch = async (path, options) => {
        if (!String(path).includes('chat')) return real(path, options);
        window.fetch = real;
        const event = {choices: [{index: 0, delta: {content: arguments_text}, finish_reason: 'stop'}]};
        return new Response('data: ' + JSON.stringify(event) + '\\n\\ndata: [DONE]\\n\\n');
      };
      const arguments_text = arguments[0];""", attack)
    ask(browser, "hello")
    wait_until("the answer has ended", lambda: len(answers(browser)) == 2 and answered(browser))
    assert text_of(browser) == attack
    browser.execute_script("""
      const real = window.fetch;
      const text = arguments[0];
      window.fetch = async (path, options) => {
        if (!String(path).includes('chat')) return real(path, options);
        window.fetch = real;
        return new Response(JSON.stringify({error: {message: text}}), {status: 400});
      };""", attack)
    ask(browser, "hello")
    wait_until("the answer has ended", lambda: len(answers(browser)) == 3 and answered(browser))
    assert answers(browser)[-1].find_element(By.CLASS_NAME, "meta").text == attack
    assert browser.find_elements(By.CSS_SELECTOR, "#log img, #log script, #log b") == []
    assert browser.title == "Troupe"
    assert complaints(browser) == []


def test_an_error_is_shown_and_the_question_comes_back(browser, url):
    open_page(browser, url)
    browser.execute_script("document.getElementById('temperature').value = '7'")
    ask(browser, "What is 2 plus 6?")
    wait_until("the answer has ended", lambda: answered(browser))
    assert "failed" in answers(browser)[-1].get_attribute("class")
    assert "temperature" in answers(browser)[-1].find_element(By.CLASS_NAME, "meta").text
    assert at(browser, "input").get_attribute("value") == "What is 2 plus 6?"


@pytest.mark.parametrize("pixels", [400, 320])
def test_a_small_screen_has_one_column(browser, url, picture, pixels):
    open_page(browser, url)
    width(browser, pixels, 780)
    ask(browser, LONG)
    wait_until("the answer is whole", lambda: answered(browser))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= pixels, "it scrolls sideways"
    chat, state = at(browser, "chat").rect, at(browser, "state").rect
    assert chat["x"] == state["x"] and state["y"] >= chat["y"] + chat["height"] - 1
    browser.execute_script("window.scrollTo(0, 0)")
    box = at(browser, "input").rect
    assert box["width"] > pixels * 0.8 and box["y"] + box["height"] <= 780, box
    picture(f"narrow-{pixels}")
    if pixels == 400:
        browser.execute_script("document.getElementById('to-state').click()")
        time.sleep(0.3)
        picture("narrow-state")


def test_the_policy_allows_only_the_servers_own_files(url):
    fields = call(url, "GET", "/").fields
    policy = fields["content-security-policy"]
    assert "default-src 'self'" in policy or "default-src 'none'" in policy
    assert "unsafe" not in policy and "*" not in policy, policy
    text = call(url, "GET", "/").body.decode() + call(url, "GET", "/app.js").body.decode()
    assert "style=" not in text and "innerHTML" not in text


def test_a_killed_server_is_shown_and_comes_back(browser, program, picture):
    first = Server(program).start()
    try:
        open_page(browser, first.url)
        at(browser, "settings").find_element(By.TAG_NAME, "summary").click()
        at(browser, "max-tokens").send_keys("1500")
        at(browser, "temperature").send_keys("2")
        ask(browser, LONG)
        wait_until("text comes", lambda: answers(browser) and (text_of(browser) or answered(browser)))
    finally:
        first.kill()
    banner = at(browser, "banner")
    wait_until("the banner says that the server is away", lambda: banner.is_displayed(), 10)
    assert banner.text.startswith("Server not reachable since "), banner.text
    wait_until("the answer has ended", lambda: answered(browser), 10)
    assert not at(browser, "input").is_enabled() and not at(browser, "send").is_enabled()
    assert at(browser, "link-text").text == "not reachable"
    picture("server-away")
    port = int(first.url.rpartition(":")[2])
    with Server(program, port=port):
        wait_until("the page is connected again", lambda: not banner.is_displayed(), 15)
        at(browser, "clear").click()
        browser.execute_script("document.getElementById('temperature').value = ''")
        ask(browser, "What is 2 plus 6?")
        wait_until("the answer is whole", lambda: answered(browser))
        assert text_of(browser) == "2 + 6 = 8"
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")  # its connections would hold the server's end up


def test_a_key_is_asked_for_and_kept(browser, program, picture, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-right\n")
    with Server(program, "--api-key-file", keys) as locked:
        width(browser, 1280)
        browser.get(locked.url + "/")
        wait_until("the key is asked for", lambda: at(browser, "key-form").is_displayed())
        assert not at(browser, "input").is_enabled()
        picture("key")
        at(browser, "key").send_keys("sk-wrong", Keys.ENTER)
        wait_until("the wrong key is refused", lambda: "refused" in at(browser, "key-note").text)
        at(browser, "key").send_keys("sk-right", Keys.ENTER)
        wait_until("the page is connected", lambda: at(browser, "link-text").text == "connected")
        assert not at(browser, "key-form").is_displayed()
        ask(browser, "What is 2 plus 6?")
        wait_until("the answer is whole", lambda: answered(browser))
        assert text_of(browser) == "2 + 6 = 8"
        browser.refresh()
        wait_until("the page is connected", lambda: at(browser, "link-text").text == "connected")
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")
