// Small helpers to build the page. Text from files only ever becomes a text node.

/** An element with a class, properties, and children (text, elements, or nothing). */
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") parent.append(child);
  }
  return parent;
}

/** An SVG element with attributes. */
function svgElement(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return append(made, children);
}

function button(words, title, act) {
  const made = element("button", "", words);
  made.title = title;
  made.addEventListener("click", act);
  return made;
}

function swatch(colour) {
  const made = element("span", "swatch");
  made.style.background = colour;
  return made;
}

/** A table of text. `left`: columns that are words; `best`: which rows stand out. */
function table(headings, rows, { left = [0], best = () => false } = {}) {
  const line = (tag, cells) => cells.map((words, i) => element(tag, left.includes(i) ? "left" : "", words));
  const body = rows.map((cells) => element("tr", best(cells) ? "best" : "", line("td", cells)));
  return element("div", "scroll",
    element("table", "", element("thead", "", element("tr", "", line("th", headings))), element("tbody", "", body)));
}

/** Names and values. */
function factList(pairs) {
  return element("dl", "", pairs.map(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
}

function folded(summary, ...children) {
  return element("details", "", element("summary", "", summary), ...children);
}

/** A number as text: at most three decimals, or four digits where it is small. */
function number(value) {
  if (value === 0) return "0";
  const digits = Math.max(3, 3 - Math.floor(Math.log10(Math.abs(value))));
  return String(Number(value.toFixed(Math.min(digits, 100))));
}

/** A value to so many digits as a step of about that size needs. */
function roundTo(value, step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power >= 1 ? Math.round(value / power) * power : Math.round(value * Math.round(1 / power)) / Math.round(1 / power);
}

/** A share as text; only what is exactly nothing is "0 %". */
function percent(share) {
  if (share === 0) return "0 %";
  return share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}
