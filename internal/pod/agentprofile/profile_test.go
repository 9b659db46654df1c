package agentprofile

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/yardmaster/yardmaster/test/require"
)

var testInputs = Inputs{
	Prompt: "Fix it.", SystemPrompt: "Be \"brief\".", Model: "small", MaxTokens: "4000", Conversation: "c-1", State: "/workspace/.agentic/x",
	Config: "/home/agent/.agentic", WorkingDirectory: "/workspace/shop", PermissionMode: "full", Arguments: []string{"--extra"},
	Servers: map[string]MCPServer{
		"search": {URL: "https://search.example", Headers: map[string]string{"X-Team": "a"}},
		"local":  {Command: "mcp-files", Args: []string{"--root", "/workspace"}, Env: map[string]string{"LEVEL": "1"}},
	},
	Disabled: []string{"web"},
}

func load(t *testing.T, profile string) *Profile {
	t.Helper()
	p, err := Load(profile)
	require.NoError(t, err)
	return p
}

func parse(t *testing.T, profile string) *Profile {
	t.Helper()
	p, err := Parse([]byte(profile))
	require.NoError(t, err)
	return p
}

func newTestCommand(t *testing.T, p *Profile, in *Inputs) *Command {
	t.Helper()
	command, err := p.NewCommand(in)
	require.NoError(t, err)
	return command
}

func TestCommandsOfTheBuiltInProfiles(t *testing.T) {
	for profile, want := range map[string][]string{
		"claude-code": {
			"claude", "--print", "--verbose", "--output-format", "stream-json", "--permission-mode", "bypassPermissions", "--model", "small",
			"--append-system-prompt", `Be "brief".`, "--resume", "c-1", "--mcp-config", "/home/agent/.agentic/mcp.json", "--extra",
		},
		"codex": {
			"codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--model", "small",
			"--config", `developer_instructions="Be \"brief\"."`, "--extra", "resume", "c-1", "-",
		},
		"gemini": {
			"gemini", "--output-format", "stream-json", "--skip-trust", "--approval-mode", "yolo", "--model", "small", "--resume", "c-1", "--extra",
		},
		"opencode": {
			"opencode", "run", "--format", "json", "--thinking", "--title", "session", "--auto", "--model", "small", "--session", "c-1", "--extra",
		},
		"exec":   {"--extra"},
		"events": {"--extra"},
	} {
		t.Run(profile, func(t *testing.T) {
			got := newTestCommand(t, load(t, profile), &testInputs)
			require.Equal(t, want, got.Arguments) // without the prompt, which all processes would see
			require.True(t, strings.HasSuffix(got.Stdin, "Fix it."), "standard input %q", got.Stdin)
		})
	}
}

func TestASettingThatIsNotSetHasNoArgument(t *testing.T) {
	got := newTestCommand(t, load(t, "claude-code"), &Inputs{Prompt: "p", State: "/s", Config: "/c", PermissionMode: "read"})
	want := []string{"claude", "--print", "--verbose", "--output-format", "stream-json", "--permission-mode", "plan", "--mcp-config", "/c/mcp.json"}
	require.Equal(t, want, got.Arguments)
	_, found := got.Env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]
	require.True(t, !found && got.Env["CLAUDE_CONFIG_DIR"] == "/s", "variables %v", got.Env)
}

func TestMCPServersAreWrittenInTheFormatOfTheAgent(t *testing.T) {
	for profile, want := range map[string]string{
		"claude-code": `{"mcpServers": {"local":{"type":"stdio","command":"mcp-files","args":["--root","/workspace"],"env":{"LEVEL":"1"}},` +
			`"search":{"type":"http","url":"https://search.example","headers":{"X-Team":"a"}}}}`,
		"codex": "check_for_update_on_startup = false\n[analytics]\nenabled = false\n[mcp_servers.\"local\"]\ncommand = \"mcp-files\"\n" +
			"args = [\"--root\", \"/workspace\"]\nenv = {\"LEVEL\" = \"1\"}\n[mcp_servers.\"search\"]\nurl = \"https://search.example\"\nhttp_headers = {\"X-Team\" = \"a\"}\n\n",
		"opencode": `{"autoupdate": false, "share": "disabled", "mcp": {"local":{"type":"local","command":["mcp-files","--root","/workspace"],"environment":{"LEVEL":"1"}},` +
			`"search":{"type":"remote","url":"https://search.example","headers":{"X-Team":"a"}}}}`,
	} {
		require.Equal(t, want, newTestCommand(t, load(t, profile), &testInputs).Files[0].Content)
	}
}

