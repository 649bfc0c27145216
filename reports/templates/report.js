"use strict";
// The conclusion, the defects and the rules need no script. Cases, sweeps and maps are data (reports/page_data.py).
// The script builds an element when it is opened, and inserts the data as text, never as markup.
(async () => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const STEP = 200;  // the number of list elements that are built at once

  async function inflate(text) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));
  }
  const page = document.documentElement, matrix = $(".matrix");
  page.classList.add("scripted");
  matrix.setAttribute("aria-busy", "true");
  const data = await inflate($("#data").textContent).then((found) => found.json()).catch(() => null);
  if (!data) return page.classList.remove("scripted");  // the browser cannot decompress the data
  const several = data.runs.length > 1;

  const el = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    made.append(...children);
    return made;
  };
  // A long text without spaces breaks at the signs between its words.
  const broken = (text) => text.split(/(?<=[|,])(?=\S)/).flatMap((part) => [part, el("wbr")]);
  const code = (text) => el("code", {}, ...broken(text)), soft = (text) => el("span", { class: "soft" }, text);
  const same = (text) => text, lines = (texts) => texts.map((line) => el("div", {}, code(line)));
  const badge = (verdict) => el("span", { class: `v ${verdict}` }, verdict === "-" ? "not run" : verdict);
  const link = (name, text = name) => el("a", { class: "id", href: `#${encodeURIComponent(name)}` }, text);
  const copy = () => el("button", { class: "copy", type: "button" }, "copy");

  // The content of an element is built when the element is opened for the first time.
  const builders = new WeakMap();
  function build(details) {
    const make = builders.get(details);
    builders.delete(details);
    make?.();
  }
  function inside(details, make) {
    builders.set(details, make);
    if (details.open) build(details);
    return details;
  }
  function open(details) {
    details.open = true;
    build(details);
  }
  document.addEventListener("toggle", (event) => { if (event.target.open) build(event.target); }, true);
  function fill(place, items, make, step = STEP) {
    const more = el("button", { type: "button", class: "more" });
    let at = 0;
    const add = () => {
      more.before(...items.slice(at, at += step).map(make));
      more.textContent = `${(items.length - at).toLocaleString("en")} more`;
      if (at >= items.length) more.remove();
    };
    more.addEventListener("click", add);
    place.replaceChildren(more);
    add();
  }

  // The functions that show the details of a result or of deviating points, in the order of the details.
  const clauseOf = (name = "") => /^clause \d+: /.exec(name)?.[0] ?? "";
  const pairs = (found) => found.flatMap(([name, text], at) => {  // each clause of a sweep begins a line
    const clause = clauseOf(name), goesOn = clause && clause === clauseOf(found[at - 1]?.[0]);
    return [...clause && at && !goesOn ? [el("br")] : [], el("i", {}, goesOn ? name.slice(clause.length) : name), ` ${text} `];
  });
  const fields = (value) => typeof value === "string" ? code(value) : el("code", {},
    ...(value.own.length ? pairs(value.own) : [soft("nothing")]),
    ...(value.exchange ? [el("ol", { class: "sent" }, ...value.exchange.map((line) => el("li", {}, line)))] : []),
    ...value.later.map(([call, rest]) => el("div", { class: "then" }, `afterwards ${call} `, ...pairs(rest))));
  const SHOWN = {
    smallest: code, given: lines, before: lines, call: (shown) => typeof shown === "string" ? code(shown) : shown, afterwards: lines, expected: fields, observed: fields,
    verdict: (text) => text.split(/(?<=; )/).map((part) => el("div", {}, ...broken(part))), waiver: ([owner, issue, href]) => [owner, href ? el("a", { href, rel: "noreferrer" }, issue) : issue],
    layer: same, evidence: same, remarks: same, kernel: ([log, before]) => [el("pre", {}, log), ...before ? [el("details", { class: "folded" }, el("summary", { class: "soft" }, "earlier lines"), el("pre", {}, before))] : []], table: code,
    reproduce: (text) => [el("code", { class: "command" }, text), " ", copy()], points: same,
  };
  const terms = (value) => el("dl", { class: "kv" }, ...Object.entries(SHOWN).flatMap(([name, show]) =>
    value[name]?.length || value[name]?.own ? [el("dt", {}, name), el("dd", {}, ...[show(value[name])].flat())] : []));
  const found = (run, at) => Object.fromEntries(Object.entries(run).map(([name, column]) => [name, data.texts[column[at]]]));
  // a result's reason without the packets of its call, which have lines of their own
  const shortly = ({ call, packets, reason = "" }) => packets ? reason.split(call).join(packets[0]) : reason;
  const nothing = { own: [], later: [] };
  function detail(run, number, at) {
    const value = found(run, at), counted = value.verdict === value.effective ? "" : `, counted as ${value.effective}`;
    const [named, events = [], kinds = []] = value.packets ?? [];
    const inFull = value.map?.index ? "map" : value.deviations && "deviations";
    const shown = terms({
      ...value, expected: value.expected ?? nothing, observed: value.observed ?? nothing,
      verdict: `${value.verdict}${counted}: ${shortly(value)}`,
      call: value.packets ? [code(named), el("ol", { class: "sent" }, ...events.map((event) => el("li", {}, code(event)))),
        ...kinds.map(([kind, meaning]) => el("div", { class: "soft" }, code(kind), `: ${meaning}`))] : value.call,
      reproduce: value.reproduce?.split("\0").join(data.cases[at]),
      points: value.points && [
        value.points.map(([verdict, count]) => `${count.toLocaleString("en")} ${verdict}`).join(", "),
        ...inFull ? ["; ", link(`sweep:${data.cases[at]}`, inFull)] : []],
    });
    if (several) shown.prepend(el("div", { class: "run" }, ...title(number, value)));
    // the deviations of a sweep are below its map
    return value.points ? [shown] : [shown, ...(value.deviations ?? []).map(formula)];
  }
  const formula = (each) => el("div", { class: "formula", "data-rules": each.rules.join(" ") },
    el("b", {}, each.points), terms({ ...each, points: null }));
  const title = (number, value) => [badge(value.effective), ` ${data.names[number]}`];
  const verdicts = (at) => data.runs.map((run) => data.texts[run.effective[at]] ?? "-");
  const withPoints = (at) => [...verdicts(at), ...data.runs.flatMap((run) => [
    ...(data.texts[run.points[at]] ?? []).map(([verdict]) => verdict),
    ...Object.values(data.texts[run.on_rules[at]] ?? {}),
  ].filter((verdict) => ["CRASH", "HANG"].includes(verdict)))];
  // the verdicts on one rule: of a sweep, only the points of this rule count
  const onRule = (at, rule) => data.runs.map((run) => data.texts[run.on_rules[at]]?.[rule] ?? data.texts[run.effective[at]] ?? "-");
  const BAD = ["FAIL", "CRASH", "HANG"];
  const inRuns = (at, make) => data.runs.flatMap((run, number) => run.effective[at] ? make(run, number, at) : []);
  const kept = (make) => {  // the element is made on the first call; later calls return it, with its state
    const known = new Map();
    return (at) => known.get(at) ?? known.set(at, make(at)).get(at);
  };
  const row = kept((at) => {
    const body = el("div", { class: "body" });
    const first = data.runs.find((run) => run.effective[at]);
    return inside(el("details", { class: "case", id: data.cases[at], "data-verdicts": verdicts(at).join(" ") },
      el("summary", {}, el("span", { class: "on" }), el("span", { class: "id" }, data.cases[at]),
        el("span", { class: "why" }, shortly(found(first, at)))), body),
    () => body.append(...inRuns(at, detail)));
  });
  const rulesOf = (at) => data.texts[data.rules[at]] ?? [""];
  // below a rule, a case has its verdicts on this rule, which the rule counts; other verdicts of the whole case follow
  const badgesOn = (at, rule) => onRule(at, rule).flatMap((each, run) =>
    [badge(each), " ", ...each === verdicts(at)[run] ? [] : [soft(`the case is ${verdicts(at)[run]}`), " "]]);
  function below(at, rule) {
    $(".on", row(at)).replaceChildren(...badgesOn(at, rule));
    return row(at);
  }
  const also = (at, rule) => el("p", { class: "also" }, ...badgesOn(at, rule), link(data.cases[at]), " ",
    soft(`listed under ${rulesOf(at)[0]}`));

  const search = $("#search"), verb = $("#verb"), count = $("#found"), unfold = $("#unfold");
  const unrecorded = $("#unrecorded");
  const chips = $$(".tools [data-verdict]"), severities = $$("a[data-severity]"), layers = $$("a[data-layer]");
  const ofChips = chips.map((chip) => ({ chip, verdict: chip.dataset.verdict, text: chip.textContent, title: chip.title }));
  const homeOf = (element) => {  // marks the place to which an element returns when the search is cleared
    const mark = document.createComment("");
    element.before(mark);
    return mark;
  };
  const groups = $$(".group").map((element) => ({
    element,
    home: homeOf(element),
    rules: $$("details.rule", element).map((rule) => ({
      element: rule, home: homeOf(rule), head: $("summary", rule).textContent.toLowerCase(), group: element.dataset.verb, cases: [], also: [],
    })),
  }));
  const rules = new Map(groups.flatMap((group) => group.rules).map((rule) => [rule.element.id, rule]));
  data.cases.forEach((_, at) => {
    const [first, ...others] = rulesOf(at);
    rules.get(first)?.cases.push(at);
    for (const rule of others) rules.get(rule)?.also.push(at);
  });
  for (const [id, rule] of rules) {  // violations of the rule come first
    const isRight = new Map(rule.cases.map((at) => [at, !onRule(at, id).some((each) => BAD.includes(each))]));
    rule.cases.sort((one, other) => isRight.get(one) - isRight.get(other));
  }
  function list(rule, shown, step = STEP) {
    rule.shown = shown;
    inside(rule.element, () => fill($(".cases", rule.element),
      [...shown.map((at) => [below, at]), ...rule.also.filter((at) => !shown.includes(at)).map((at) => [also, at])], ([make, at]) => make(at, rule.element.id), step));
  }
  const more = new Map($$("details.more").map((each, number) => [each, data.more[number]]));
  for (const [each, rest] of more) inside(each, () => fill($("div", each), rest, (at) => el("div", {}, link(data.cases[at]))));

  // The whole filter except the verdicts selects defects: a defect has the words of its line, of its text and of its cases.
  const defects = $$("details.defect").map((element, number) => ({
    element, cases: data.defects[number], kinds: element.dataset.kinds.split("\n").map((kind) => kind.split("|")), verbs: element.dataset.verbs.split("|"),
  }));
  const about = (each) => each.text ??= [each.element.textContent, ...each.cases.map((at) => data.cases[at])].join(" ").toLowerCase();
  let severity = "", layer = "", ofRun = "";
  const isChosen = ([run, ...kinds]) => run === ofRun && [severity, layer].every((each) => !each || kinds.includes(each));
  function chooseDefects(words) {
    const kind = severity || layer;
    let shown = 0;
    for (const each of defects) {
      const visible = (!kind || each.kinds.some(isChosen)) &&
        (!verb.value || each.verbs.includes(verb.value)) && words.every((word) => about(each).includes(word));
      each.element.classList.toggle("hidden", !visible);
      shown += visible;
    }
    for (const each of $$(".family")) each.classList.toggle("hidden", !$(".defect:not(.hidden)", each));
    let heading = null;
    for (const each of $$(".defects > :is(h3, .family, .defect)")) {
      if (each.matches("h3")) (heading = each).classList.add("hidden");
      else if (!each.classList.contains("hidden")) heading?.classList.remove("hidden");
    }
    for (const each of [...severities, ...layers]) {
      const { run, severity: ofSeverity = "", layer: ofLayer = "" } = each.dataset;
      each.toggleAttribute("aria-current", run === ofRun && (ofSeverity ? ofSeverity === severity : ofLayer === layer));
    }
    const some = $("#some"), chosen = [several && kind ? data.names[ofRun] : "", severity, layer, verb.value, ...words].filter(Boolean);
    some?.classList.toggle("hidden", !chosen.length);
    if (some) $("output", some).textContent = `${shown} of ${defects.length} defects: ${chosen.join(", ")}`;
  }

  // The search examines each distinct text of the results only once.
  const flat = (value) => value && typeof value === "object" ? Object.values(value).map(flat).join(" ") : value ?? "";
  const small = kept((number) => String(flat(data.texts[number])).toLowerCase());
  const names = kept((at) => data.cases[at].toLowerCase());
  function finder(words) {
    const columns = data.runs.flatMap((run) => Object.keys(SHOWN).concat("effective", "reason").flatMap((name) => run[name] ? [run[name]] : []));
    const known = words.map(() => new Uint8Array(data.texts.length));
    const has = (word, number) => (known[word][number] ||= small(number).includes(words[word]) ? 2 : 1) === 2;
    return (at, head) => words.every((word, number) => head.includes(word) || names(at).includes(word) ||
      columns.some((column) => has(number, column[at])));
  }

  // If the search is the id of a rule, the rule and its group are moved to the front. Returns the rule.
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
      return rule;
    }
    return null;
  }

  // The cases among which a search chooses, and the verdicts that count: those on a rule whose id is the search. All cases of
  // this rule, or of the defect whose fingerprint is the search, are found.
  function seek(words, rule, defect) {
    if (rule) {
      const { element: { id }, cases, also } = rule, own = (at) => onRule(at, id);
      return { cases: [...cases, ...also], own, all: own, rulesOf: () => [id], matches: () => true };
    }
    const isKept = (at, id) => !onRule(at, id).some((each) => BAD.includes(each));
    const violatedFirst = (at) => [...rulesOf(at)].sort((one, other) => isKept(at, one) - isKept(at, other));
    const found = defect && { cases: defect.cases, rulesOf: violatedFirst, matches: () => true };
    return { cases: [...data.cases.keys()], own: verdicts, all: withPoints, rulesOf, matches: finder(words), ...found };
  }

  // The filter is part of the page's address, so that a link can contain it.
  function remember(wanted) {
    const query = new URLSearchParams();
    if (search.value.trim()) query.set("find", search.value.trim());
    for (const verdict of wanted) query.append("verdict", verdict);
    if (verb.value) query.set("verb", verb.value);
    if (severity) query.set("severity", severity);
    if (layer) query.set("layer", layer);
    if (several && (severity || layer)) query.set("run", +ofRun + 1);
    const text = query.toString();
    // A filter is a step back in the history of the browser, but what is typed after the first sign is not.
    const before = new URLSearchParams(location.search).get("find");
    const isStep = isRecalled && !(before && query.has("find") && before !== query.get("find"));
    if (text !== location.search.slice(1)) try {
      history[isStep ? "pushState" : "replaceState"](null, "", (text ? `?${text}` : location.pathname) + location.hash);
    } catch { /* the address stays unchanged */ }
    remembered = location.search;
  }
  let isRecalled = false, remembered = "";
  function recall() {
    const query = new URLSearchParams(location.search);
    search.value = query.get("find") ?? "";
    for (const chip of chips) chip.setAttribute("aria-pressed", String(query.getAll("verdict").includes(chip.dataset.verdict)));
    verb.value = query.get("verb") ?? "";
    ofRun = String((query.get("run") ?? 1) - 1);
    const known = (chips, name) => chips.find(({ dataset }) => dataset.run === ofRun && dataset[name] === query.get(name))?.dataset[name] ?? "";
    severity = known(severities, "severity");
    layer = known(layers, "layer");
    isRecalled = false;
    apply();
    isRecalled = true;
  }

  const isOf = (wanted, verdicts, all = verdicts) =>
    wanted === "differs" ? new Set(verdicts.filter((verdict) => verdict !== "-")).size > 1 :
    wanted.startsWith("only-") ? !verdicts.includes("-") && verdicts.every((one, run) => BAD.includes(one) === (run === +wanted.slice(5))) :
    all.includes(wanted);

  // The number on a button is that of the cases that it shows within the search and the verb.
  function number(words, sought, unrecorded) {
    const counts = new Map(ofChips.map((each) => [each, [0, 0]]));
    if (words.length || verb.value) sought.cases.forEach((at) => {
      const own = sought.own(at), all = sought.all(at), ids = sought.rulesOf(at);
      for (const each of ofChips) {
        if (!isOf(each.verdict, own, all)) continue;
        const home = ids.find((id) => isOf(each.verdict, onRule(at, id))) ?? ids[0], rule = rules.get(home);
        if (verb.value && rule?.group !== verb.value) continue;
        if (sought.matches(at, rule?.head ?? "")) counts.get(each)[isOf(each.verdict, own) ? 0 : 1]++;
      }
    });
    for (const each of ofChips) {
      const [all, more] = counts.get(each), total = all + (each.verdict === "MISSED" ? unrecorded : 0);
      const atPoints = more ? `(+${more.toLocaleString("en")})` : "";
      const shown = ` ${[...total || !more ? [total.toLocaleString("en")] : [], atPoints].join(" ")}`.trimEnd();
      const filtering = words.length || verb.value;
      each.chip.textContent = filtering ? each.text.replace(/( [\d,]+)?( \(\+[\d,]+\))?$/, shown) : each.text;
      each.chip.title = filtering ? "" : each.title;
    }
  }

  let filtered = false;  // whether the filter has opened the groups
  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.verdict);
    const searched = place(words.length === 1 ? words[0] : "");
    remember(wanted);
    chooseDefects(words);
    const defect = words.length === 1 && /^[0-9a-f]{6,12}$/.test(words[0]) && defectOf(words[0]);
    if (defect) { defect.open = true; defect.scrollIntoView(); }
    const sought = seek(words, searched, defect && defects.find(({ element }) => element === defect));
    const filtering = words.length > 0 || wanted.length > 0;
    const has = (verdicts, all = verdicts) => wanted.length === 0 || wanted.some((each) => isOf(each, verdicts, all));
    const shownCases = new Set();
    // a case is listed under the first of its rules on which it has a wanted verdict
    const homes = new Map();
    if (filtering) sought.cases.forEach((at) => {
      if (!has(sought.own(at), sought.all(at))) return;
      const ids = sought.rulesOf(at), home = ids.find((id) => has(onRule(at, id))) ?? ids[0];
      if (!homes.has(home)) homes.set(home, []);
      homes.get(home).push(at);
    });
    const missing = verb.value ? [] : data.unrecorded.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
    number(words, sought, missing.length);
    let missed = 0, any = false;
    for (const group of groups) {
      const wantedVerb = verb.value === "" || group.element.dataset.verb === verb.value;
      let shown = 0;
      for (const rule of group.rules) {
        const named = words.every((word) => rule.head.includes(word));
        const here = filtering ? (homes.get(rule.element.id) ?? []).filter((at) => named || sought.matches(at, rule.head)) : rule.cases;
        const visible = here.length > 0 || (wanted.length === 0 && named);
        rule.element.classList.toggle("hidden", !visible);
        list(rule, here);
        const isFound = words.length && here.length && here.length <= 40 && !named;
        if (searched ? rule === searched : isFound) open(rule.element);
        shown += visible;
        if (wantedVerb) for (const at of here) shownCases.add(at);
      }
      group.element.classList.toggle("hidden", !wantedVerb || shown === 0);
      if (filtering || verb.value) group.element.open = true;
      else if (filtered) group.element.open = false;
      any ||= wantedVerb && shown > 0;
    }
    if (unrecorded) {
      const here = has(["MISSED"]) ? missing : [];
      unrecorded.classList.toggle("hidden", here.length === 0);
      inside(unrecorded, () => fill($("pre", unrecorded), here, (name) => `${name}\n`));
      missed = here.length;
      any ||= here.length > 0;
    }
    filtered = filtering || verb.value !== "";
    $("#nothing").classList.toggle("hidden", Boolean(any || defect));
    const total = shownCases.size + missed;
    count.textContent = filtering || verb.value ? `${total.toLocaleString("en")} ${total === 1 ? "case" : "cases"}` : "";
  }
  // A chip of a run selects the defects of this run; a second click selects all again.
  function chosenBy(chip, chosen, name) {
    const isAgain = chip.dataset.run === ofRun && chosen === chip.dataset[name];
    if (chip.dataset.run !== ofRun) severity = layer = "";
    ofRun = chip.dataset.run;
    return isAgain ? "" : chip.dataset[name];
  }
  function clear() {
    search.value = verb.value = severity = layer = "";
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    apply();
  }
  $("#some button")?.addEventListener("click", clear);
  for (const each of severities) each.addEventListener("click", (event) => {
    event.preventDefault();
    severity = chosenBy(each, severity, "severity");
    apply();
  });
  for (const each of layers) each.addEventListener("click", (event) => {
    event.preventDefault();
    layer = chosenBy(each, layer, "layer");
    apply();
  });
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 60); });
  verb.addEventListener("change", apply);
  for (const chip of chips) chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    apply();
  });
  unfold.addEventListener("click", () => {
    const isOpen = unfold.getAttribute("aria-pressed") !== "true";
    unfold.setAttribute("aria-pressed", String(isOpen));
    unfold.textContent = isOpen ? "Fold" : "Unfold";
    for (const each of $$("details.group, details.rule")) each.open = isOpen;
  });

  // A link to a rule or case opens the rows around the rule or case. A row that is not built yet is moved to the front.
  // The part of a link after "|" is the rule below which a case opens, by default the first that the case violates.
  const first = (shown, at) => shown.slice(0, STEP).includes(at) ? shown : [at, ...shown.filter((each) => each !== at)];
  function made(name, wanted) {
    const isSweep = name.startsWith("sweep:"), at = data.cases.indexOf(isSweep ? name.slice(6) : name);
    if (isSweep && data.sweeps.includes(at)) {
      showInFull(first(data.sweeps, at));
      return sweep(at);
    }
    if (at < 0 || isSweep) return null;
    const ids = rulesOf(at), violated = ids.find((id) => onRule(at, id).some((each) => BAD.includes(each)));
    const rule = rules.get(ids.includes(wanted) ? wanted : violated ?? ids[0]);
    if (!rule) return null;
    list(rule, first(rule.shown, at));
    open(rule.element);
    return row(at);
  }
  // What many runs say one below the other is folded on a narrow screen.
  const narrow = matchMedia("(max-width: 40rem)");
  const fold = () => { for (const each of $$(".narrow")) each.open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
  // The fingerprint of a defect, also without the prefix, as in the texts of other reports; or one of earlier versions.
  function defectOf(name) {
    const digits = /^(?:defect:)?([0-9a-f]{4,12})$/.exec(name)?.[1];
    return digits ? $(`details.defect[id^="defect:${digits}"]`) ?? $(`[data-also~="${digits}"]`) : null;
  }
  function follow() {
    let name = "", wanted = "";
    try { [name, wanted] = decodeURIComponent(location.hash.slice(1)).split("|"); } catch { return; }
    if (["data-path", "sweeps"].includes(name)) showInFull();
    const target = name && ((wanted ? made(name, wanted) : null) ?? document.getElementById(name) ?? made(name) ?? defectOf(name));
    const absent = $("#absent");
    absent.classList.toggle("hidden", Boolean(target || !name));
    absent.textContent = target || !name ? "" : `This page has no ${name.replace(":", " ")}.`;
    if (!target) return;
    for (let each = target; each; each = each.parentElement) {
      each.classList.remove("hidden");
      if (each instanceof HTMLDetailsElement) open(each);
    }
    const deviation = wanted && $(`.formula[data-rules~="${CSS.escape(wanted)}"]`, target);
    (deviation || target).scrollIntoView();
    const summary = $("summary", target);
    if (summary) summary.focus({ preventScroll: true });
  }
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {  // a click on the current address triggers no hashchange
    const anchor = event.target.closest("a[href^='#']");
    if (anchor && anchor.hash === location.hash) follow();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && (event.target === search || !typing)) {
      clear();
      if (typing) search.blur();
    } else if (typing) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "j" || event.key === "k") {
      const rows = $$(".defect > summary, .matrix summary").filter((row) => row.checkVisibility());
      const at = rows.indexOf(document.activeElement);
      const next = rows[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
      if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
    }
  });

  // The pointer and the arrow keys name the pair of values of a model.
  for (const picture of $$(".pairs svg")) {
    const values = picture.dataset.values.split("\n"), dot = el("p", { class: "dot", "aria-live": "polite" });
    picture.after(dot);
    const states = $$("path", picture), size = values.length;
    const here = document.createElementNS(picture.namespaceURI, "rect");
    for (const [name, value] of Object.entries({ class: "here", width: 1, height: 1, visibility: "hidden" })) here.setAttribute(name, value);
    picture.append(here);
    function tell(column, line, state) {
      here.setAttribute("x", column);
      here.setAttribute("y", line);
      here.setAttribute("visibility", state ? "visible" : "hidden");
      dot.textContent = state ? `${values[column]}, ${values[line]}: ${state}` : "";
    }
    const stateAt = (column, line) => states.find((each) => each.isPointInFill(new DOMPoint(column + .5, line + .5)));
    let cell = null;
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      let [column, line] = cell ?? [-1, size - 1], [across, down] = cell ? step : [1, 0], state;
      do {  // an empty cell is passed over
        column += across;
        line += down;
        state = stateAt(column, line);
      } while (!state && Math.min(column, line) >= 0 && Math.max(column, line) < size);
      if (!state) return;
      cell = [column, line];
      tell(column, line, $("title", state).textContent);
    });
    picture.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
      tell(Math.floor(at.x), Math.floor(at.y), $("title", event.target.closest("path") ?? dot)?.textContent);
    });
  }

  // A button next to each command copies the command.
  for (const command of $$(".kv code.command")) command.after(" ", copy());
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

  // Printing the page shows the defects and the rules. The button prints everything, with each violation open.
  const isBad = (at) => verdicts(at).some((each) => BAD.includes(each));
  let opened = [];
  $("#print").addEventListener("click", async () => {
    document.body.classList.add("everything");
    for (const rule of rules.values()) {
      list(rule, rule.shown.filter((at) => isBad(at) || row(at).open), Infinity);
      if (rule.shown.length) build(rule.element);
    }
    showInFull(data.sweeps, Infinity);
    for (const each of $$("details.sweep")) build(each);
    await Promise.all(drawings);
    print();
  });
  addEventListener("beforeprint", () => {
    const everything = document.body.classList.contains("everything");
    const violated = [...rules.values()].filter((rule) => rule.shown.some(isBad)).map((rule) => rule.element);
    const all = everything ? [...violated, ...$$("details.sweep"), ...$$("details.case:has(.FAIL, .CRASH, .HANG)")] : [];
    const shown = [...$$(".hashes, .narrow, .conclusions, details.defect, details.group"), ...(everything ? $$(".folded, details.path") : [])];
    opened = [...shown, ...all].filter((each) => !each.open);
    opened.forEach(open);
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
    document.body.classList.remove("everything");
    apply();
  });

  function label(axis, value) {
    if (!axis.flags.length) return axis.labels[value];
    return axis.flags.filter((_, bit) => value >> bit & 1).join("+") || "none";
  }
  const drawings = [];
  function drawn(map, name) {
    const size = (axis) => axis.flags.length ? 2 ** axis.flags.length : axis.labels.length;
    const total = map.axes.reduce((product, axis) => product * size(axis), 1);
    const height = Math.ceil(total / map.width);
    const canvas = el("canvas", {
      class: "map", tabindex: 0, role: "img", width: map.width, height,
      "aria-label": `Map of ${name}, one dot for each point; the legend above has the numbers`,
    });
    const dot = el("p", { class: "dot", "aria-live": "polite" });
    const index = inflate(map.index).then((found) => found.arrayBuffer()).then((found) => new Uint16Array(found));
    drawings.push(index.then((outcomes) => {
      const image = new ImageData(map.width, height), pixels = new Uint32Array(image.data.buffer);
      const colours = map.colours.map((each) => {  // #rrggbb as the bytes r, g, b and opaque
        const colour = parseInt(each.slice(1), 16);
        return 0xff000000 | (colour & 0xff) << 16 | colour & 0xff00 | colour >> 16;
      });
      outcomes.forEach((outcome, at) => { if (outcome !== map.outside) pixels[at] = colours[outcome]; });
      canvas.getContext("2d").putImageData(image, 0, 0);
    }));
    let at = -1;
    async function describe(point) {
      if (point < 0 || point >= total) return;
      at = point;
      const outcome = (await index)[at];
      if (at !== point) return;  // the pointer is already at another point
      const parts = [];
      for (const axis of [...map.axes].reverse()) {
        parts.unshift(`${axis.name}=${label(axis, point % size(axis))}`);
        point = Math.floor(point / size(axis));
      }
      dot.textContent = `${parts.join(", ")} · ${outcome === map.outside ? "not in the space" : map.outcomes[outcome].join(": ")}`;
    }
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * map.width);
      const line = Math.floor((event.clientY - box.top) / box.height * height);
      if (column >= 0 && column < map.width) describe(line * map.width + column);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: map.width, ArrowUp: -map.width }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      describe(at < 0 ? 0 : at + step);
    });
    const legend = map.outcomes.flatMap(([verdict, text], number) => map.counts[number] ? el("li", {},
      el("span", { class: "swatch", style: `background:${map.colours[number]}` }),
      el("span", { class: "num" }, map.counts[number].toLocaleString("en")), el("span", {}, badge(verdict), ` ${text}`)) : []);
    const down = map.down.length ? `down: ${map.down.join(" · ")}; ` : "";
    const across = `across: ${map.across.join(" · ") || "all axes, folded"} (the last axis changes fastest)`;
    return [el("ul", { class: "legend" }, ...legend), canvas, el("p", { class: "axes" }, down + across), dot];
  }
  const heading = (number, value) => several ? [el("h3", {}, ...title(number, value))] : [];
  const sweep = kept((at) => {
    const sides = el("div", { class: "sides" });
    const total = data.runs.flatMap((run) => run.effective[at] ? [data.texts[run.points[at]] ?? []] : [])[0]
      .reduce((sum, [, count]) => sum + count, 0);
    const details = el("details", { class: "sweep", id: `sweep:${data.cases[at]}` }, el("summary", {},
      ...verdicts(at).map(badge), el("span", { class: "id" }, data.cases[at]), soft(`${total.toLocaleString("en")} points`)), sides);
    return inside(details, () => sides.append(...inRuns(at, (run, number) => {
      const value = found(run, at);
      return el("section", {}, ...heading(number, value), el("p", {}, code(value.call ?? "")),
        ...(value.deviations?.map(formula) ??
          [el("p", { class: "soft" }, "No point violates a rule.")]),
        ...(typeof value.map === "string" ? [el("p", { class: "soft" }, value.map)] : value.map ? drawn(value.map, data.cases[at]) : []));
    })));
  });

  // The data path: operation by position.
  const matrixOf = (run, at) => data.texts[run.map[at]]?.matrix;
  const table = (found, [name, lines]) => el("table", { class: "cells" }, el("caption", {}, name || "all"),
    el("thead", {}, el("tr", {}, el("td"), ...found.positions.map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", {}, ...lines.map((cells, number) => el("tr", {}, el("th", { scope: "row" }, found.operations[number]),
      ...cells.map((cell) => cell ? el("td", { class: cell[0], title: cell[2] }, cell[1]) : el("td"))))));
  const path = kept((at) => el("details", { class: "path" }, el("summary", {}, ...verdicts(at).map(badge), " ", link(data.cases[at])),
    el("div", { class: "sides" }, ...inRuns(at, (run, number) => matrixOf(run, at) ? [
      ...heading(number, found(run, at)),
      el("div", { class: "blocks" }, ...matrixOf(run, at).blocks.map((block) => table(matrixOf(run, at), block)))] : []))));
  const [paths, sweeps] = $$(".in-full > section");
  const matrices = data.sweeps.filter((at) => data.runs.some((run) => matrixOf(run, at)));
  for (const [section, listed] of [[paths, matrices], [sweeps, data.sweeps]]) {
    const bad = listed.filter(isBad).length;
    $("output", section).textContent = `${listed.length} sweeps${bad ? `, ${bad} with violations` : ""}`;
  }
  paths.classList.toggle("hidden", !matrices.length);
  sweeps.classList.toggle("hidden", !data.sweeps.length);
  function showInFull(shown = data.sweeps, step = STEP) {
    near.disconnect();
    fill($("details > div", paths), matrices, path, step);
    fill($("details > div", sweeps), shown, sweep, step);
  }
  const near = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) showInFull(); }, { rootMargin: "100%" });
  near.observe($(".in-full"));

  recall();
  if (location.search.length > 1 && !location.hash) search.scrollIntoView();
  addEventListener("popstate", () => { if (location.search !== remembered) recall(); });
  follow();
  matrix.removeAttribute("aria-busy");
})();
