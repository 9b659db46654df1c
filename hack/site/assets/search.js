// Search over all sections of all pages. The index is loaded when somebody begins to search.
(() => {
	const form = document.getElementById("search");
	const input = form.querySelector("input");
	const results = document.getElementById("search-results");
	const root = form.querySelector(".index").href;
	const limit = 20;
	let index;

	const load = () => {
		index ??= fetch(new URL("search.json", root))
			.then((response) => response.ok ? response.json() : Promise.reject(response.status))
			.then((sections) => sections.map((section) => ({
				...section,
				words: [section.title, section.heading, section.text, section.code].map((text) => text.toLowerCase()),
			})));
		index.catch(() => { index = undefined; }); // the next attempt loads it again
		return index;
	};

	// A section matches if it contains all terms, also in the title of its page. Headings count more than texts, whole words
	// more than parts, and what to do more than why it is so.
	const score = ({url, words: [title, heading, text, code]}, terms) => {
		let total = 0;
		for (const term of terms) {
			const word = new RegExp(`(^|[^a-z0-9])${RegExp.escape?.(term) ?? term.replace(/[^a-z0-9]/g, "\\$&")}($|[^a-z0-9])`);
			const points = (where, weight) => where.includes(term) ? weight * (word.test(where) ? 2 : 1) : 0;
			const found = points(title, heading ? 2 : 8) + points(heading, 8) + points(`${text} ${code}`, 1);
			if (!found) return 0;
			total += found;
		}
		return /^(decisions|changelog)\//.test(url) ? total / 4 : total;
	};

	const excerpt = ({text, words}, terms) => {
		const found = terms.map((term) => words[2].indexOf(term)).filter((at) => at >= 0);
		const from = found.length ? Math.max(0, Math.min(...found) - 60) : 0;
		return (from ? "… " : "") + text.slice(from, from + 180);
	};

	const line = (section, terms) => {
		const link = document.createElement("a");
		link.href = new URL(section.url, root);
		const title = document.createElement("strong");
		title.textContent = section.heading ? `${section.title} › ${section.heading}` : section.title;
		const text = document.createElement("small");
		text.textContent = excerpt(section, terms);
		link.append(title, text);
		return link;
	};

	const note = (text) => {
		const paragraph = document.createElement("p");
		paragraph.textContent = text;
		return paragraph;
	};

	const search = async () => {
		const query = input.value.trim().toLowerCase();
		const terms = query.split(/\s+/).filter(Boolean);
		results.hidden = !terms.length;
		if (!terms.length) return;
		let sections;
		try {
			sections = await load();
		} catch {
			results.replaceChildren(note("The search index could not be loaded."));
			return;
		}
		if (query !== input.value.trim().toLowerCase()) return; // a later search replaces this one
		const found = sections.map((section) => [score(section, terms), section]).filter(([points]) => points).sort(([a], [b]) => b - a);
		const count = found.length > limit ? `The best ${limit} of ${found.length} sections` : `${found.length} sections`;
		results.replaceChildren(note(found.length ? count : "Nothing found."), ...found.slice(0, limit).map(([, section]) => line(section, terms)));
	};

	const close = () => { results.hidden = true; };

	form.hidden = false;
	input.value = new URLSearchParams(location.search).get("q") ?? "";
	search();
	form.addEventListener("submit", (event) => {
		event.preventDefault();
		results.querySelector("a")?.click();
	});
	input.addEventListener("focus", () => { load().catch(() => {}); search(); });
	input.addEventListener("input", search);
	form.addEventListener("keydown", (event) => {
		const links = [...results.querySelectorAll("a")];
		const at = links.indexOf(document.activeElement);
		if (event.key === "Escape") {
			input.focus();
			close();
		} else if (event.key === "ArrowDown" && links.length) {
			links[Math.min(at + 1, links.length - 1)].focus();
			event.preventDefault();
		} else if (event.key === "ArrowUp" && at >= 0) {
			(links[at - 1] ?? input).focus();
			event.preventDefault();
		}
	});
	document.addEventListener("click", (event) => { if (!form.contains(event.target)) close(); });
	results.addEventListener("click", (event) => { if (event.target.closest("a")) close(); });
	document.addEventListener("keydown", (event) => {
		const typing = event.target.closest("input, textarea, [contenteditable]");
		if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
			input.focus();
			event.preventDefault();
		}
	});
})();
