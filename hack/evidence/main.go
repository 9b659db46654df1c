// Command evidence lists the tests that prove each claim of the documentation. A page names them in a comment behind the
// claim, `<!-- proof: TestName, TestOther -->`, which readers do not see. It fails if a proof does not exist, if an item of
// a list of guarantees has none, or if readers see the name of a test.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const header = `# Evidence

The tests behind the claims of the documentation, with their level. ` + "`make generate`" + ` writes this page from the comments in the
pages; [CONTRIBUTING.md](../CONTRIBUTING.md#documentation) says how a claim gets its proof.

| Level | Runs |
|---|---|
| pure | without a cluster: ` + "`make test-pure`" + `. Tests of engines start a real NATS, Redis or RabbitMQ server |
| control plane | with a real API server, Job controller and garbage collector: ` + "`make test`" + ` |
| node | on a real node: ` + "`make e2e`" + ` |
| browser | the page in headless Chromium: ` + "`make soak SOAK_PARTS=ui`" + ` |
| soak | longer than CI has time for, before a release: ` + "`make soak`" + ` |
| benchmark | ` + "`make bench`" + ` |
`

// maxClaim is how many characters of a claim the page shows.
const maxClaim = 180

var (
	comment     = regexp.MustCompile(`<!--[^>]*-->`)
	proof       = regexp.MustCompile(`<!-- proof: ((?:(?:(?:Test|Fuzz)[A-Z]\w*(?:/\w+)?|test/bench/\w+)(?:, )?)+) -->`)
	testName    = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	link        = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	sentenceEnd = regexp.MustCompile("[.?][)*`\"]* ")
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: evidence <file to write>")
		os.Exit(2)
	}
	page, err := evidence(os.DirFS("."))
	if err == nil {
		err = os.WriteFile(os.Args[1], page, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// evidence returns the page, or an error with all problems of the documentation.
func evidence(root fs.FS) ([]byte, error) {
	var pages []string
	levels := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "docs/decisions"}, name) {
				return fs.SkipDir
			}
			if path.Dir(name) == "test/bench" {
				levels[name] = "benchmark"
			}
			return nil
		}
		switch {
		case path.Ext(name) == ".md" && (path.Dir(name) == "." || strings.HasPrefix(name, "docs/")) && name != "docs/evidence.md":
			pages = append(pages, name)
		case strings.HasSuffix(name, "_test.go"):
			return readLevels(root, name, levels)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := bytes.NewBufferString(header)
	var problems []error
	for _, name := range pages {
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		rows, found := claims(name, string(content), levels)
		problems = append(problems, found...)
		if len(rows) > 0 {
			fmt.Fprintf(out, "\n## %s\n\n| Section | Claim | Tests |\n|---|---|---|\n%s", name, strings.Join(rows, ""))
		}
	}
	return out.Bytes(), errors.Join(problems...)
}

// readLevels adds the level of each test of a file. A name in several packages has all of their levels.
func readLevels(root fs.FS, name string, levels map[string]string) error {
	content, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	level := "pure"
	for _, folder := range []struct{ prefix, level string }{
		{"test/integration/restore/", "soak"},
		{"test/integration/fuzz/", "soak"},
		{"test/integration/endurance/", "soak"},
		{"test/integration/", "control plane"},
		{"test/e2e/", "node"},
		{"test/install/", "soak"},
		{"test/agents/", "soak"},
		{"test/ui/", "browser"},
	} {
		if strings.HasPrefix(name, folder.prefix) {
			level = folder.level
			break
		}
	}
	found := declaration.FindAllSubmatchIndex(content, -1)
	for i, match := range found {
		test, end, of := string(content[match[2]:match[3]]), len(content), level
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		if body := content[match[0]:end]; bytes.Contains(body, []byte("skipUnlessSoaking(t)")) || bytes.Contains(body, []byte("use make soak")) {
			of = "soak"
		}
		if known := levels[test]; known != "" && !slices.Contains(strings.Split(known, ", "), of) {
			of = known + ", " + of
		}
		levels[test] = of
	}
	return nil
}

