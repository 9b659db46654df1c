package main

import (
	"testing"
	"testing/fstest"

	"github.com/yardmaster/yardmaster/test/require"
)

const tests = "package p\n\nfunc TestRule(t *testing.T) {\n}\n\nfunc TestLong(t *testing.T) {\n\tskipUnlessSoaking(t)\n}\n"

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
		require.ErrorContains(t, err, want)
	}
}
