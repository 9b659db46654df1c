package agentprofile

import (
	"encoding/json"
	"strings"
	"testing"

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
	for title, row := range map[string]struct {
		profile string
		event   Event
	}{
		"a negative number of tokens":          {"events", Event{Type: EventUsage, Usage: &Usage{InputTokens: -1}}},
		"a negative cost":                      {"events", Event{Type: EventUsage, CostUSD: new(-0.1)}},
		"a cost of zero, which means no price": {"opencode", Event{Type: EventUsage, Usage: &Usage{InputTokens: 1}, CostUSD: new(0.0)}},
	} {
		tally := load(t, row.profile).NewTally("m", false, nil)
		if row.profile == "events" {
			tally.Add(&Event{Type: EventUsage, Usage: &Usage{InputTokens: 1}, CostUSD: new(0.1)})
		}
		tally.Add(&row.event)
		tally.Add(&Event{Type: EventResult, Text: "done"})
		got := tally.Report()
		require.True(t, got.CostUSD == nil && (!got.UsageComplete || row.profile == "opencode"), "%s: %+v", title, got)
	}
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
			for range 2 {
				events, err := parser.Parse([]byte(line))
				if err != nil && len(events) > 0 {
					t.Errorf("%s: events and an error", name)
				}
				for i := range events {
					tally.Add(&events[i])
				}
			}
			events := parser.End()
			for i := range events {
				tally.Add(&events[i])
			}
			got := tally.Report()
			require.True(t, (got.CostUSD == nil || *got.CostUSD >= 0) && (got.Usage == nil || got.Usage.isValid()), "%s: %+v", name, got)
		}
	})
}
