package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/yardmaster/yardmaster/test/require"
)

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	htmlAnchor = regexp.MustCompile(`<a id="([^"]+)">`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// The build of the site checks this too, but takes longer, and readers on GitHub follow these links.
func TestLinksOfMarkdownFilesLeadSomewhere(t *testing.T) {
	problems, checked := linkProblems(os.DirFS("../../.."))
	for _, problem := range problems {
		t.Error(problem)
	}
	require.True(t, checked >= 1000, "only %d links were found", checked)
}

// A feature that came later is also in the pages that were written before, and its guide names them.
func TestPagesOfFeaturesLinkToTheirGuide(t *testing.T) {
	root := os.DirFS("../../..")
	links := func(from, to string) {
		if content, err := fs.ReadFile(root, "docs/"+from); err != nil || !strings.Contains(string(content), "]("+to) {
			t.Errorf("a feature of docs/features.yaml is in docs/%s and docs/%s, but the first does not link to the second: %v", from, to, err)
		}
	}
	guides := map[string]bool{}
	for _, line := range prose(root, "docs/features.md") {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| [") {
			continue
		}
		for _, feature := range linkTarget.FindAllStringSubmatch(cells[1], -1) {
			guide, _, _ := strings.Cut(feature[1], "#")
			guides[guide] = true
			for _, match := range linkTarget.FindAllStringSubmatch(strings.Join(cells[2:], " "), -1) {
				other, _, _ := strings.Cut(match[1], "#")
				links(other, guide)
				links(guide, other)
			}
		}
	}
	for _, page := range []string{"sequentialjob", "schedule", "jobreport", "queue", "workerpool", "policy", "agenticsession", "runner"} {
		require.True(t, guides[page+".md"], "no feature has the guide docs/%s.md", page)
	}
}

// linkProblems returns which relative links in Markdown files lead to files or sections that do not exist, and the number of links.
func linkProblems(root fs.FS) (problems []string, checked int) {
	for _, file := range markdownFiles(root) {
		for number, line := range prose(root, file) {
			for _, match := range linkTarget.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
				to, section, _ := strings.Cut(match[1], "#")
				if strings.Contains(to, ":") {
					continue // another site
				}
				checked++
				target := file
				if to != "" {
					target = path.Join(path.Dir(file), to)
				}
				if _, err := fs.Stat(root, target); err != nil {
					problems = append(problems, fmt.Sprintf("%s:%d: %s does not exist", file, number+1, target))
				} else if section != "" && !slices.Contains(sections(root, target), section) {
					problems = append(problems, fmt.Sprintf("%s:%d: %s has no section #%s", file, number+1, target, section))
				}
			}
		}
	}
	return problems, checked
}

func markdownFiles(root fs.FS) []string {
	var files []string
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "dist" || name == "bin" || name == ".git"):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return files
}

// prose returns the lines of a file, with empty ones instead of those of code blocks.
func prose(root fs.FS, file string) []string {
	content, err := fs.ReadFile(root, file)
	if err != nil {
		panic(err)
	}
	lines := strings.Split(string(content), "\n")
	fence := ""
	for i, line := range lines {
		marker := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(marker, "```"):
			fence, lines[i] = marker[:len(marker)-len(strings.TrimLeft(marker, "`"))], ""
		case fence != "":
			if marker == fence {
				fence = ""
			}
			lines[i] = ""
		}
	}
	return lines
}

// sections returns the anchors that GitHub and Hugo give to the headings of a file.
func sections(root fs.FS, file string) []string {
	var found []string
	for _, line := range prose(root, file) {
		if match := htmlAnchor.FindStringSubmatch(line); match != nil {
			found = append(found, match[1])
		}
		heading := strings.TrimLeft(line, "#")
		if level := len(line) - len(heading); level == 0 || level > 6 || !strings.HasPrefix(heading, " ") {
			continue
		}
		base := anchor(linkText.ReplaceAllString(strings.TrimSpace(heading), "$1"))
		unique := base
		for i := 1; slices.Contains(found, unique); i++ {
			unique = fmt.Sprintf("%s-%d", base, i)
		}
		found = append(found, unique)
	}
	return found
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
}

const queue = `<!doctype html><title>Queue</title><link rel="stylesheet" href="../style.css">
<h1 id="queue">Queue</h1><h2 id="retry-policy">Retry policy</h2><a href="../">Home</a>`

func TestSiteIsChecked(t *testing.T) {
	for name, test := range map[string]struct{ page, index, want string }{
		"links to pages, sections, files and other sites": {
			page: `<a href="queue/">a</a><a href="queue/index.html#retry-policy">b</a><a href="#top">c</a><a href="style.css">d</a>
				<a href="https://kubernetes.io/docs/">e</a><a href="./">f</a><link rel="icon" href="data:,">`,
			index: `[{"url": ""}, {"url": "queue/"}, {"url": "queue/#retry-policy"}]`,
		},
		"a page that does not exist":   {page: `<a href="pool/">a</a>`, want: "index.html: links to pool/, which does not exist"},
		"a missing section":            {page: `<a href="queue/#retries">a</a>`, want: "index.html: links to queue/#retries, but that page has no such section"},
		"a section of the page itself": {page: `<a href="#bottom">a</a>`, want: "index.html: links to #bottom, but that page has no such section"},
		"a path from the root":         {page: `<a href="/queue/">a</a>`, want: "index.html: links to /queue/, which is right only at the root of a server"},
		"a script of another server": {
			page: `<script src="https://example.org/x.js"></script>`, want: "index.html: loads https://example.org/x.js, which is on another server",
		},
		"an image for dark pages that does not exist": {
			page: `<picture><source srcset="dark.png"></picture>`, want: "index.html: loads dark.png, which does not exist",
		},
		"an image without a protocol": {page: `<img src="//example.org/x.png">`, want: "index.html: loads //example.org/x.png, which is on another server"},
		"a style that does not exist": {page: `<link rel="stylesheet" href="dark.css">`, want: "index.html: loads dark.css, which does not exist"},
		"an ID twice":                 {page: `<p id="top">`, want: "index.html: has 2 elements with the ID top"},
		"two headings of level 1":     {page: `<h1>Again</h1>`, want: `index.html: has 2 headings of level 1 and the title "Home"; a page has one of each`},
		"a section in the search index": {
			index: `[{"url": "queue/#retries"}]`, want: "search.json: links to queue/#retries, but that page has no such section",
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
			require.Equal(t, test.want, strings.Join(s.problems(), "\n"))
		})
	}
}
