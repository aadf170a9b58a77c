"""What tests read from a page: its text by class, its addresses, ids and scripts."""

import html
import html.parser

import _stores

TERMS = ("ce", "consistency")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """What a browser would find: the text by class, all addresses, all ids, and tags that do not fit."""

    def __init__(self, text):
        super().__init__()
        self.open, self.pieces, self.addresses, self.ids, self.scripts = [], {}, [], [], []
        self.tags = []
        self.feed(text)
        self.close()
        self.text = {name: "".join(pieces) for name, pieces in self.pieces.items()}

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href", "action", "data", "srcset")]
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append((tag, found.get("class", "")))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, name in self.open:
            self.pieces.setdefault(name, []).append(data)
        if self.open and self.open[-1][0] == "script":
            self.scripts.append(data)


def html_text(text):
    return html.escape(text.replace("+-", "±"))


def plans(*names):
    known = {p["name"]: p for p in _stores.usual(TERMS)}
    return [known[name] for name in names]


def snapshot(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
