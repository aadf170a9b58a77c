"""The page's style sheet: light and dark, phone, screen and print; it fetches nothing."""

CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1a1c20; --quiet: #5a606a; --line: #d9dce1; --tint: #f4f5f7;
  --rule: #b84f00; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #15171a; --ink: #e9eaec; --quiet: #a3a9b3; --line: #353a42; --tint: #1e2125; --rule: #f08a3c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 2rem clamp(0.9rem, 3vw, 2.5rem) 4rem; }
h1 { font-size: 1.05rem; font-weight: 600; margin: 0; color: var(--quiet); }
h1 b { color: var(--ink); }
h2 { font-size: 1.35rem; margin: 3rem 0 0.4rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 0.3rem; }
p, li, dd { max-width: 75ch; }
p { margin: 0.5rem 0; }
.answer { font-size: clamp(1.3rem, 2.6vw, 2rem); line-height: 1.3; font-weight: 600; max-width: 44ch;
  margin: 0.8rem 0; }
.evidence { font-size: 1.05rem; }
.quiet, figcaption { color: var(--quiet); font-size: 0.9rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0 0.4rem;
  background: linear-gradient(to right, var(--paper) 40%, transparent) left / 2rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) right / 2rem 100% no-repeat local,
    linear-gradient(to right, var(--line), transparent) left / 0.7rem 100% no-repeat scroll,
    linear-gradient(to left, var(--line), transparent) right / 0.7rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: 0.4rem 0.5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
th { color: var(--quiet); font-weight: 600; background: var(--tint); white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
td.long:first-child { white-space: normal; min-width: 8rem; overflow-wrap: anywhere; }
th.ratios, td.ratios { text-align: left; white-space: normal; }
td.ratios span { white-space: nowrap; }
td.ratios details { margin: 0; }
tr.rule td { color: var(--rule); font-weight: 600; }
tr.rule td:first-child { box-shadow: inset 4px 0 0 var(--rule); }
tr.reference td { font-weight: 600; }
.figures { display: grid; gap: 1.6rem 2rem; margin: 1rem 0; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); }
figure { margin: 0; min-width: 0; max-width: 40rem; break-inside: avoid; }
figure.first { max-width: none; grid-column: 1 / -1; }
figure.first .still { max-width: 46rem; }
@media screen and (min-width: 1000px) {
  figure.first { display: grid; grid-template-columns: minmax(0, 44rem) minmax(0, 1fr); gap: 2rem;
    align-items: center; } }
figure svg { display: block; width: 100%; height: auto; }
figure.picture { max-width: none; grid-column: 1 / -1; }
figure.picture img { display: block; max-width: 100%; height: auto; }
.still svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { margin-top: 0.1rem; max-width: 60ch; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 0.35rem 1.2rem; margin: 1rem 0; }
dt { color: var(--quiet); }
dd { margin: 0; min-width: 0; }
details { margin: 0.5rem 0; }
summary { cursor: pointer; }
pre { overflow-x: auto; background: var(--tint); padding: 0.8rem; border-radius: 6px; font-size: 0.8rem; }
code { font-size: 0.9em; }
.on-paper { display: none; }
@media (max-width: 520px) {
  main { padding-top: 1.2rem; }
  dl { display: block; }
  dd { margin: 0 0 0.6rem; } }
@media print {
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  h2, h3 { break-after: avoid; }
  h2 { margin-top: 1.5rem; }
  details { display: none; }
  td.ratios details { display: block; }
  .on-paper { display: block; }
  .scroll { overflow: visible; border: 0; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.2rem 0.35rem; white-space: normal; }
  tr { break-inside: avoid; }
  .figures { grid-template-columns: 1fr 1fr; gap: 1rem; } }
"""
