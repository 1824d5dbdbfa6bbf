"""How the page looks: on a phone, on a desk, by day and by night, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf8; --card: #ffffff; --ink: #1c2733; --muted: #5c6b7a; --line: #e3e8ee;
  --good: #1d7a70; --good-soft: #e4f3f1; --bad: #b3303f; --bad-soft: #fbe9eb;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0f141a; --card: #161d25; --ink: #e6edf3; --muted: #9aa7b4; --line: #2a333d;
    --good: #6fd3c7; --good-soft: #12312f; --bad: #ff9aa5; --bad-soft: #3a1a20;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 400 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 56rem; margin: 0 auto; padding: clamp(1.25rem, 4vw, 3.5rem) clamp(1rem, 4vw, 2rem) 4rem; }
.kicker { margin: 0; color: var(--muted); font-size: .85rem; max-width: none; }
.kicker b { display: block; letter-spacing: .08em; text-transform: uppercase; font-weight: 600; font-size: .78rem; }
h1 {
  margin: .4rem 0 .9rem; max-width: 22ch; text-wrap: balance;
  font: 600 clamp(1.9rem, 6.2vw, 3.1rem)/1.12 ui-serif, Charter, Georgia, "DejaVu Serif", serif;
  letter-spacing: -.015em;
}
h2 { margin: 3rem 0 .25rem; font: 600 1.3rem/1.3 ui-serif, Charter, Georgia, "DejaVu Serif", serif; }
h3 { margin: 1.8rem 0 .4rem; font-size: .95rem; font-weight: 600; }
p { margin: .4rem 0; max-width: 65ch; }
.lead { font-size: 1.08rem; }
.muted, .lead .muted { color: var(--muted); }
dl.figures {
  display: grid; grid-template-columns: repeat(3, 1fr); gap: 1px; margin: 2rem 0 0;
  background: var(--line); border: 1px solid var(--line); border-radius: .8rem; overflow: hidden;
}
dl.figures div { background: var(--card); padding: .85rem 1rem; }
dl.figures dt { color: var(--muted); font-size: .82rem; }
dl.figures dd { margin: .1rem 0 0; font-size: 1.45rem; font-weight: 600; line-height: 1.2; white-space: nowrap; }
dl.figures dd small { display: block; color: var(--muted); font-size: .8rem; font-weight: 400; white-space: normal; }
.verdict { margin-top: 1rem; padding: 1rem 1.2rem; border-radius: .8rem; border-left: .35rem solid; }
.verdict strong { font-size: 1.15rem; }
.verdict p { margin: .2rem 0 0; }
.good { background: var(--good-soft); border-color: var(--good); } .good strong { color: var(--good); }
.bad { background: var(--bad-soft); border-color: var(--bad); } .bad strong { color: var(--bad); }
.none { background: var(--card); border-color: var(--line); }
img { display: block; width: 100%; height: auto; margin: .6rem 0 0; }
.table { overflow-x: auto; margin-top: .6rem; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; }
th, td { padding: .5rem .9rem .5rem 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--muted); font-size: .8rem; font-weight: 500; }
th:first-child, td:first-child, .text { text-align: left; }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 11rem; }
td.text { white-space: normal; min-width: 9rem; }
td:last-child, th:last-child { padding-right: 0; }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--muted); }
footer { font-size: .86rem; }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 1rem; }
footer dt { font-weight: 600; } footer dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 34rem) {
  dl.figures { grid-template-columns: 1fr 1fr; }
  dl.figures dd { font-size: 1.2rem; }
  .many thead th:first-child { display: none; }
  .many tr { display: grid; border-bottom: 1px solid var(--line); }
  .many td, .many th { border: 0; padding: .15rem .6rem .4rem 0; text-align: left; }
  .many th { white-space: normal; }
  .many td:first-child { grid-column: 1 / -1; padding: .5rem 0 0; font-weight: 500; }
  .many tr { grid-template-columns: repeat(var(--columns), 1fr); }
  footer dl { grid-template-columns: 1fr; } footer dd { margin-bottom: .4rem; }
}
@media print { body { background: #fff; } section, .verdict, tr { break-inside: avoid; } }
"""
