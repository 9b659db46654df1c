// The script of kubectl yardmaster ui: what htmx does not do. It puts text from the cluster into the page only as text.
(() => {
  "use strict";

  const maxLogLines = 2000;

  // Ages as kubectl shows them.
  function formatDuration(seconds) {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 120) return s + "s";
    if (s < 600) return Math.floor(s / 60) + "m" + (s % 60 ? (s % 60) + "s" : "");
    if (s < 10800) return Math.floor(s / 60) + "m";
    if (s < 172800) return Math.floor(s / 3600) + "h";
    return Math.floor(s / 86400) + "d";
  }

  function showTimes() {
    const now = Date.now();
    // Nobody knows how long something has run whose state is not known.
    const isOld = document.querySelector(".note.lost") || document.getElementById("connection")?.textContent;
    for (const element of document.querySelectorAll("time[data-age], time[data-since]")) {
      if (isOld && element.hasAttribute("data-since")) {
        if (!element.textContent.endsWith("?")) element.textContent += " ?";
        continue;
      }
      const seconds = (now - Date.parse(element.dateTime)) / 1000;
      const isFuture = seconds < 0;
      const duration = formatDuration(Math.abs(seconds));
      const text = element.hasAttribute("data-since") ? duration : isFuture ? "in " + duration : duration + " ago";
      if (element.textContent !== text) element.textContent = text;
    }
  }

  function showConnection(text) {
    const element = document.getElementById("connection");
    if (element && element.textContent !== text) element.textContent = text;
  }

  const dialog = () => document.getElementById("dialog");

  function closeDialog() {
    if (!dialog().open) return;
    const ran = document.querySelector("#dialog-content [role=status]");
    dialog().close();
    document.getElementById("dialog-content").replaceChildren();
    // A page without a stream shows what it read once.
    if (ran && !document.getElementById("events")) location.reload();
  }

  // Each cell gets the name of its column, for narrow windows.
  function nameCells() {
    for (const table of document.querySelectorAll("main table, dialog table")) {
      const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
      for (const row of table.tBodies[0]?.rows ?? []) {
        [...row.cells].forEach((cell, i) => { if (cell.tagName === "TD" && cell.colSpan === 1 && names[i]) cell.dataset.name = names[i]; });
      }
      table.classList.add("named");
    }
  }

  // A turn of a conversation: what is long is folded.
  function turnElement(turn) {
    const text = turn.text ?? "", lines = turn.lines ?? [];
    const isFolded = lines.length > 0 || turn.kind === "result" && text.split("\n").length > 2 || turn.kind === "thinking" && text.length > 200;
    const element = document.createElement(isFolded ? "details" : "div");
    element.className = "turn " + turn.kind + (isFolded ? "" : " plain");
    if (!isFolded) {
      element.textContent = [turn.head, text].filter(Boolean).join(": ");
      return element;
    }
    const summary = element.appendChild(document.createElement("summary"));
    summary.textContent = turn.head ?? text.split("\n")[0].slice(0, 120) + " …";
    const body = element.appendChild(document.createElement("pre"));
    body.textContent = text;
    for (const line of lines) {
      const part = body.appendChild(document.createElement("span"));
      part.className = line.Removed ? "removed" : line.Added ? "added" : "";
      part.textContent = (line.Removed ? "- " : line.Added ? "+ " : "  ") + line.Text + "\n";
    }
    return element;
  }

  function lineElement(line) {
    const element = document.createElement("span");
    element.textContent = line + "\n";
    return element;
  }

  function filterLine(element, text) {
    element.classList.toggle("other", text !== "" && !element.textContent.toLowerCase().includes(text));
  }

  const logFilter = () => document.getElementById("log-filter")?.value.toLowerCase() ?? "";

  function appendLog(lines) {
    const log = document.getElementById("log-lines");
    if (!log) return;
    const filter = logFilter();
    for (const line of lines) {
      const element = typeof line === "string" ? lineElement(line) : turnElement(line);
      filterLine(element, filter);
      log.append(element);
    }
    while (log.childElementCount > maxLogLines) log.firstElementChild.remove();
    if (document.getElementById("log-follow").checked) log.scrollTop = log.scrollHeight;
  }

  async function copyCommand(button) {
    // A link for others is a command: the address of this page has a secret.
    const base = new URL(document.querySelector(".home").href).pathname.split("/")[1];
    const path = (location.pathname + location.search).slice(base.length + 1);
    const text = button.dataset.text ? `${button.dataset.text} --open '${path}'` : button.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      const code = button.parentElement.querySelector("code") ?? button.parentElement.appendChild(document.createElement("code"));
      code.textContent = text;
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  }

  function listen(events) {
    events?.addEventListener("loglines", (event) => appendLog(JSON.parse(event.detail.data)));
    events?.addEventListener("logreset", () => document.getElementById("log-lines")?.replaceChildren());
  }

  // While the user types, the stream of the page is replaced by one with the new text. Other pages are opened with Enter.
  let typing;
  function filterLive(field) {
    const old = document.getElementById("events");
    if (!old || new URL(field.form.action).pathname !== location.pathname) return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      const query = new URLSearchParams(location.search);
      query.delete("page");
      query.set("q", field.value);
      history.replaceState(null, "", "?" + query);
      const events = document.createElement("div"), address = new URL(old.getAttribute("hx-sse:connect"), location.href);
      address.searchParams.set("query", query);
      for (const { name, value } of old.attributes) if (name === "id" || name.startsWith("hx-")) events.setAttribute(name, value);
      events.setAttribute("hx-sse:connect", address.pathname + address.search);
      old._htmx?.sse?.abortController?.abort();
      old.replaceWith(events);
      listen(events);
      htmx.process(events);
    }, 120);
  }

  // moveRow focuses the link of the next row, or of the previous one.
  function moveRow(step) {
    const rows = [...document.querySelectorAll("main tbody th a")];
    const next = rows.indexOf(document.activeElement) + step;
    rows[Math.max(0, Math.min(rows.length - 1, next))]?.focus();
  }

  document.addEventListener("DOMContentLoaded", () => {
    showTimes();
    nameCells();
    setInterval(showTimes, 1000);
    document.getElementById("log-filter")?.addEventListener("input", () => {
      for (const element of document.getElementById("log-lines").children) filterLine(element, logFilter());
    });
    listen(document.getElementById("events"));
    for (const field of document.querySelectorAll("#filter, #search")) field.addEventListener("input", () => filterLive(field));
    document.getElementById("show-keys").addEventListener("click", () => document.getElementById("keys").showModal());
    dialog().addEventListener("cancel", (event) => { event.preventDefault(); closeDialog(); });
  });

  document.addEventListener("htmx:after:swap", (event) => {
    showTimes();
    nameCells();
    if (document.querySelector("#message-status [data-sent]")) {
      document.getElementById("message-text").value = "";
      document.querySelector("#message-status [data-sent]").removeAttribute("data-sent");
    }
    if (document.getElementById("dialog-content").childElementCount > 0 && !dialog().open) dialog().showModal();
  });
  document.addEventListener("htmx:sse:after:connection", () => showConnection(""));
  document.addEventListener("htmx:sse:error", () => showConnection(
    "Disconnected: kubectl yardmaster ui does not answer. What is shown may be old. The page tries again."));

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-close], [data-copy]");
    if (!target) return;
    if (target.hasAttribute("data-copy")) return void copyCommand(target);
    if (dialog().open) { event.preventDefault(); closeDialog(); }
  });

  let chord = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    const before = chord;
    chord = event.key === "g" ? "g" : "";
    const target = before === "g" ? document.querySelector(`header a[data-key="${CSS.escape(event.key)}"]`) : null;
    const field = { "/": "search", f: document.getElementById("filter") ? "filter" : "log-filter" }[event.key];
    if (target) target.click();
    else if (field) document.getElementById(field)?.focus();
    else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
    else if (event.key === "?") document.getElementById("keys").showModal();
    else return;
    event.preventDefault();
  });
})();
