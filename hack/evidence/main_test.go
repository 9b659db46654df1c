package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/yardmaster/yardmaster/test/require"
)

const tests = "package p\n\nfunc TestRule(t *testing.T) {\n}\n\nfunc TestLong(t *testing.T) {\n\tskipUnlessSoaking(t)\n}\n"

func TestEachClaimHasARowWithItsTestsAndTheirLevels(t *testing.T) {
	page, err := evidence(fstest.MapFS{
		"a/rule_test.go":           {Data: []byte(tests)},
		"test/e2e/node_test.go":    {Data: []byte(tests)},
		"test/bench/jobs/main.go":  {},
		"docs/decisions/0001-a.md": {Data: []byte("TestRule")},
		"docs/page.md": {Data: []byte("# Page\n## Order & time\nFirst. The [second](x.md)\nsentence. <!-- proof: TestRule --> Third.\n\n" +
			"Guarantees:\n\n- one:\n  a | b <!-- proof: TestLong/case -->\n\nText.\n\n- no guarantee\n\n## Table\n\n| A | B |\n|---|---|\n| x | y <!-- proof: test/bench/jobs --> | z |\n\n" +
			"<!-- proof: TestRule, TestLong -->\n")},
	})
	require.NoError(t, err)
	_, got, _ := strings.Cut(string(page), "## docs/page.md\n\n| Section | Claim | Tests |\n|---|---|---|\n")
	want := "| [Order & time](page.md#order--time) | The second sentence. | `TestRule` (pure, node) |\n" +
		"| [Order & time](page.md#order--time) | one: a \\| b | `TestLong/case` (soak) |\n" +
		"| [Table](page.md#table) | x: y | `test/bench/jobs` (benchmark) |\n" +
		"| [Table](page.md#table) | the section | `TestRule` (pure, node), `TestLong` (soak) |\n"
	require.Equal(t, want, got)
}

func TestMissingVisibleAndMisplacedProofsAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"A claim. <!-- proof: TestGone -->":            "TestGone does not exist",
		"A claim (`TestRule`).":                        "readers see TestRule",
		"```\ngo test -run TestRule\n```":              "readers see TestRule",
		"A claim. <!-- proof: TestRule":                "readers see TestRule",
		"A claim. <!-- proof: TestRule, on a node -->": "malformed proof",
		"A claim. <!--proof: TestGone-->":              "name it in a comment",
		"A claim.\n<!-- proof: TestRule -->\nText.":    "ends the paragraph",
		"## What is guaranteed\n\n- a promise":         "has no proof",
	} {
		_, err := evidence(fstest.MapFS{"a/rule_test.go": {Data: []byte(tests)}, "README.md": {Data: []byte(text)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
