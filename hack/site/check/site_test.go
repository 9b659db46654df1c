package main

import (
	"testing"
	"testing/fstest"

	"github.com/yardmaster/yardmaster/test/require"
)

const queue = `<!doctype html><title>Queue</title><link rel="stylesheet" href="../style.css">
<h1 id="queue">Queue</h1><h2 id="retry-policy">Retry policy</h2><a href="../">Home</a>`

func TestSiteIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		page  string
		index string
		want  []string
	}{
		"links to pages, sections, files and other sites": {
			page: `<a href="queue/">a</a><a href="queue/index.html#retry-policy">b</a><a href="#top">c</a><a href="style.css">d</a>
				<a href="https://kubernetes.io/docs/">e</a><a href="./">f</a><link rel="icon" href="data:,">`,
			index: `[{"url": ""}, {"url": "queue/"}, {"url": "queue/#retry-policy"}]`,
		},
		"a page that does not exist":    {page: `<a href="pool/">a</a>`, want: []string{"index.html: links to pool/, which does not exist"}},
		"a section that does not exist": {page: `<a href="queue/#retries">a</a>`, want: []string{"index.html: links to queue/#retries, but that page has no such section"}},
		"a section of the page itself":  {page: `<a href="#bottom">a</a>`, want: []string{"index.html: links to #bottom, but that page has no such section"}},
		"a path from the root": {
			page: `<a href="/queue/">a</a>`, want: []string{"index.html: links to /queue/, which is right only at the root of a server"},
		},
		"a script of another server": {
			page: `<script src="https://example.org/x.js"></script>`, want: []string{"index.html: loads https://example.org/x.js, which is on another server"},
		},
		"an image for dark pages that does not exist": {
			page: `<picture><source srcset="dark.png"></picture>`, want: []string{"index.html: loads dark.png, which does not exist"},
		},
		"an image without a protocol": {
			page: `<img src="//example.org/x.png">`, want: []string{"index.html: loads //example.org/x.png, which is on another server"},
		},
		"a style that does not exist": {
			page: `<link rel="stylesheet" href="dark.css">`, want: []string{"index.html: loads dark.css, which does not exist"},
		},
		"an ID twice": {page: `<p id="top">`, want: []string{"index.html: has 2 elements with the ID top"}},
		"two headings of level 1": {
			page: `<h1>Again</h1>`, want: []string{`index.html: has 2 headings of level 1 and the title "Home"; a page has one of each`},
		},
		"a section in the search index": {
			index: `[{"url": "queue/#retries"}]`, want: []string{"search.json: links to queue/#retries, but that page has no such section"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.index == "" {
				test.index = "[]"
			}
			s, err := read(fstest.MapFS{
				"index.html":       {Data: []byte(`<title>Home</title><h1 id="top">Home</h1>` + test.page)},
				"queue/index.html": {Data: []byte(queue)},
				"style.css":        {},
				"search.json":      {Data: []byte(test.index)},
			})
			require.NoError(t, err)
			require.Equal(t, test.want, s.problems())
		})
	}
}
