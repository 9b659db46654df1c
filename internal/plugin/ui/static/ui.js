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

  function filterLine(element, text) {
    element.classList.toggle("other", text !== "" && !element.textContent.toLowerCase().includes(text));
  }

  const logFilter = () => document.getElementById("log-filter")?.value.toLowerCase() ?? "";

  function appendLog(lines) {
    const log = document.getElementById("log-lines");
    if (!log) return;
    const filter = logFilter();
    for (const line of lines) {
      const element = document.createElement("span");
      element.textContent = line + "\n";
      filterLine(element, filter);
      log.append(element);
    }
    while (log.childElementCount > maxLogLines) log.firstElementChild.remove();
    if (document.getElementById("log-follow").checked) log.scrollTop = log.scrollHeight;
  }

  async function copyCommand(button) {
    const text = button.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.parentElement.querySelector("code"));
      button.textContent = "Selected";
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    showTimes();
    nameCells();
    setInterval(showTimes, 1000);
    document.getElementById("log-filter")?.addEventListener("input", () => {
      for (const element of document.getElementById("log-lines").children) filterLine(element, logFilter());
    });
    const events = document.getElementById("events");
    if (events) {
      events.addEventListener("loglines", (event) => appendLog(JSON.parse(event.detail.data)));
      events.addEventListener("logreset", () => document.getElementById("log-lines")?.replaceChildren());
    }
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

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    const filter = document.getElementById("filter") ?? document.getElementById("log-filter");
    if (!filter || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    filter.focus();
  });
})();
