"""Pictures of trials in the page: the right trials, as they are, and never a reason for a report to fail."""

import base64
import dataclasses
import html.parser
import io
import math
import os
import zlib

import _stores
import pytest
from _stores import yoto

from trainonce import report
from trainonce.report import pictures
from trainonce.report.drawing import plans, render
from trainonce.study import Summary
from trainonce.study.rules import fixed
from trainonce.study.store import Store


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(render, "png", lambda figure: b"")  # the figures' files are not looked at here


def png(text="a", width=3, height=2):
    """A small real PNG, another for each text."""

    def chunk(kind, content):
        return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)

    head = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 2, 0, 0, 0])
    rows = (b"\0" + bytes(3 * width)) * height
    parts = [(b"IHDR", head), (b"tEXt", f"Comment\0{text}".encode()), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return pictures.SIGNATURE + b"".join(chunk(*part) for part in parts)


class Page(html.parser.HTMLParser):
    """The pictures of a page, in order: their attributes; and the text of the section."""

    def __init__(self, text):
        super().__init__()
        self.images, self.text, self._inside = [], "", False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "section":
            self._inside = found["id"] == "part-pictures"
        if tag == "img":
            assert self._inside
            self.images.append(found)

    def handle_endtag(self, tag):
        self._inside &= tag != "section"

    def handle_data(self, data):
        self.text += data if self._inside else ""

    @property
    def contents(self):
        return [base64.b64decode(i["src"].removeprefix("data:image/png;base64,")) for i in self.images]


def study(path, **options):
    asked = [p for p in _stores.usual(("ce", "consistency")) if p["name"] in ("yoto", "grid", "uniform")]
    return _stores.build(path, **({"plans": asked, "histories": False} | options))


def trials(path):
    """The folders of the trials that may be shown, by plan and seed; made if they are not there."""
    summary, store, found = Summary.read(path), Store(path), {}
    for name, row in (("rule", plans.rules(summary)[0]), ("reference", summary.reference)):
        for seed, record in row.chosen.records.items():
            found[name, seed] = store.folder(record.key) / pictures.FOLDER
            found[name, seed].mkdir(parents=True)
    return found


def shown(path):
    """The section alone: the figures of a page take their time."""
    inside = pictures.section(Summary.read(path), Store(path))
    return Page(f'<section id="part-pictures">{inside}</section>')


def test_without_pictures_there_is_no_section(tmp_path):
    path = study(tmp_path)
    assert pictures.section(Summary.read(path), Store(path)) == ""
    trials(path)  # empty folders
    assert "Pictures" not in report.write(path).read_text(encoding="utf-8")


def test_both_trials_of_one_seed_are_shown_name_by_name(tmp_path):
    path = study(tmp_path)
    for (plan, seed), folder in trials(path).items():
        for name in ("b", "a"):
            (folder / f"{name}.png").write_bytes(png(f"{plan} {seed} {name}"))
        (folder / "notes.txt").write_text("not a picture")
        (folder / "a.png.part17").write_bytes(b"half")
    found = Page(report.write(path).read_text(encoding="utf-8"))
    expected = [png(f"{plan} 0 {name}") for name in "ab" for plan in ("rule", "reference")]
    assert found.contents == expected
    assert all(i["loading"] == "lazy" and (i["width"], i["height"]) == ("3", "2") for i in found.images)
    summary = Summary.read(path)
    for image, row in zip(found.images, [plans.rules(summary)[0], summary.reference] * 2, strict=True):
        assert row.plan in image["alt"]
        assert row.chosen.label in image["alt"]
        assert "seed 0: test accuracy" in image["alt"]
        value = float(image["alt"].split()[-2])
        assert value == pytest.approx(row.chosen.report[0], abs=0.06)
        assert image["alt"] in found.text


def test_it_stands_between_the_losses_and_the_sensitivity(tmp_path):
    asked = [p for p in _stores.usual(("ce", "consistency")) if p["name"] in ("yoto", "grid", "sweep-init")]
    path = study(tmp_path, plans=asked, histories=True, seeds=(0,))
    (trials(path)["rule", 0] / "a.png").write_bytes(png())
    text = report.write(path).read_text(encoding="utf-8")
    places = [text.index(f'id="part-{name}"') for name in ("losses", "pictures", "sensitivity")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("rule", "reference", "expected"),
    [
        ((0, 1, 2), (1, 2), [("rule", 1), ("reference", 1)]),
        ((2,), (0, 2), [("rule", 2), ("reference", 2)]),
        ((2,), (0, 1), [("rule", 2), ("reference", 0)]),
        ((1, 2), (), [("rule", 1)]),
        ((), (1,), [("reference", 1)]),
    ],
)
def test_the_lowest_seed_that_both_have_or_else_each(tmp_path, rule, reference, expected):
    path = study(tmp_path)
    folders = trials(path)
    for plan, seeds in (("rule", rule), ("reference", reference)):
        for seed in seeds:
            (folders[plan, seed] / "a.png").write_bytes(png(f"{plan} {seed}"))
    assert shown(path).contents == [png(f"{plan} {seed}") for plan, seed in expected]


def test_a_seed_without_a_usable_picture_gives_way_to_another(tmp_path):
    path = study(tmp_path)
    folders = trials(path)
    for (plan, seed), folder in folders.items():
        (folder / "a.png").write_bytes(png(f"{plan} {seed}"))
    (folders["reference", 0] / "a.png").write_bytes(b"")
    assert shown(path).contents == [png("rule 1"), png("reference 1")]


def test_the_same_study_gives_the_same_bytes(tmp_path):
    path = study(tmp_path)
    folder = trials(path)["rule", 0]
    for name in "dbca":
        (folder / f"{name}.png").write_bytes(png(name))
    first = report.write(path).read_bytes()
    assert report.write(path).read_bytes() == first


UNUSABLE = {
    "large": (png("x" * pictures.LIMIT), "more than 2 MB"),
    "huge": (png(width=20_000, height=1)[:16] + png(width=20_000, height=20_000)[16:33] + png()[33:], "20000 x 20000"),
    "empty": (b"", "not a PNG file"),
    "gif": (b"GIF89a and so on", "not a PNG file"),
    "cut": (png()[:-20], "damaged"),
    "no end": (png()[:-12], "damaged"),
    "flipped": (png().replace(b"Comment", b"Camment"), "damaged"),
    "only a signature": (pictures.SIGNATURE, "damaged"),
    "no pixels": (png(width=0), "damaged"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_cannot_be_shown_is_left_out_and_named(tmp_path, case):
    content, reason = UNUSABLE[case]
    path = study(tmp_path, seeds=(0,))
    folder = trials(path)["rule", 0]
    (folder / "bad.png").write_bytes(content)
    found = shown(path)
    assert found.images == []
    assert "yoto, seed 0: bad is left out" in found.text
    assert reason in found.text
    (folder / "good.png").write_bytes(png())
    found = shown(path)
    assert found.contents == [png()]
    assert "bad is left out" in found.text


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    path = study(tmp_path / "study", seeds=(0,))
    folders = trials(path)
    secret = tmp_path / "secret.png"
    secret.write_bytes(png("secret"))
    inside = folders["rule", 0]
    (inside / "real.png").write_bytes(png("real"))
    (inside / "out.png").symlink_to(secret)
    (inside / "within.png").symlink_to(inside / "real.png")
    (inside / "circle.png").symlink_to("circle.png")
    folders["reference", 0].rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.png").write_bytes(png("secret"))
    folders["reference", 0].symlink_to(tmp_path / "elsewhere")
    found = shown(path)
    assert found.contents == [png("real"), png("real")]
    assert "out is left out, it leads out of the trial's folder" in found.text
    assert "circle is left out, it cannot be read" in found.text
    assert "a is left out, it leads out of the trial's folder" in found.text


def test_things_that_are_no_files_are_not_waited_for(tmp_path):
    path = study(tmp_path, seeds=(0,))
    folder = trials(path)["rule", 0]
    os.mkfifo(folder / "pipe.png")
    (folder / "folder.png").mkdir()
    found = shown(path)
    assert "pipe is left out, it is not a file" in found.text
    assert "folder is left out, it is not a file" in found.text


def test_at_most_four_names_and_the_rest_is_counted(tmp_path):
    path = study(tmp_path, seeds=(0,))
    folder = trials(path)["rule", 0]
    for i in range(6):
        (folder / f"{i}.png").write_bytes(png(str(i)))
    found = shown(path)
    assert found.contents == [png(str(i)) for i in range(4)]
    assert "yoto, seed 0: 2 more not shown." in found.text


def test_names_are_text(tmp_path):
    path = study(tmp_path, seeds=(0,))
    folder = trials(path)["rule", 0]
    names = ['<b>"x"', "Straße", "odd \udcff"]
    for name in names:
        (folder / f"{name}.png").write_bytes(png(name.encode("utf-8", "replace").decode()))
    found = shown(path)
    assert [i["alt"].split(": ")[0] for i in found.images] == ['<b>"x"', "Straße", "odd ?"]


def diverge(record):
    bad = dict.fromkeys(record.metrics, math.nan)
    return dataclasses.replace(record, status="diverged", metrics=bad) if record.rule.trains else record


@pytest.mark.parametrize("case", ["no grid", "rule diverged", "nothing done"])
def test_odd_studies(tmp_path, case):
    asked = [_stores.plan("yoto", "rule", [yoto()])]
    grid = _stores.plan("grid", "set", [fixed((1.0, 1.0))])
    options = {
        "no grid": {"plans": asked},
        "rule diverged": {"plans": [*asked, grid], "change": diverge},
        "nothing done": {"plans": [*asked, grid], "change": lambda record: None},
    }[case]
    path = study(tmp_path, **options)
    store = Store(path)
    for record in store.read_all():
        folder = store.folder(record.key) / pictures.FOLDER
        folder.mkdir(parents=True)
        (folder / "a.png").write_bytes(png("yoto" if record.rule.trains else "grid"))
    expected = {"no grid": ["yoto"], "rule diverged": ["grid"], "nothing done": []}[case]
    assert shown(path).contents == [png(kind) for kind in expected]


def test_real_files_of_matplotlib_are_whole():
    from matplotlib.figure import Figure

    target = io.BytesIO()
    Figure(figsize=(2, 1)).savefig(target, format="png", dpi=50)
    assert pictures.png_size(target.getvalue()) == (100, 50)
