package main

import (
	"encoding/json"
	"fmt"
	"html"
	"strings"

	nethtml "golang.org/x/net/html"
)

// page is an HTML file with the sources of its diagrams.
type page struct {
	name, html string
	sources    []string
}

// The layout of a diagram, layouts/_markup/render-codeblock-mermaid.html, contains the placeholder and an element of this class with
// the source.
const (
	placeholder = `<div class="drawing"></div>`
	sourceClass = "diagram-source"
)

func parsePage(name, content string) (page, error) {
	p := page{name: name, html: content}
	root, err := nethtml.Parse(strings.NewReader(content))
	if err != nil {
		return page{}, fmt.Errorf("%s: %w", name, err)
	}
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			if attribute.Key == "class" && attribute.Val == sourceClass {
				p.sources = append(p.sources, textOf(node))
			}
		}
	}
	if places := strings.Count(content, placeholder); places != len(p.sources) {
		return page{}, fmt.Errorf("%s has %d sources of diagrams, and %d places for drawings", name, len(p.sources), places)
	}
	return p, nil
}

func textOf(node *nethtml.Node) string {
	var text strings.Builder
	for child := range node.Descendants() {
		if child.Type == nethtml.TextNode {
			text.WriteString(child.Data)
		}
	}
	return text.String()
}

// drawing is what Mermaid makes of a source: an SVG element or an error.
type drawing struct{ SVG, Error string }

// insert returns the page with its drawings.
func (p *page) insert(drawings []drawing) (string, error) {
	drawn := p.html
	for i, d := range drawings {
		if d.Error != "" || !strings.HasPrefix(d.SVG, "<svg") {
			return "", fmt.Errorf("%s: Mermaid does not draw diagram %d: %s\n%s", p.name, i+1, d.Error, p.sources[i])
		}
		drawn = strings.Replace(drawn, placeholder, `<div class="drawing" tabindex="0">`+d.SVG+`</div>`, 1)
	}
	return drawn, nil
}

// drawings have a light background. Dark pages invert their colors. Arial, Liberation Sans and Helvetica have the same widths, so
// that the text fits into its boxes wherever the site is built and read.
const drawScript = `
mermaid.initialize({startOnLoad: false, theme: "neutral", fontFamily: 'Arial, "Liberation Sans", Helvetica, sans-serif'});
(async () => {
	const drawings = [];
	for (const [i, source] of sources.entries()) {
		try {
			const element = document.createElement("div");
			document.body.append(element);
			element.innerHTML = (await mermaid.render("diagram-" + i, source)).svg;
			const svg = element.firstElementChild;
			svg.setAttribute("role", "img");
			svg.setAttribute("aria-label", "Diagram, with its source below");
			svg.style.minWidth = Math.round(svg.viewBox.baseVal.width * 0.7) + "px"; // smaller text would be hard to read
			drawings.push({svg: element.innerHTML});
		} catch (error) {
			drawings.push({error: String(error)});
		}
	}
	const result = document.createElement("script");
	result.id = "drawings";
	result.type = "application/json";
	result.textContent = JSON.stringify(drawings).replaceAll("<", "\\u003c");
	document.body.append(result);
})();
`

// drawingPage returns a page that draws the sources and appends the result, in JSON.
func drawingPage(mermaid string, sources []string) string {
	list, err := json.Marshal(sources) // escapes <
	if err != nil {
		panic(err) // strings have no values that JSON lacks
	}
	return "<!doctype html><meta charset=utf-8><title>Diagrams</title><body><script>" + strings.ReplaceAll(mermaid, "</script", `<\/script`) + "</script>\n" +
		"<script>const sources = " + string(list) + ";" + drawScript + "</script>"
}

// readDrawings returns the result of a drawingPage of this number of sources.
func readDrawings(dump string, count int) ([]drawing, error) {
	_, result, found := strings.Cut(dump, `<script id="drawings" type="application/json">`)
	result, _, ended := strings.Cut(result, "</script>")
	if !found || !ended {
		return nil, fmt.Errorf("the browser did not end. Its page begins with %s", html.EscapeString(dump[:min(len(dump), 200)]))
	}
	var drawings []drawing
	if err := json.Unmarshal([]byte(result), &drawings); err != nil {
		return nil, fmt.Errorf("reading the drawings: %w", err)
	}
	if len(drawings) != count {
		return nil, fmt.Errorf("there are %d drawings of %d sources", len(drawings), count)
	}
	return drawings, nil
}
