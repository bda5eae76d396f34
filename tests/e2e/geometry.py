"""Where things stand on a page: titles that are too narrow, what overlaps, broken words, the left edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Page

#: Phones, tablets, half a screen, laptops and the widest that a page grows to.
WIDTHS = (390, 640, 910, 1024, 1280, 1440, 2560)

#: Faults of the page at its present width, and where the text of its main part begins.
_MEASURE = r"""() => {
  const faults = new Set(), pageWidth = document.documentElement.clientWidth;
  const name = (one) => {
    const words = (one.ariaLabel || one.innerText || one.value || "").trim().replace(/\s+/g, " ");
    return `${one.tagName.toLowerCase()}.${one.className} “${words.slice(0, 40)}”`;
  };
  const CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, label.pick";
  const NO_TEXT = "script, style, svg, noscript, option, template";
  const TITLES = "h1, .row-title, .inbox-headline, .notice-text, .decision-statement";
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });

  // What an element's boxes that hide what is too much, and their layer, leave of its rectangles.
  const surroundings = new Map();
  const around = (one) => {
    if (!surroundings.has(one)) {
      const outer = one.parentElement ? around(one.parentElement) : { clips: [], layer: null };
      const style = getComputedStyle(one), box = one.getBoundingClientRect();
      const clips = [...outer.clips];
      if (style.overflow !== "visible" && one !== document.body) clips.push(box);
      const isUnseen = style.position === "absolute" && style.clipPath !== "none";
      if (isUnseen) clips.push({ left: 0, right: 0, top: 0, bottom: 0 }); // only for screen readers
      const isLayer = ["fixed", "sticky"].includes(style.position) || one.matches(".menu-body, dialog");
      surroundings.set(one, { clips, layer: isLayer ? one : outer.layer });
    }
    return surroundings.get(one);
  };
  const clip = (rect, clips) => {
    let { left, right, top, bottom } = rect;
    for (const box of clips) {
      left = Math.max(left, box.left); right = Math.min(right, box.right);
      top = Math.max(top, box.top); bottom = Math.min(bottom, box.bottom);
    }
    return { left, right, top, bottom };
  };
  const isSeen = (rect) => rect.right - rect.left > 1.5 && rect.bottom - rect.top > 1.5;

  const rangeOf = (node, start, end) => {
    const range = document.createRange();
    range.setStart(node, start); range.setEnd(node, end);
    return range;
  };
  const items = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const add = (one, rects, text = "") => {
    const { clips, layer } = around(one);
    for (const rect of rects) {
      const seen = clip(rect, clips);
      if (isSeen(seen)) items.push({ one, layer, text, ...seen });
    }
  };
  const blockOf = (one) => {
    let block = one;
    while (getComputedStyle(block).display === "inline") block = block.parentElement;
    const { paddingLeft, paddingRight } = getComputedStyle(block);
    return block.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  };
  while (texts.nextNode()) {
    const node = texts.currentNode, one = node.parentElement;
    if (!node.data.trim() || one.closest(NO_TEXT) || !isShown(one)) continue;
    const start = node.data.search(/\S/);
    const whole = rangeOf(node, start, node.data.trimEnd().length), lines = [...whole.getClientRects()];
    add(one, lines, node.data.trim().slice(0, 40));
    if (lines.length < 2) continue;
    for (const word of node.data.matchAll(/[\p{L}\p{N}_]+/gu)) {
      const parts = [...rangeOf(node, word.index, word.index + word[0].length).getClientRects()];
      const tops = new Set(parts.map((part) => Math.round(part.top)));
      if (tops.size < 2 || !isSeen(clip(parts[0], around(one).clips))) continue;
      const width = parts.reduce((sum, part) => sum + part.width, 0);
      if (width < Math.max(160, blockOf(one))) faults.add(`“${word[0]}” is broken in ${name(one)}`);
    }
  }

  for (const one of document.querySelectorAll(CONTROLS)) {
    if (!isShown(one)) continue;
    // Of these the texts count: a summary is as wide as its box, and others may stand on it.
    const isText = one.matches("summary:not(.button)") || getComputedStyle(one).display === "inline";
    if (!isText) add(one, [one.getBoundingClientRect()]);
  }
  const inMain = items.filter(({ one, layer }) => !layer && one.closest("main"));
  const left = Math.min(...inMain.map((item) => item.left));
  items.sort((one, other) => one.top - other.top);
  items.forEach((item, place) => {
    if (item.right > pageWidth + 1) faults.add(`${name(item.one)} ends at ${Math.round(item.right)}`);
    for (let next = place + 1; next < items.length && items[next].top < item.bottom - 4; next++) {
      const other = items[next];
      const isWithin = item.one.contains(other.one) || other.one.contains(item.one);
      if (item.layer !== other.layer || isWithin) continue;
      const over = Math.min(item.right, other.right) - Math.max(item.left, other.left);
      if (over > 1.5 && Math.min(item.bottom, other.bottom) - other.top > 4) {
        faults.add(`${name(item.one)} and ${name(other.one)} overlap by ${Math.round(over)} px`);
      }
    }
  });

  for (const title of document.querySelectorAll(TITLES)) {
    const box = title.getBoundingClientRect();
    const lines = box.height / parseFloat(getComputedStyle(title).lineHeight);
    const parts = [title, ...title.children].filter((one) => one.clientWidth);
    const isCut = lines > 1.8 || parts.some((one) => one.scrollWidth > one.clientWidth + 1);
    if (!isShown(title) || !isSeen(box) || box.width >= 160 || !isCut) continue;
    faults.add(`${name(title)} has ${Math.round(box.width)} px`);
  }
  if (document.documentElement.scrollWidth > pageWidth) faults.add("the page is wider than the window");
  return { faults: [...faults], left: Math.round(left) };
}"""


def measured(page: Page) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each width with the `faults` of the page at it, and the `left` edge of its main text."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 1000})
        yield width, page.evaluate(_MEASURE)
