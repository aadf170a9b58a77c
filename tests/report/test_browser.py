"""The page in a real browser: figures visible on phone and screen, no errors, no requests."""

import json
import re
import shutil
import subprocess

import _stores
import pytest

from trainonce import report
from trainonce.report.drawing import render
from trainonce.report.page import _style, comparison

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=3000",
    "--enable-logging=stderr",
    "--v=0",
]

# A window cannot be narrower than 500 pixels, a frame can: the page is in frames and posts its measures to the host.
WIDTHS = (400, 1600)
PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const boxes = [...document.querySelectorAll("figure")].map((figure) => {
    const shown = figure.querySelector(".still svg"), box = shown.getBoundingClientRect();
    const texts = [...shown.parentElement.querySelectorAll("text")].filter((t) => t.textContent.trim());
    const heights = texts.map((t) => t.getBoundingClientRect().height);
    const ink = texts.length ? getComputedStyle(texts[0]).fill : "";
    return {id: figure.id, width: box.width, height: box.height, text: Math.min(...heights), ink};
  });
  parent.postMessage({boxes, width: innerWidth, scroll: document.documentElement.scrollWidth,
    body: getComputedStyle(document.body).color}, "*");
}, 500));</script>"""
FRAME = '<iframe src="probed.html" style="border:0;width:{}px;height:1200px"></iframe>'
HOST = f"""<body style="margin:0">{"".join(map(FRAME.format, WIDTHS))}
<script>addEventListener("message", (event) => {{
  const data = document.createElement("pre"); data.className = "measured";
  data.textContent = JSON.stringify(event.data);
  document.body.append(data); }});</script></body>"""


def browse(folder, page, width, *more):
    """The page's final state, the errors in its console, and the addresses it asked for."""
    net = folder / "net.json"
    command = [CHROMIUM, *FLAGS, *more, f"--user-data-dir={folder / 'home'}", f"--window-size={width},1200"]
    command += [f"--log-net-log={net}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    lines = [line for line in net.read_text(encoding="utf-8", errors="replace").splitlines() if '"initiator"' in line]
    asked = [found[1] for line in lines if (found := re.search(r'"url":"(https?:[^"]*)"', line))]
    own = [found[1] for line in lines if (found := re.search(r'"not an origin".*"url":"(https?:[^"]*)"', line))]
    return done.stdout, console, sorted(set(asked) - set(own))  # the browser asks for things of its own, to no avail


def measure(folder, text, *more):
    """The page's measures at each width, its errors, and the addresses it asked for."""
    text = text.replace("style-src", "script-src 'unsafe-inline'; style-src", 1)  # for the probe
    (folder / "probed.html").write_text(text.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    (folder / "host.html").write_text(HOST, encoding="utf-8")
    state, *others = browse(folder, folder / "host.html", 2000, *more)
    measured = [json.loads(found) for found in re.findall(r'<pre class="measured">(.*?)</pre>', state, re.DOTALL)]
    assert sorted(one["width"] for one in measured) == list(WIDTHS), state[-2000:]
    return measured, *others


def test_errors_and_requests_would_be_noticed(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://example.org/x.png"><script>nowhere()</script>', encoding="utf-8")
    _, console, asked = browse(tmp_path, page, 800)
    assert any("nowhere is not defined" in line for line in console)
    assert asked == ["http://example.org/x.png"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    plans = [p for p in _stores.usual(("ce", "consistency", "rec")) if p["name"] in ("yoto", "grid", "sweep-init")]
    return _stores.build(tmp_path_factory.mktemp("study"), terms=("ce", "consistency", "rec"), plans=plans)


@pytest.fixture(scope="module")
def page_text(study):
    """The page; without the PNG files, which it does not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "png", lambda figure: b"")
        return report.write(study).read_text(encoding="utf-8")


def test_the_page_on_a_phone_and_on_a_screen(study, page_text, tmp_path):
    names = json.loads((study / "summary.json").read_text(encoding="utf-8"))["figures"]
    measured, console, asked = measure(tmp_path, page_text)
    assert console == []
    assert asked == []
    for page in measured:
        assert page["scroll"] <= page["width"]
        assert [box["id"] for box in page["boxes"]] == names
        for box in page["boxes"]:
            assert 300 < box["width"] <= page["width"], box
            assert box["height"] > 100, box
            assert box["text"] > 7.5, box  # pixels, with all of a letter's height


def test_figures_are_readable_in_the_dark(page_text, tmp_path):
    measured, console, _ = measure(tmp_path, page_text, "--blink-settings=preferredColorScheme=0")
    assert console == []
    for page in measured:
        assert min(int(n) for n in re.findall(r"\d+", page["body"])[:3]) > 200
        assert {box["ink"] for box in page["boxes"]} == {page["body"]}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_of_the_page_is_not_empty(page_text, tmp_path, width):
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    page.write_text(page_text, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'home'}", f"--window-size={width},2500"]
    subprocess.run([*command, f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=60, check=True)
    size = int.from_bytes(picture.read_bytes()[16:20]), int.from_bytes(picture.read_bytes()[20:24])
    assert size == (width, 2500)
    assert picture.stat().st_size > 50_000


SIGHT = """<script>addEventListener("load", () => { const data = document.createElement("pre");
  data.className = "measured"; data.textContent = JSON.stringify([...document.querySelectorAll(".scroll")].map((box) =>
    ({inside: box.clientWidth, whole: box.scrollWidth, cells: box.querySelectorAll("td.ratios").length})));
  document.body.append(data); });</script>"""


def test_the_ratios_of_the_table_are_in_sight(hard, tmp_path):
    names = ["twelve terms", "five terms", "other seeds", "outlier of a rule", "outlier of a grid point"]
    tables = "".join(comparison(hard(name)) for name in names)
    page = tmp_path / "tables.html"
    page.write_text(f'<meta charset="utf-8"><style>{_style()}</style><main>{tables}</main>{SIGHT}', encoding="utf-8")
    state, console, _ = browse(tmp_path, page, 1200)
    assert console == []
    (found,) = re.findall(r'<pre class="measured">(.*?)</pre>', state, re.DOTALL)
    for name, box in zip(names, json.loads(found), strict=True):
        assert box["cells"] > 3, name
        assert box["whole"] <= box["inside"], name
