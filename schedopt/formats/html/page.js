// Small helpers to build the page. Text from files only ever becomes a text node.

/** An element with a class, properties, and children (text, elements, or nothing). */
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children.flat()) {
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

/** A table of text; `words` for columns that are not numbers. */
function table(headings, rows, { words = false, best = () => false } = {}) {
  const head = element("tr", "", headings.map((heading) => element("th", "", heading)));
  const body = rows.map((cells) =>
    element("tr", best(cells) ? "best" : "", cells.map((cell) => element("td", "", cell))));
  const made = element("table", words ? "words" : "", element("thead", "", head), element("tbody", "", body));
  return element("div", "scroll", made);
}

/** Names and values. */
function factList(pairs) {
  return element("dl", "", pairs.map(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
}

function folded(summary, ...children) {
  return element("details", "", element("summary", "", summary), ...children);
}

/** A number as text: at most three decimals, none where it is whole. */
function number(value) {
  if (Math.abs(value) < 0.0005 && value !== 0) return value.toPrecision(3);
  return String(Math.round(value * 1000) / 1000);
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}