// claims returns a row for each claim of a page that has a proof, and what is wrong with the page.
func claims(name, content string, levels map[string]string) (rows []string, problems []error) {
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s:%d: "+format, append([]any{name, line + 1}, args...)...))
	}
	lines := strings.Split(content, "\n")
	heading, anchors, guaranteed, fenced := "", map[string]int{}, false, false
	for i, line := range lines {
		if visible := proof.ReplaceAllString(line, ""); testName.MatchString(visible) {
			test := testName.FindString(visible)
			report(i, "readers see %s: name it in a comment, <!-- proof: %s -->", test, test)
		}
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
		}
		switch {
		case fenced:
			continue
		case strings.HasPrefix(line, "#"):
			title := link.ReplaceAllString(strings.TrimSpace(strings.TrimLeft(line, "#")), "$1")
			anchor := anchorOf(title)
			anchors[anchor]++
			if anchors[anchor] > 1 {
				anchor = fmt.Sprintf("%s-%d", anchor, anchors[anchor]-1)
			}
			heading = fmt.Sprintf("[%s](%s#%s)", title, relative(name), anchor)
			guaranteed = title == "What is guaranteed"
		case trimmed == "Guarantees:":
			guaranteed = true
		case guaranteed && strings.HasPrefix(line, "- "):
			end := i + 1
			for end < len(lines) && strings.HasPrefix(lines[end], "  ") {
				end++
			}
			if !proof.MatchString(strings.Join(lines[i:end], " ")) {
				report(i, "this guarantee has no proof")
			}
		case guaranteed && line != "" && !strings.HasPrefix(line, "  "):
			guaranteed = false
		}
		if strings.Count(line, "<!-- proof") != len(proof.FindAllString(line, -1)) {
			report(i, "malformed proof: write <!-- proof: TestName, TestOther --> on one line")
		}
		for _, match := range proof.FindAllStringSubmatchIndex(line, -1) {
			alone := trimmed == line[match[0]:match[1]]
			if strings.HasPrefix(trimmed, "<!--") && (!alone || i+1 < len(lines) && lines[i+1] != "" || i > 0 && lines[i-1] != "") {
				report(i, "a proof at the beginning of a line ends the paragraph: write it behind its sentence, or between empty lines")
			}
			var tests []string
			for test := range strings.SplitSeq(line[match[2]:match[3]], ", ") {
				function, _, _ := strings.Cut(test, "/")
				level := cmp.Or(levels[test], levels[function])
				if level == "" {
					report(i, "%s does not exist", test)
				}
				tests = append(tests, fmt.Sprintf("%#q (%s)", test, level))
			}
			claim := "the section"
			if !alone {
				claim = shortened(claimBefore(lines[:i], line[:match[0]], line))
			}
			rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", heading, claim, strings.Join(tests, ", ")))
		}
	}
	return rows, problems
}

// claimBefore returns the row of a table or the sentence that ends where a proof begins.
func claimBefore(above []string, before, line string) string {
	if strings.HasPrefix(line, "|") {
		cells := strings.Split(strings.Trim(comment.ReplaceAllString(before, ""), "| "), " | ")
		return strings.TrimSpace(strings.Join(cells, ": "))
	}
	for i := len(above) - 1; i >= 0 && !startsBlock(before); i-- {
		if above[i] == "" || strings.HasPrefix(above[i], "#") || strings.HasPrefix(above[i], "|") || strings.HasPrefix(above[i], "```") {
			break
		}
		before = above[i] + " " + strings.TrimSpace(before)
	}
	text := strings.TrimSpace(comment.ReplaceAllString(before, ""))
	text = strings.TrimSpace(strings.TrimPrefix(text, "- "))
	if ends := sentenceEnd.FindAllStringIndex(text, -1); len(ends) > 0 && !strings.HasPrefix(before, "- ") {
		text = text[ends[len(ends)-1][1]:]
	}
	return text
}

func startsBlock(line string) bool {
	return strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "  - ")
}

func shortened(claim string) string {
	claim = strings.ReplaceAll(link.ReplaceAllString(claim, "$1"), "|", `\|`)
	if len(claim) <= maxClaim {
		return claim
	}
	cut := strings.LastIndex(claim[:maxClaim], " ")
	if strings.Count(claim[:cut], "`")%2 == 1 {
		cut = strings.LastIndex(claim[:cut], "`")
	}
	return strings.TrimRight(claim[:cut], " ,;:") + " …"
}

func anchorOf(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, title)
}

// relative returns the path of a page from docs/evidence.md.
func relative(name string) string {
	if rest, found := strings.CutPrefix(name, "docs/"); found {
		return rest
	}
	return "../" + name
}
