"use strict";
// Convenience only: without this script every row can still be opened and read.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add("scripted");

  const search = $("#search"), verb = $("#verb"), found = $("#found"), unfold = $("#unfold");
  const unrecorded = $("#unrecorded");
  let names = null;  // the text of all of them
  const chips = $$(".tools [data-verdict]");
  const homeOf = (element) => {  // where an element is when nothing is searched
    const mark = document.createComment("");
    element.before(mark);
    return mark;
  };
  const groups = $$(".group").map((element) => ({
    element,
    home: homeOf(element),
    rules: $$("details.rule", element).map((rule) => ({
      element: rule,
      home: homeOf(rule),
      head: $("summary", rule).textContent.toLowerCase(),
      cases: $$("details.case", rule).map((one) => ({
        element: one, verdicts: one.dataset.verdicts.split(" "), text: null,
      })),
      also: $$(".also", rule).length,
    })),
  }));

  // A rule that is searched by its id comes first, with its group; otherwise all are where they were.
  let moved = false;
  function place(id) {
    if (moved) for (const group of groups) {
      group.home.after(group.element);
      for (const rule of group.rules) rule.home.after(rule.element);
    }
    moved = false;
    for (const group of groups) for (const rule of group.rules) {
      if (rule.element.id.toLowerCase() !== id) continue;
      groups[0].home.before(group.element);
      group.rules[0].home.before(rule.element);
      moved = true;
    }
  }

  // The filter is in the address, so that it can be passed on.
  function remember(wanted) {
    const query = new URLSearchParams();
    if (search.value.trim()) query.set("find", search.value.trim());
    for (const verdict of wanted) query.append("verdict", verdict);
    if (verb.value) query.set("verb", verb.value);
    const text = query.toString();
    if (text === location.search.slice(1)) return;
    try { history.replaceState(null, "", (text ? `?${text}` : location.pathname) + location.hash); } catch { /* as is */ }
  }
  function recall() {
    const query = new URLSearchParams(location.search);
    search.value = query.get("find") ?? "";
    for (const chip of chips) chip.setAttribute("aria-pressed", String(query.getAll("verdict").includes(chip.dataset.verdict)));
    verb.value = query.get("verb") ?? "";
    if (location.search.length > 1) apply();
  }

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.verdict);
    place(words.length === 1 ? words[0] : "");
    remember(wanted);
    const filtering = words.length > 0 || wanted.length > 0;
    const has = (verdicts) => wanted.length === 0 || wanted.some((each) =>
      each === "differs" ? new Set(verdicts).size > 1 : verdicts.includes(each));
    let count = 0, any = false;
    for (const group of groups) {
      let shown = 0;
      for (const rule of group.rules) {
        let here = 0;
        const named = words.every((word) => rule.head.includes(word));
        for (const one of rule.cases) {
          if (words.length && one.text === null) one.text = one.element.textContent.toLowerCase();
          const match = has(one.verdicts) && (named || words.every((word) => rule.head.includes(word) || one.text.includes(word)));
          one.element.classList.toggle("hidden", !match);
          here += match;
        }
        const visible = here > 0 || (wanted.length === 0 && named);
        rule.element.classList.toggle("hidden", !visible);
        if (words.length && here && here <= 40 && !named) rule.element.open = true;
        shown += visible;
        count += (verb.value === "" || group.element.dataset.verb === verb.value) ? here : 0;
      }
      const wantedVerb = verb.value === "" || group.element.dataset.verb === verb.value;
      group.element.classList.toggle("hidden", !wantedVerb || shown === 0);
      any ||= wantedVerb && shown > 0;
    }
    if (unrecorded) {
      if (words.length && names === null) names = unrecorded.textContent.toLowerCase();
      const match = verb.value === "" && has(["MISSED"]) && words.every((word) => names.includes(word));
      unrecorded.classList.toggle("hidden", !match);
      count += match ? Number(unrecorded.dataset.number) : 0;
      any ||= match;
    }
    $("#nothing").classList.toggle("hidden", any);
    found.textContent = filtering || verb.value ? `${count.toLocaleString("en")} cases` : "";
  }
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 60); });
  verb.addEventListener("change", apply);
  for (const chip of chips) chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    apply();
  });
  unfold.addEventListener("click", () => {
    const open = unfold.getAttribute("aria-pressed") !== "true";
    unfold.setAttribute("aria-pressed", String(open));
    unfold.textContent = open ? "Fold" : "Unfold";
    for (const rule of $$("details.rule")) rule.open = open;
  });

  // A link to a rule or case opens the rows that contain it.
  function follow() {
    let name = "";
    try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    const target = name && document.getElementById(name);
    if (!target) return;
    for (let each = target; each; each = each.parentElement) {
      each.classList.remove("hidden");
      if (each instanceof HTMLDetailsElement) each.open = true;
    }
    target.scrollIntoView();
    const summary = $("summary", target);
    if (summary) summary.focus({ preventScroll: true });
  }
  recall();
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {  // a click on the current address triggers no hashchange
    const anchor = event.target.closest("a[href^='#']");
    if (anchor && anchor.hash === location.hash) follow();
  });
  follow();

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && (event.target === search || !typing)) {
      search.value = "";
      for (const chip of chips) chip.setAttribute("aria-pressed", "false");
      verb.value = "";
      apply();
      if (typing) search.blur();
    } else if (typing) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "j" || event.key === "k") {
      const rows = $$(".matrix summary").filter((row) => row.offsetParent !== null);
      const at = rows.indexOf(document.activeElement);
      const next = rows[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
      if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
    }
  });

  // A button beside each command copies it.
  for (const command of $$(".kv code.command")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    command.after(" ", button);
  }
  document.addEventListener("click", async (event) => {
    if (!event.target.matches("button.copy")) return;
    const command = event.target.parentElement.querySelector("code.command");
    try {
      await navigator.clipboard.writeText(command.textContent);
      event.target.textContent = "copied";
    } catch {  // a page opened from a file may have no access to the clipboard
      getSelection().selectAllChildren(command);
    }
  });

  // On paper are the defects and the rules; everything, with each violation open, is printed by the button.
  let opened = [];
  $("#print").addEventListener("click", () => {
    document.body.classList.add("everything");
    print();
  });
  addEventListener("beforeprint", () => {
    const everything = document.body.classList.contains("everything");
    opened = $$("details:not([open])").filter((each) => each.matches(".hashes") || everything &&
      (each.matches(".sweep") || $(":scope .v:is(.FAIL, .CRASH, .HANG)", each)));
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
    document.body.classList.remove("everything");
  });

  // A map explains the dot under the pointer.
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const view = new DataView(await new Response(stream).arrayBuffer());
    return Array.from({ length: view.byteLength / 2 }, (_, at) => view.getUint16(2 * at, true));
  }
  function label(axis, value) {
    if (!axis.flags.length) return axis.labels[value];
    return axis.flags.filter((_, bit) => value >> bit & 1).join("+") || "none";
  }
  for (const map of $$(".map")) {
    const section = map.parentElement, dot = $(".dot", section);
    const data = JSON.parse($(".points", section).textContent);
    const size = (axis) => axis.flags.length ? 2 ** axis.flags.length : axis.labels.length;
    const total = data.axes.reduce((product, axis) => product * size(axis), 1);
    let index = null, at = -1;
    async function tell(point) {
      if (point < 0 || point >= total) return;
      at = point;
      index ??= unpack(data.index);
      const outcomes = await index;
      if (at !== point) return;  // the pointer has moved on meanwhile
      const parts = [];
      for (const axis of [...data.axes].reverse()) {
        parts.unshift(`${axis.name}=${label(axis, point % size(axis))}`);
        point = Math.floor(point / size(axis));
      }
      const outcome = outcomes[at] === data.outside ? "not in the space" : data.outcomes[outcomes[at]];
      dot.textContent = `${parts.join(", ")} · ${outcome}`;
    }
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * map.naturalWidth);
      const row = Math.floor((event.clientY - box.top) / box.height * map.naturalHeight);
      if (column >= 0 && column < data.width) tell(row * data.width + column);
    });
    map.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: data.width, ArrowUp: -data.width }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      tell(at < 0 ? 0 : at + step);
    });
  }
})();
