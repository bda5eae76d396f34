"""What a page is for people who use the keyboard alone: what is reached, and seen while it has the focus."""

from __future__ import annotations

from playwright.sync_api import Page

#: Faults of a page whose focus rings are shown, because a key was pressed last.
_FAULTS = """() => {
  const STOPS = "a[href], :is(button, select, textarea):not([disabled]), "
    + "input:not([disabled], [type=hidden]), summary, [tabindex]";
  const words = (one) => (one.ariaLabel || one.innerText || "").trim().slice(0, 40);
  const name = (one) => `${one.tagName.toLowerCase()}${one.id && `#${one.id}`} “${words(one)}”`;
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });
  const isClicked = (one) => getComputedStyle(one).cursor === "pointer";
  const stops = [...document.querySelectorAll(STOPS)].filter(isShown);
  const skips = !document.querySelector("header.top") || stops[0]?.matches("a.skip[href='#main']");
  const faults = skips ? [] : [`${name(stops[0])} comes before the link that skips the navigation`];
  const jumps = stops.filter((one) => one.tabIndex > 0);
  faults.push(...jumps.map((one) => `${name(one)} has an order of its own`));

  // A click does something, and no key does: neither it, nor what is around it or in it, can have the focus.
  for (const one of document.querySelectorAll("main *, header *")) {
    if (!isShown(one) || !isClicked(one) || isClicked(one.parentElement)) continue;
    if (one.closest(`${STOPS}, label`) || one.querySelector(STOPS)) continue;
    faults.push(`only a mouse reaches ${name(one)}`);
  }

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) =>
      (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const isClear = (colour) => /, 0\\)$|\\/ 0\\)$|transparent/.test(colour);
  const behind = (one) => {
    for (let around = one.parentElement; around; around = around.parentElement) {
      const colour = getComputedStyle(around).backgroundColor;
      if (!isClear(colour)) return colour;
    }
    return "Canvas";
  };
  // Whether a box that scrolls or hides what is too much cuts off two sides of the ring or more.
  const isCut = (one, reach) => {
    const ring = one.getBoundingClientRect();
    for (let around = one.parentElement; around && around !== document.body; around = around.parentElement) {
      if (getComputedStyle(around).overflow === "visible") continue;
      const box = around.getBoundingClientRect();
      const sides = [
        box.left > ring.left - reach, box.top > ring.top - reach,
        box.right < ring.right + reach, box.bottom < ring.bottom + reach,
      ];
      if (sides.filter(Boolean).length > 1) return true;
    }
    return false;
  };
  for (const one of stops.filter((stop) => stop.tabIndex >= 0)) {
    one.focus();
    if (document.activeElement !== one) continue; // a radio button of a group
    const { outlineStyle, outlineWidth, outlineOffset, outlineColor } = getComputedStyle(one);
    const reach = parseFloat(outlineOffset) + parseFloat(outlineWidth) - 1;
    const fault = outlineStyle === "none" || parseFloat(outlineWidth) < 2 ? "missing"
      : contrast(light(outlineColor), light(behind(one))) < 3 ? "too faint"
      : isCut(one, reach) ? "cut off" : "";
    if (fault) faults.push(`the focus ring of ${name(one)} is ${fault}`);
  }
  document.activeElement.blur();
  scrollTo(0, 0);
  return faults;
}"""

#: Every part of the page that fetches itself is fetched again, while something in it has the focus.
_LOST = """async () => {
  const STOPS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
  const regions = () => [...document.querySelectorAll("[hx-trigger*='catherder:refresh']")];
  const isStop = (one) => one.checkVisibility() && one.tabIndex >= 0;
  const stopsOf = (region) => [...region.querySelectorAll(STOPS)].filter(isStop);
  const words = (one) =>
    `${one.tagName} ${one.ariaLabel || one.innerText || one.name || one.id}`.slice(0, 60);
  const isQuiet = () => !document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling");
  const pause = () => new Promise((resolve) => setTimeout(resolve, 10));
  const faults = [];
  for (let place = 0; place < regions().length; place++) {
    const chosen = stopsOf(regions()[place]).at(-1);
    if (!chosen) continue;
    chosen.focus();
    const before = words(chosen);
    document.body.dispatchEvent(new CustomEvent("catherder:refresh"));
    for (let waited = 0; waited < 500 && (waited < 1 || !isQuiet()); waited++) await pause();
    const after = words(document.activeElement);
    if (after !== before) faults.push(`the focus was on ${before} and after a refresh on ${after}`);
  }
  return faults;
}"""


def keyboard_faults(page: Page) -> list[str]:
    """Return what a key does not reach, and focus rings that are not seen, in the present colours."""
    page.keyboard.press("Tab")
    return list(page.evaluate(_FAULTS))


def focus_lost_by_refresh(page: Page) -> list[str]:
    """Return where the focus is lost when parts of the page are fetched again."""
    return list(page.evaluate(_LOST))
