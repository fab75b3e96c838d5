// Checks that run in the page and answer with what is wrong; an empty list is good news.

function visible(element) {
  return element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true, contentVisibilityAuto: false });
}

function where(element) {
  return `${element.tagName.toLowerCase()}.${element.getAttribute("class") || ""} "${element.textContent.trim().slice(0, 40)}"`;
}

function rgba(text) {
  const parts = text.match(/[\d.]+/g).map(Number);
  return parts.length === 3 ? [...parts, 1] : parts;
}

function over(top, below) {
  return [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
}

function ground(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
}

function luminance(colour) {
  const [r, g, b] = colour.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast() {
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !visible(element) || element.closest("svg, script, noscript, .unseen")) continue;
    const style = getComputedStyle(element);
    const back = ground(element);
    const [a, b] = [luminance(over(rgba(style.color), back)), luminance(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`${where(element)}: ${ratio.toFixed(2)} to 1`);
  }
  return wrong;
}

function behind(text) {
  // What a word in a picture stands on: the bar it is written into, else the card that holds the picture.
  const bar = text.classList.contains("in") && text.parentElement.querySelector("rect");
  const card = ground(text.closest("svg").parentElement);
  return bar ? over(rgba(getComputedStyle(bar).fill), card) : card;
}

function picture() {
  // WCAG 1.4.3 for words in pictures, 1.4.11 for what must be told apart from its card: 3 to 1 by filling or outline.
  const wrong = [];
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  for (const text of document.querySelectorAll("svg text")) {
    const back = behind(text);
    const found = ratio(over(rgba(getComputedStyle(text).fill), back), back);
    if (found < 4.5) wrong.push(`${where(text)}: ${found.toFixed(2)} to 1`);
  }
  for (const shape of document.querySelectorAll("svg .bar, svg .mark, svg .term")) {
    const style = getComputedStyle(shape), card = ground(shape.closest("svg").parentElement);
    const told = [style.fill, style.stroke].filter((c) => c.startsWith("rgb")).map((c) => ratio(over(rgba(c), card), card));
    if (Math.max(...told) < 3) wrong.push(`${shape.getAttribute("class")}: ${Math.max(...told).toFixed(2)} to 1`);
  }
  return wrong;
}

function nameOf(element) {
  const by = element.getAttribute("aria-labelledby");
  if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ").trim();
  return element.getAttribute("aria-label") || [...(element.labels || [])].map((l) => l.textContent).join(" ").trim()
    || element.textContent.trim();
}

function names() {
  const wanted = "a, button, input:not([type=hidden]), select, summary, section, [role=region], svg[role=img], fieldset";
  return [...document.querySelectorAll(wanted)].filter((e) => !nameOf(e)).map(where);
}

function structure() {
  const wrong = [];
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id).filter((id) => !id.startsWith("tl-") && id !== "hatch");
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push(`id ${id} twice`);
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  for (const landmark of ["header", "main", "footer", "[role=search]"]) if (!document.querySelector(landmark)) wrong.push(`no ${landmark}`);
  if (!document.documentElement.lang) wrong.push("no language");
  let before = 1;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const level = Number(heading.tagName[1]);
    if (level > before + 1) wrong.push(`${where(heading)} skips a level`);
    before = level;
  }
  if (document.querySelector("[style], style, script:not([src]), [onclick], [onload]")) wrong.push("something inline");
  return wrong;
}

function sideways() {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > wide + 1 && !e.closest(".scroll, .board")).slice(0, 5).map(where);
}