func TestSessionsDisableServersOfTheProfile(t *testing.T) {
	const servers = `{"web": {"url": "https://web.example"}, "docs": {"url": "https://docs.example", "type": "sse"}}`
	got := newTestCommand(t, parse(t, `{"base": "gemini", "mcpServers": `+servers+`}`), &testInputs)
	var settings struct {
		MCPServers map[string]struct{ URL, HTTPURL string } `json:"mcpServers"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.Files[0].Content), &settings))
	_, found := settings.MCPServers["web"]
	require.True(t, !found && len(settings.MCPServers) == 3 && settings.MCPServers["docs"].URL == "https://docs.example" &&
		settings.MCPServers["search"].HTTPURL == "https://search.example", "servers %+v", settings.MCPServers)
}

func TestSettingsWithoutEffectAreReported(t *testing.T) {
	got := newTestCommand(t, load(t, "exec"), &testInputs)
	require.Equal(t, []string{"agent.model", "agent.maxTokens", "the system prompt", "agent.mcpServers"}, got.Unused)
}

func TestAProfileOfAUserChangesABuiltInOne(t *testing.T) {
	p := parse(t, "base: codex\nname: codex-azure\nenv: {TEAM: a}\nprices: {small: {input: 1, output: 10, cacheRead: 0.1}}\n")
	got := newTestCommand(t, p, &testInputs)
	require.True(t, p.Name == "codex-azure" && p.Parser == ParserCodex && got.Env["TEAM"] == "a" && got.Env["CODEX_HOME"] == testInputs.State,
		"profile %+v, command %+v", p, got)
	tally := p.NewTally("small", false, nil)
	tally.Add(&Event{Type: EventUsage, Total: true, Usage: &Usage{InputTokens: 1000, CacheReadTokens: 500, OutputTokens: 20}})
	require.Equal(t, (1000+50+200)/1e6, *tally.Report().CostUSD)
}

func TestInvalidProfilesAreRejectedWithTheField(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                                         "name is",
		"name: a/b\nparser: text":                    "name is",
		"name: a\nparser: other":                     "parser is",
		"base: other":                                `there is no profile "other"`,
		"base: codex\nmcpFormat: other":              "mcpFormat is",
		"base: codex\ntotals: other":                 "totals is",
		"base: codex\nprices: {a: {input: -1}}":      "prices: a price of a is negative",
		"base: codex\nstdin: '{promt}'":              "{promt} is not a placeholder",
		"base: codex\nargument: [[a]]":               "unknown field",
		"base: codex\nenv: {A: '{home}'}":            "{home} is not a placeholder",
		"base: codex\npermissionModes: {a: ['{b}']}": "{b} is not a placeholder",
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, want)
	}
}

func TestInvalidInputsAreRejected(t *testing.T) {
	for title, change := range map[string]func(*Inputs){
		"a permission mode":                    func(in *Inputs) { in.PermissionMode = "other" },
		"a server with a URL and a command":    func(in *Inputs) { in.Servers = map[string]MCPServer{"a": {URL: "u", Command: "c"}} },
		"a server with an unknown type":        func(in *Inputs) { in.Servers = map[string]MCPServer{"a": {URL: "u", Type: "other"}} },
		"a server of a type that Codex lacks":  func(in *Inputs) { in.Servers = map[string]MCPServer{"a": {URL: "u", Type: "sse"}} },
		"a server of a program without a name": func(in *Inputs) { in.Servers = map[string]MCPServer{"a": {Type: "stdio", URL: "u"}} },
	} {
		in := testInputs
		change(&in)
		_, err := load(t, "codex").NewCommand(&in)
		require.True(t, err != nil, "%s is accepted", title)
	}
}

func TestInvalidUsageMakesTheCostUnknown(t *testing.T) {
	check := func(title, profile string, event Event) {
		tally := load(t, profile).NewTally("m", false, nil)
		if profile == "events" {
			tally.Add(&Event{Type: EventUsage, Usage: &Usage{InputTokens: 1}, CostUSD: new(0.1)})
		}
		tally.Add(&event)
		tally.Add(&Event{Type: EventResult, Text: "done"})
		got := tally.Report()
		require.True(t, got.CostUSD == nil && (!got.UsageComplete || profile == "opencode"), "%s: %+v", title, got)
	}
	check("a negative number of tokens", "events", Event{Type: EventUsage, Usage: &Usage{InputTokens: -1}})
	check("a negative cost", "events", Event{Type: EventUsage, CostUSD: new(-0.1)})
	check("a cost of zero, which means no price", "opencode", Event{Type: EventUsage, Usage: &Usage{InputTokens: 1}, CostUSD: new(0.0)})
}

func FuzzParsers(f *testing.F) {
	for _, line := range []string{
		`{"type":"result","usage":{"input_tokens":1},"modelUsage":{"m":{"inputTokens":-5}}}`, `{"type":"assistant","message":{"content":[{"type":"text"}]}}`,
		`{"type":"item.completed","item":{"type":"mcp_tool_call","result":{"content":[{"type":"image"}]}}}`, `{"type":"message","role":"assistant","content":"x"}`,
		`{"type":"step_finish","part":{"tokens":{}}}`, `{"type":"usage","costUSD":1e400}`, `null`, `[]`, `{`, "", "\x00",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for name, newParser := range parsers {
			p := &Profile{Name: "fuzz", Parser: name}
			parser, tally := newParser(), p.NewTally("m", false, nil)
			var all []Event
			for range 2 {
				events, err := parser.Parse([]byte(line))
				require.True(t, err == nil || len(events) == 0, "%s: events and an error", name)
				all = append(all, events...)
			}
			for _, event := range append(all, parser.End()...) {
				tally.Add(&event)
			}
			got := tally.Report()
			require.True(t, (got.CostUSD == nil || *got.CostUSD >= 0) && (got.Usage == nil || got.Usage.isValid()), "%s: %+v", name, got)
		}
	})
}

// replay returns the events and the report of a recorded stream. The streams were recorded with the command lines that
// test/agents installs, against the scripted server in test/modelserver.
func replay(t *testing.T, profile, recording string, baseline *Sums) ([]Event, Report) {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + recording + ".ndjson")
	require.NoError(t, err)
	return replayOutput(t, load(t, profile), raw, baseline)
}

func replayOutput(t *testing.T, p *Profile, raw []byte, baseline *Sums) ([]Event, Report) {
	t.Helper()
	parser, tally := p.NewParser(), p.NewTally("configured", baseline != nil, func(string) *Sums { return baseline })
	var all []Event
	for line := range bytes.Lines(raw) {
		events, err := parser.Parse(bytes.TrimSpace(line))
		require.True(t, err == nil, "line %s: %v", line, err)
		all = append(all, events...)
	}
	all = append(all, parser.End()...)
	for i := range all {
		tally.Add(&all[i])
	}
	return all, tally.Report()
}

// scriptedUsage are the tokens that the scripted server counted for the streams without a suffix.
var scriptedUsage = Usage{InputTokens: 117, CacheReadTokens: 270, OutputTokens: 51}

func TestReportsOfRecordedStreams(t *testing.T) {
	check := func(profile string, want Report, tool, input, output string) {
		t.Run(profile, func(t *testing.T) {
			events, got := replay(t, profile, profile, nil)
			require.True(t, got.Conversation != "", "the conversation is not known")
			want.Answer, want.Finished, want.UsageComplete, want.ToolCalls = "The file is there.", true, true, 2
			got.Conversation, got.Sums = "", nil
			require.Equal(t, want, got, cmpopts.EquateApprox(0, 1e-9))
			var types []EventType
			last := map[EventType]Event{}
			for i := range events {
				last[events[i].Type] = events[i]
				if events[i].Type != EventUsage && events[i].Type != EventError {
					types = append(types, events[i].Type)
				}
			}
			wantTypes := []EventType{
				EventStarted, EventThinking, EventText, EventToolCall, EventToolResult, EventToolCall, EventToolResult, EventText, EventResult,
			}
			if profile == "gemini" { // which does not report what the model thinks
				wantTypes = slices.Delete(wantTypes, 1, 2)
			}
			require.Equal(t, wantTypes, types)
			call, result := last[EventToolCall], last[EventToolResult]
			require.True(t, call.Tool.Name == tool && string(call.Tool.Input) == input, "call %+v", call.Tool)
			require.True(t, result.Tool.ID == call.Tool.ID && result.Text == output, "result %+v of the call %+v", result, call.Tool)
		})
	}
	withCacheWrites := scriptedUsage
	withCacheWrites.CacheWriteTokens = 5
	check("claude-code", Report{Model: "claude-sonnet-4-5", Usage: &withCacheWrites, CostUSD: new(0.00121575)},
		"Bash", `{"command":"cat a.txt; exit 3","description":"Show it"}`, "Exit code 3\nhello")
	check("codex", Report{Model: "configured", Usage: &scriptedUsage},
		"shell", `{"command":"/bin/bash -lc 'cat a.txt; exit 3'"}`, "cat: a.txt: No such file or directory\n")
	check("gemini", Report{Model: "gemini-2.5-pro", Usage: &scriptedUsage}, "run_shell_command", `{"command":"cat a.txt; exit 3"}`, "hello")
	check("opencode", Report{Model: "configured", Usage: &withCacheWrites, CostUSD: new(0.00121575)},
		"bash", `{"command":"cat a.txt; exit 3","description":"Show it"}`, "hello\n")
}

func TestResumedConversationCountsOnlyItsOwnTokens(t *testing.T) {
	for _, profile := range []string{"claude-code", "codex", "gemini", "opencode"} {
		t.Run(profile, func(t *testing.T) {
			_, first := replay(t, profile, profile, nil)
			_, second := replay(t, profile, profile+"-resumed", first.Sums)
			require.Equal(t, &Usage{InputTokens: 3, CacheReadTokens: 1, OutputTokens: 2}, second.Usage)
			require.True(t, first.Conversation == second.Conversation && second.UsageComplete, "%+v after %+v", second, first)
			cost := second.CostUSD
			require.True(t, cost == nil || *cost >= 0.00003 && *cost <= 0.00004, "cost %v", cost)
		})
	}
}

func TestUsageOfAConversationWithUnknownSumsIsUnknown(t *testing.T) {
	for _, profile := range []string{"claude-code", "codex"} {
		tally := load(t, profile).NewTally("m", true, func(string) *Sums { return nil })
		tally.Add(&Event{Type: EventUsage, Total: true, Usage: &Usage{InputTokens: 7}, CostUSD: new(1.0)})
		tally.Add(&Event{Type: EventResult, Text: "done"})
		got := tally.Report()
		require.True(t, got.Usage == nil && got.CostUSD == nil && !got.UsageComplete, "%s: %+v", profile, got)
	}
}

func TestFailuresOfTheModelAreReported(t *testing.T) {
	for profile, want := range map[string]string{
		"claude-code": "Failed to authenticate. API Error: 401 scripted error 401",
		"codex":       "unexpected status 401 Unauthorized: scripted error 401, url: http://127.0.0.1:42559/v1/responses",
		"gemini":      `[API Error: {"error":{"code":400,"message":"scripted error 400","status":"UNAVAILABLE"}}]`,
		"opencode":    "APIError: scripted error 400",
	} {
		t.Run(profile, func(t *testing.T) {
			_, got := replay(t, profile, profile+"-failed", nil)
			require.True(t, got.Failed && got.Answer == want, "%+v", got)
		})
	}
}

func TestRepeatedRequestsAreReportedAndNotAFailure(t *testing.T) {
	events, got := replay(t, "codex", "codex-retries", nil)
	events = slices.DeleteFunc(events, func(e Event) bool { return e.Type != EventRetry })
	require.True(t, len(events) == 2 && !got.Failed && got.Finished, "retries %+v, %+v", events, got)
}

// The server counted 39 tokens of complete answers. Claude Code adds an estimate for the one that was cut off, and Codex nothing.
func TestAnswersThatAreCutOffMakeTheUsageIncomplete(t *testing.T) {
	for recording, profile := range map[string]string{"claude-code-interrupted": "claude-code", "codex-retries": "codex"} {
		_, got := replay(t, profile, recording, nil)
		require.True(t, got.Finished && !got.Failed && got.Interrupted && !got.UsageComplete, "%s: %+v", recording, got)
	}
}

func TestInterruptedStreamsLeaveCostAndUsageUnknown(t *testing.T) {
	for _, profile := range []string{"claude-code", "codex", "gemini", "opencode"} {
		raw, err := os.ReadFile("testdata/" + profile + ".ndjson")
		require.NoError(t, err)
		lines := bytes.SplitAfter(bytes.TrimSpace(raw), []byte("\n"))
		for n := range lines {
			_, got := replayOutput(t, load(t, profile), bytes.Join(lines[:n], nil), nil)
			require.True(t, !got.Finished && !got.UsageComplete, "%s after %d lines: %+v", profile, n, got)
		}
	}
}
