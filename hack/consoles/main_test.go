package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestPagesAreComparedWithTheOutputOfTheirCommands(t *testing.T) {
	for name, test := range map[string]struct {
		// comment is before the block, whose lines page has.
		comment, page string
		// written are the lines with -write; empty if they stay.
		written string
		// failure is part of the error, if there is one.
		failure string
	}{
		"equal":                                {page: "$ printf 1\n1"},
		"different":                            {page: "$ printf 2\none", written: "$ printf 2\n2"},
		"more than is shown":                   {page: "$ printf '1\\n2\\n'\n1", written: "$ printf '1\\n2\\n'\n1\n2"},
		"less than is shown":                   {page: "$ echo 1\n1\n2", written: "$ echo 1\n1"},
		"other times, ages, hashes and widths": {page: "$ echo 'at 12:30:01 on 2026-11-29: a-0123456789   is 3m20s old'\nat 01:02:03 on 2025-01-02: a-abcdef0123 is 5d old"},
		"another name":                         {page: "$ echo a-0123456789 b\na-abcdef0123 c", written: "$ echo a-0123456789 b\na-0123456789 b"},
		"a line beside another that differs stays": {page: "$ printf '3s\\nnew\\n'\n5s\nold", written: "$ printf '3s\\nnew\\n'\n5s\nnew"},
		"lines left out":                                            {page: "$ seq 9\n1\n[...]\n9"},
		"lines left out, and a wrong end":                           {page: "$ seq 9\n1\n[...]\n8", written: "$ seq 9\n" + strings.Join(strings.Fields("1 2 3 4 5 6 7 8 9"), "\n")},
		"text left out":                                             {page: "$ echo patch -p '{}'\npatch -p [...]"},
		"output that the page omits":                                {page: "$ echo one\n$ printf 2\n2"},
		"several commands":                                          {page: "$ printf 1\n1\n$ printf 3\n2", written: "$ printf 1\n1\n$ printf 3\n3"},
		"a command of several lines":                                {page: "$ echo 'one\ntwo' \\\n  three\none\ntwo three"},
		"errors are shown too":                                      {page: "$ echo wrong >&2; exit 3\nwrong"},
		"a command that fails without output":                       {page: "$ exit 3\n", failure: "$ exit 3: exit status 3"},
		"a command that fails, whose output the page omits":         {page: "$ echo wrong; exit 3", failure: "wrong"},
		"a command that follows is stopped when it has printed all": {page: "$ : watch ; echo one; sleep 600\none"},
		"output without a command":                                  {page: "one", failure: `"one" is the output of no command`},
		"any order":                                                 {comment: "any order", page: "$ printf '1\\n2\\n'\n2\n1"},
		"any order, a line too many":                                {comment: "any order", page: "$ printf '1\\n2\\n'\n2", written: "$ printf '1\\n2\\n'\n1\n2"},
		"any order, a line too few":                                 {comment: "any order", page: "$ echo 2\n2\n1", written: "$ echo 2\n2"},
		"other numbers, and more lines":                             {comment: "other numbers", page: "$ printf 'a 1\\nb 2\\n'\na 7"},
		"other numbers, text left out":                              {comment: "other numbers", page: "$ echo a 1 b, c 2\na 7 [...], c 8\n[...]"},
		"other numbers, another text":                               {comment: "other numbers", page: "$ echo a 1\nb 7", written: "$ echo a 1\na 1"},
		"not run":                                                   {comment: "not run: it needs a chart", page: "$ exit 3\n3"},
		"a part":                                                    {comment: "part of other.md", page: "first took 3s"},
		"a part with other times":                                   {comment: "part of other.md", page: "first took 9s", written: "first took 3s"},
		"a part in another order":                                   {comment: "part of other.md", page: "second\nfirst took 3s", failure: `other.md does not show "first took 3s"`},
		"a part that is missing":                                    {comment: "part of other.md", page: "third", failure: `other.md does not show "third"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			file := filepath.Join(directory, "page.md")
			page := func(lines string) string {
				return "Text.\n\n<!-- console: " + test.comment + " -->\n```console\n" + lines + "\n```\n\n```sh\nexit 1\n```\n"
			}
			for path, content := range map[string]string{file: page(test.page), filepath.Join(directory, "other.md"): "first took 3s\nsecond\n"} {
				require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			}
			differences, err := checkPage(t.Context(), file, true)
			if test.failure != "" {
				require.ErrorContains(t, err, test.failure)
				return
			}
			require.NoError(t, err)
			written, err := os.ReadFile(file)
			require.NoError(t, err)
			want := test.page
			if test.written != "" {
				want = test.written
			}
			diff := cmp.Diff(page(want), string(written))
			require.True(t, diff == "" && (differences > 0) == (test.written != ""), "%d differences, and the page (-want +got):\n%s", differences, diff)
		})
	}
}
