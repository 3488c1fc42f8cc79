// Searches SEARCH_INDEX, which docs/site/search_index.py writes. A result is a section, a declaration or a field, with the
// text around the first word that was found.
"use strict";

const SHOWN = 60, BEFORE = 60, EXCERPT = 220;

function forms(word) {
  return word.length > 3 && word.endsWith("s") ? word.slice(0, -1) : word; // also finds the singular
}

// Counts a word, at most five times. Inside another word it counts less.
function count(text, word) {
  let found = 0;
  for (let at = text.indexOf(word); at >= 0 && found < 5; at = text.indexOf(word, at + 1))
    found += /\w/.test(text.charAt(at - 1)) ? 0.3 : 1;
  return found;
}

// How well an entry fits, or 0 if it lacks a word.
function score(entry, page, query, words) {
  const name = entry.title.toLowerCase(), text = entry.text.toLowerCase(), title = page.title.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const inName = name.includes(word), inText = count(text, word);
    if (!inName && !inText) return 0;
    sum += (inName ? (name.split(/\W+/).includes(word) ? 40 : 20) : 0) + 2 * inText + (title.includes(word) ? 8 : 0);
  }
  if (name === query) sum += 1000;
  else if (entry.kind === "field" && name.split(".")[1] === query) sum += name.includes("_options.") ? 600 : 500;
  else if (name.startsWith(query)) sum += 50;
  return sum * page.weight;
}

function search(query) {
  const words = query.split(/[^\p{L}\p{N}_.]+/u).filter(Boolean).map(forms);
  const found = [];
  if (words.length === 0) return [words, found];
  for (const [number, anchor, title, kind, text] of SEARCH_INDEX.entries) {
    const [url, name, weight] = SEARCH_INDEX.pages[number];
    const entry = { title, kind, text }, page = { title: name, weight };
    const value = score(entry, page, query, words);
    if (value > 0) found.push({ value, url: anchor ? `${url}#${anchor}` : url, page: name, ...entry });
  }
  found.sort((a, b) => b.value - a.value); // a stable sort: equal entries keep the order of the pages
  return [words, found];
}

function append(parent, tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  parent.append(made);
  return made;
}

// Writes the text around the first word, with all words marked.
function excerpt(item, text, words) {
  const lower = text.toLowerCase();
  const first = Math.min(...words.map((w) => lower.indexOf(w)).filter((at) => at >= 0), text.length);
  let begin = first < text.length ? Math.max(0, first - BEFORE) : 0;
  if (begin > 0) begin = text.indexOf(" ", begin) + 1 || begin;
  let end = begin + EXCERPT < text.length ? text.lastIndexOf(" ", begin + EXCERPT) : text.length;
  if (end <= begin) end = begin + EXCERPT;
  const shown = text.slice(begin, end);
  const line = append(item, "p", begin > 0 ? "... " : "", "context");
  const escaped = words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  shown.split(new RegExp(`((?:${escaped.join("|")})\\w*)`, "iu")).forEach((part, i) => {
    if (i % 2 === 1) append(line, "mark", part); // what the regular expression matches
    else line.append(part);
  });
  if (end < text.length) line.append(" ...");
}

function show(query) {
  const [words, found] = search(query.trim().toLowerCase().replace(/\(\)$/, ""));
  const list = document.getElementById("search-results"), summary = document.getElementById("search-summary");
  const total = found.length === 1 ? "One place has" : `${found.length} places have`;
  summary.textContent = found.length === 0 ? `No place has all words of "${query}".`
    : `${total} "${query}"${found.length > SHOWN ? `. These are the first ${SHOWN}:` : ":"}`;
  for (const one of found.slice(0, SHOWN)) {
    const item = document.createElement("li");
    const link = append(item, "a", one.kind || one.title === one.page ? one.title : `${one.page} > ${one.title}`);
    link.href = one.url;
    if (one.kind) append(item, "span", ` ${one.kind}, in ${one.page}`, "kind");
    excerpt(item, one.text, words);
    list.append(item);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const query = new URLSearchParams(window.location.search).get("q") || "";
  document.querySelectorAll('input[name="q"]').forEach((input) => (input.value = query));
  if (query.trim()) show(query);
});
