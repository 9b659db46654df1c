package render

import (
	"strings"
	"testing"
	"unicode"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestSessionEventsAreRendered(t *testing.T) {
	const long = `one\ntwo\nthree\nfour\nfive\nsix\nseven`
	for title, row := range map[string]struct {
		line, want string
		full       bool
	}{
		"the start":               {`{"type":"started","conversation":"c-1","model":"small"}`, "started small in conversation c-1", false},
		"a text with indentation": {`{"type":"text","text":"Do:\n\tgo test\n"}`, "Do:\n    go test", false},
		"thinking":                {`{"type":"thinking","text":"First,\nthen"}`, "… First,\n  then", false},
		"a command":               {`{"type":"toolCall","tool":{"name":"Bash","input":{"command":"go test ./...","description":"x"}}}`, "▸ Bash go test ./...", false},
		"a command of Codex":      {`{"type":"toolCall","tool":{"name":"shell","input":{"cmd":"ls"}}}`, "▸ shell ls", false},
		"a file that is read":     {`{"type":"toolCall","tool":{"name":"Read","input":{"file_path":"/w/a.go"}}}`, "▸ Read /w/a.go", false},
		"another tool":            {`{"type":"toolCall","tool":{"name":"search","input":{"q":"x"}}}`, `▸ search {"q":"x"}`, false},
		"a folded change":         {`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"/w/a.go","old_string":"a\nb\n","new_string":"c"}}}`, "▸ Edit /w/a.go (+1 -2)", false},
		"an unfolded change":      {`{"type":"toolCall","tool":{"name":"edit","input":{"filePath":"/w/a.go","oldString":"a\nb\n","newString":"c"}}}`, "▸ edit /w/a.go (+1 -2)\n  - a\n  - b\n  + c", true},
		"a new file":              {`{"type":"toolCall","tool":{"name":"Write","input":{"file_path":"a","content":"x\ny\n"}}}`, "▸ Write a (+2 -0)", false},
		"a folded result":         {`{"type":"toolResult","text":"` + long + `"}`, "  one\n  two\n  three\n  four\n  five\n  … 2 more lines", false},
		"a whole result":          {`{"type":"toolResult","text":"` + long + `"}`, "  " + strings.ReplaceAll(long, `\n`, "\n  "), true},
		"an empty result":         {`{"type":"toolResult"}`, "", false},
		"tokens of a request":     {`{"type":"usage","usage":{"inputTokens":1}}`, "", false},
		"tokens of the session":   {`{"type":"usage","total":true,"usage":{"inputTokens":1,"cacheWriteTokens":2,"cacheReadTokens":3,"outputTokens":4},"costUSD":0.12345}`, "3 tokens in, 3 from the cache, 4 out, $0.1235", false},
		"a retry":                 {`{"type":"retry","text":"status 429"}`, "retry: status 429", false},
		"an error":                {`{"type":"error","text":"no"}`, "error: no", false},
		"the end":                 {`{"type":"result","text":"All done."}`, "finished", false},
		"a failure":               {`{"type":"result","text":"no credit","failed":true}`, "failed: no credit", false},
		"the runner":              {`{"type":"runner","text":"Starting"}`, "Starting", false},
		"omitted bytes":           {`{"type":"output","omitted":7}`, "\n  … 7 bytes omitted", false},
		"a time before the line":  {`2026-11-26T04:00:00Z {"type":"text","text":"a\nb"}`, "2026-11-26T04:00:00Z a\n2026-11-26T04:00:00Z b", false},
		"other programs":          {`plain text`, "plain text", false},
		"other JSON":              {`{"level":"info"}`, `{"level":"info"}`, false},
		"an input without a tool": {`{"type":"toolCall"}`, "", false},
	} {
		t.Run(title, func(t *testing.T) {
			r := &SessionEvents{Full: row.full}
			require.Equal(t, row.want, strings.Join(r.Lines([]byte(row.line)), "\n"))
		})
	}
}

// An agent can write any characters, for example those that rename the window or hide what was printed before.
func FuzzRenderedEventsHaveNoControlCharacters(f *testing.F) {
	for _, line := range []string{
		"\x1b]0;title\x07", `{"type":"text","text":"\u001b[2J\r\u0008\u0000\u202e"}`, `{"type":"toolCall","tool":{"name":"\u001b[1A","input":{"command":"\u001b[2K"}}}`,
		`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"\u001b","content":"\u001b\n\u009b"}}}`, `{"type":"\u001b","text":"\u2028"}`,
		"\x1b[0m {\"type\":\"text\",\"text\":\"x\"}",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, full := range []bool{false, true} {
			r := &SessionEvents{Style: terminal.Style{}, Full: full}
			for _, got := range r.Lines([]byte(line)) {
				require.True(t, !strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) && c != ' ' }), "%q is rendered as %q", line, got)
			}
		}
	})
}
