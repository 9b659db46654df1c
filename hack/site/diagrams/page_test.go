package main

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

const twoDiagrams = `<!doctype html><p>a</p><figure><div class="drawing"></div><pre><code class="diagram-source">flowchart LR
  A --&gt; B</code></pre></figure><figure><div class="drawing"></div><pre><code class="diagram-source">&lt;/script&gt;</code></pre></figure>`

func TestDiagramsAreDrawnAtTheirPlaces(t *testing.T) {
	p, err := parsePage("queue/index.html", twoDiagrams)
	require.NoError(t, err)
	require.Equal(t, []string{"flowchart LR\n  A --> B", "</script>"}, p.sources)
	if page := drawingPage("draw()</script>", p.sources); strings.Count(page, "</script>") != 2 {
		t.Errorf("a source or Mermaid ends a script of the page: %s", page)
	}
	drawings, err := readDrawings(`<script id="drawings" type="application/json">[{"svg": "\u003csvg>1\u003c/svg>"}, {"svg": "\u003csvg>2\u003c/svg>"}]</script>`, 2)
	require.NoError(t, err)
	drawn, err := p.insert(drawings)
	require.NoError(t, err)
	first, second := strings.Index(drawn, "<svg>1</svg></div><pre>"), strings.Index(drawn, "<svg>2</svg></div><pre>")
	require.True(t, first >= 0 && second >= first && !strings.Contains(drawn, placeholder), "the page is %s", drawn)
}

func TestNoDiagramIsLeftOut(t *testing.T) {
	if _, err := parsePage("queue/index.html", strings.Replace(twoDiagrams, placeholder, "", 1)); err == nil {
		t.Error("a source without a place for its drawing is accepted")
	}
	for name, dump := range map[string]string{
		"no result":   "<html></html>",
		"half result": `<script id="drawings" type="application/json">[{"svg": "`,
		"one drawing": `<script id="drawings" type="application/json">[{"svg": "<svg>"}]</script>`,
	} {
		if _, err := readDrawings(dump, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	p := page{name: "queue/index.html", html: placeholder, sources: []string{"flowchrt LR"}}
	_, err := p.insert([]drawing{{Error: "Parse error"}})
	require.ErrorContains(t, err, "queue/index.html: Mermaid does not draw diagram 1: Parse error\nflowchrt LR")
}
