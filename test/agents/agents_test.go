//go:build agents

package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	sessions "github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
	"github.com/yardmaster/yardmaster/test/gitserver"
	"github.com/yardmaster/yardmaster/test/modelserver"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const testKey = "sk-secret-key-of-the-agent"

var program string

func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "agents-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(directory, "session-runner")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/session-runner").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(directory)
	os.Exit(code)
}

// agentCase is how an agent reaches the scripted server, at $url, and how it calls its tools.
type agentCase struct {
	profile, model       string
	environment          map[string]string
	arguments            []string
	writeTool, shellTool []string // the names of tools, followed by the names and values of their inputs
	cacheWrites, cost    bool     // whether it reports these
	// failsIfInterrupted means that it does not repeat a request whose answer was cut off, and hidesInterruptions that it does
	// not report that it repeats one.
	failsIfInterrupted, hidesInterruptions bool
}

func (a *agentCase) write(path, content string) modelserver.ToolCall {
	return call(a.writeTool, "$path", path, "$content", content)
}

func (a *agentCase) shell(command string) modelserver.ToolCall {
	return call(a.shellTool, "$command", command)
}

func call(tool []string, values ...string) modelserver.ToolCall {
	c := modelserver.ToolCall{Name: tool[0], Input: map[string]any{}}
	for i := 1; i < len(tool); i += 2 {
		c.Input[tool[i]] = strings.NewReplacer(values...).Replace(tool[i+1])
	}
	return c
}

var agentCases = map[string]agentCase{
	"claude-code": {
		model: "claude-sonnet-4-5", cacheWrites: true, cost: true,
		environment: map[string]string{"ANTHROPIC_BASE_URL": "$url", "ANTHROPIC_API_KEY": testKey},
		writeTool:   []string{"Write", "file_path", "$path", "content", "$content"},
		shellTool:   []string{"Bash", "command", "$command", "description", "Run it"},
	},
	"codex": {
		model: "gpt-5.5", environment: map[string]string{"CODEX_API_KEY": testKey},
		arguments: []string{
			"-c", `model_providers.scripted={name="scripted",base_url="$url/v1",env_key="CODEX_API_KEY",wire_api="responses"}`,
			"-c", `model_provider="scripted"`,
		},
		writeTool: []string{"exec_command", "cmd", "printf '%s' '$content' > $path"}, shellTool: []string{"exec_command", "cmd", "$command"},
	},
	"gemini": {
		model: "gemini-2.5-pro", failsIfInterrupted: true,
		environment: map[string]string{"GOOGLE_GEMINI_BASE_URL": "$url", "GEMINI_API_KEY": testKey},
		writeTool:   []string{"write_file", "file_path", "$path", "content", "$content"}, shellTool: []string{"run_shell_command", "command", "$command"},
	},
	"opencode": {
		model: "anthropic/claude-sonnet-4-5", cacheWrites: true, cost: true, hidesInterruptions: true,
		environment: map[string]string{
			"ANTHROPIC_API_KEY": testKey, "OPENCODE_CONFIG_CONTENT": `{"provider": {"anthropic": {"options": {"baseURL": "$url/v1"}}}}`,
		},
		writeTool: []string{"write", "filePath", "$path", "content", "$content"},
		shellTool: []string{"bash", "command", "$command", "description", "Run it"},
	},
}

func forEachAgent(t *testing.T, test func(t *testing.T, a agentCase)) {
	for name, a := range agentCases {
		a.profile = name
		t.Run(name, func(t *testing.T) { test(t, a) })
	}
}

// attempt is a session's attempt, as the operator starts it.
type attempt struct {
	t                          *testing.T
	agent                      agentCase
	workspace, home, directory string
	variables                  map[string]string
	server                     *modelserver.Server
	inputs                     *sessions.RunnerInputs
	output                     []byte
}

func newAttempt(t *testing.T, a agentCase, turns ...modelserver.Turn) *attempt {
	t.Helper()
	server := modelserver.New(testKey, turns...)
	t.Cleanup(server.Close)
	return &attempt{
		t: t, agent: a, server: server, workspace: t.TempDir(), home: t.TempDir(), directory: t.TempDir(), variables: map[string]string{},
		inputs: &sessions.RunnerInputs{Name: "demo", Namespace: "a", Agent: v1alpha1.SessionAgent{Model: a.model}},
	}
}

// command returns the runner as the operator starts it.
func (s *attempt) command() *exec.Cmd {
	s.t.Helper()
	raw, err := json.Marshal(s.inputs)
	require.NoError(s.t, err)
	for name, content := range map[string]string{"prompt": "Write the file, and test it.", "session.json": string(raw), "result": ""} {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.directory, name), []byte(content), 0o600))
	}
	agents, err := filepath.Abs("../../dist/agents/node_modules/.bin")
	require.NoError(s.t, err)
	environment := map[string]string{
		"PATH": agents + ":" + os.Getenv("PATH"), "HOME": s.home, "TMPDIR": s.t.TempDir(), "NO_PROXY": "127.0.0.1",
		"AGENTIC_SESSION": "demo", "AGENTIC_NAMESPACE": "a", "AGENTIC_JOB": "demo-r1-a1", "AGENTIC_RUN": "1", "AGENTIC_ATTEMPT": "1",
		"AGENTIC_PROMPT_FILE": s.directory + "/prompt", "AGENTIC_SESSION_FILE": s.directory + "/session.json",
		"AGENTIC_RESULT_FILE": s.directory + "/result", "AGENTIC_RESULT_MAX_BYTES": "2048", "AGENTIC_WORKSPACE": s.workspace,
	}
	atServer := func(text string) string { return strings.ReplaceAll(text, "$url", s.server.URL) }
	command := exec.Command(program, "--profile", s.agent.profile, "--")
	for _, argument := range s.agent.arguments {
		command.Args = append(command.Args, atServer(argument))
	}
	for _, variables := range []map[string]string{environment, s.agent.environment, s.variables} {
		for name, value := range variables {
			command.Env = append(command.Env, name+"="+atServer(value))
		}
	}
	return command
}

func (s *attempt) run() int {
	s.t.Helper()
	command := s.command()
	s.output, _ = command.CombinedOutput()
	return command.ProcessState.ExitCode()
}

func (s *attempt) mustRun() {
	s.t.Helper()
	code := s.run()
	require.True(s.t, code == 0, "code %d: %s", code, s.output)
}

func (s *attempt) result() *sessions.RunnerResult {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.directory, "result"))
	require.NoError(s.t, err)
	result, err := sessions.ParseResult(string(raw))
	require.True(s.t, err == nil, "result %q: %v", raw, err)
	return result
}

type reportedUsage struct {
	InputTokens, CacheReadTokens, CacheWriteTokens, OutputTokens int64
	Complete                                                     bool
}

func (s *attempt) usage() reportedUsage {
	s.t.Helper()
	got := reportedUsage{}
	result := s.result()
	require.True(s.t, result.Usage != nil, "no usage: %s", s.output)
	require.NoError(s.t, json.Unmarshal(result.Usage.Raw, &got))
	return got
}

// checkUsage compares the tokens of the result with those that the server counted.
func (s *attempt) checkUsage() {
	s.t.Helper()
	want, auxiliary := s.server.Usage()
	if !s.agent.cacheWrites {
		want.CacheWrite = 0
	}
	require.Equal(s.t, reportedUsage{want.Input, want.CacheRead, want.CacheWrite, want.Output, true}, s.usage())
	require.Equal(s.t, modelserver.Usage{}, auxiliary)
	cost := s.result().CostUSD
	require.True(s.t, (cost != nil) == s.agent.cost, "cost %v", cost)
}

func (s *attempt) checkFile(want string) {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.workspace, "a.txt"))
	require.True(s.t, err == nil && strings.TrimSpace(string(raw)) == want, "the file has %q, error %v: %s", raw, err, s.output)
}

func (s *attempt) checkSecret(secret string, directories ...string) {
	s.t.Helper()
	require.True(s.t, !strings.Contains(string(s.output)+s.result().Summary, secret), "the output contains %s: %s", secret, s.output)
	out, err := exec.Command("grep", append([]string{"-rl", secret}, directories...)...).CombinedOutput()
	require.True(s.t, err != nil, "files contain %s: %s", secret, out)
}

func TestAgentsEditFilesAndReportTheirTokens(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		s := newAttempt(t, a)
		s.server.Append(
			modelserver.Turn{
				Thinking: "A file is missing.", Text: "I write it.", ToolCalls: []modelserver.ToolCall{a.write(s.workspace+"/a.txt", "hello")},
				Usage: modelserver.Usage{Input: 100, CacheRead: 20, CacheWrite: 5, Output: 30},
			},
			modelserver.Turn{ToolCalls: []modelserver.ToolCall{a.shell("grep -c hello a.txt")}, Usage: modelserver.Usage{Input: 10, CacheRead: 120, Output: 12}},
			modelserver.Turn{Text: "The file is there.", Usage: modelserver.Usage{Input: 7, CacheRead: 130, Output: 9}},
		)
		s.mustRun()
		s.checkFile("hello")
		s.checkUsage()
		s.checkSecret(testKey, s.workspace)
		got := s.result()
		require.True(t, got.Summary == "The file is there." && got.SDKSessionID != "", "result %+v", got)
		for _, want := range []string{`"type":"toolCall"`, `"type":"toolResult"`, `"text":"I write it."`} {
			require.Contains(t, string(s.output), want)
		}
	})
}

func TestAgentsRepeatRequestsThatTheServerRefuses(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		s := newAttempt(t, a, modelserver.Turn{Status: 429}, modelserver.Turn{Status: 500})
		s.finishWork()
		s.checkUsage()
	})
}

// finishWork runs the attempt with answers to the requests that follow.
func (s *attempt) finishWork() {
	s.t.Helper()
	s.server.Append(
		modelserver.Turn{ToolCalls: []modelserver.ToolCall{s.agent.write(s.workspace+"/a.txt", "hello")}, Usage: modelserver.Usage{Input: 100, Output: 30}},
		modelserver.Turn{Text: "The file is there.", Usage: modelserver.Usage{Input: 7, Output: 9}},
	)
	s.mustRun()
	s.checkFile("hello")
}

// The server counts the tokens of an answer that is cut off, but reports its output only at the end. So what the agent reports is not exact.
func TestAgentsRepeatRequestsWhoseAnswerIsCutOff(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		interrupted := modelserver.Turn{Text: strings.Repeat("Half of ", 50), Usage: modelserver.Usage{Input: 1000, Output: 300}, Interrupted: true}
		s := newAttempt(t, a, interrupted)
		if a.failsIfInterrupted {
			require.True(t, s.run() != 0 && s.result().CostUSD == nil, "the session succeeds, or has a cost: %s", s.output)
			return
		}
		s.finishWork()
		got, cost := s.usage(), s.result().CostUSD
		require.True(t, got.Complete == a.hidesInterruptions && got.OutputTokens >= 39, "usage %+v: %s", got, s.output)
		require.True(t, cost == nil || a.hidesInterruptions, "cost %v: %s", cost, s.output)
	})
}

// An attempt that is terminated in the middle of its work leaves its conversation and its work to the next one, which
// does not count the tokens again.
func TestAgentsResumeAfterTheyWereTerminated(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		s := newAttempt(t, a)
		s.server.Append(
			modelserver.Turn{Text: "The word is walrus.", ToolCalls: []modelserver.ToolCall{a.write(s.workspace+"/a.txt", "hello")}, Usage: modelserver.Usage{Input: 100, Output: 30}},
			modelserver.Turn{Hang: true},
		)
		command, output := s.command(), &strings.Builder{}
		command.Stdout, command.Stderr = output, output
		require.NoError(t, command.Start())
		<-s.server.Hanging()
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		_ = command.Wait()
		code, cost := command.ProcessState.ExitCode(), s.result().CostUSD
		require.True(t, code == 143 && cost == nil, "code %d, cost %v of an unfinished attempt: %s", code, cost, output)
		s.checkFile("hello")

		s.variables = map[string]string{"AGENTIC_ATTEMPT": "2", "AGENTIC_JOB": "demo-r1-a2", "AGENTIC_SDK_SESSION_ID": s.result().SDKSessionID}
		s.server.Append(modelserver.Turn{Text: "It was there already.", Usage: modelserver.Usage{Input: 7, Output: 9}})
		s.mustRun()
		last := s.server.LastRequest()
		require.True(t, strings.Contains(last, "walrus") && strings.Contains(last, "The work was interrupted"),
			"the conversation was not resumed: %s", last[max(0, len(last)-3000):])
		s.checkFile("hello")
	})
}

func TestAgentsFailIfTheirKeyIsWrong(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		s := newAttempt(t, a)
		s.variables["CLAUDE_CODE_MAX_RETRIES"] = "0" // Claude Code repeats such requests for minutes
		s.server.APIKey = "another"
		require.True(t, s.run() != 0, "the session is successful: %s", s.output)
		require.Contains(t, s.result().Summary, "401")
	})
}

// The whole path of a session: clone, edit, test, commit, push, pull request, and the cost in the result.
func TestAgentsFixABugAndOpenAPullRequest(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		const password = "token-of-the-forge"
		server, err := gitserver.New(t.Context(), t.TempDir(), "x-access-token", password)
		require.NoError(t, err)
		t.Cleanup(server.Close)
		s := newAttempt(t, a)
		s.inputs.Repos = []sessions.RunnerRepo{{
			SessionRepo: v1alpha1.SessionRepo{GitSource: v1alpha1.GitSource{URL: v1alpha1.GitURL(server.CloneURL()), Branch: "main"}, AutoPush: true}, Directory: "shop",
		}}
		volume, credentials := t.TempDir(), t.TempDir()
		require.NoError(t, os.WriteFile(credentials+"/password", []byte(password), 0o600))
		s.variables = map[string]string{"AGENTIC_GIT": volume}
		s.command() // writes the inputs
		git := exec.Command(program, "git", "--directory", volume, "--credentials", credentials, "--repositories", server.Host+"/team/*", "--forge", "GitHub")
		git.Env = append(os.Environ(), "GIT_SSL_CAINFO="+server.CAFile, "AGENTIC_SESSION=demo", "AGENTIC_SESSION_FILE="+s.directory+"/session.json")
		require.NoError(t, git.Start())
		defer func() { _ = git.Process.Signal(syscall.SIGTERM); _ = git.Wait() }()
		poll.Until(t, "the git container to listen", func() bool {
			_, err := os.Stat(volume + "/git.sock")
			return err == nil
		})
		s.server.Append(
			modelserver.Turn{ToolCalls: []modelserver.ToolCall{a.write(s.workspace+"/shop/a.txt", "hello")}, Usage: modelserver.Usage{Input: 100, Output: 30}},
			modelserver.Turn{ToolCalls: []modelserver.ToolCall{a.shell("grep hello a.txt && env | grep -v API_KEY")}, Usage: modelserver.Usage{Input: 10, Output: 12}},
			modelserver.Turn{Text: "Fixed the greeting.", Usage: modelserver.Usage{Input: 7, Output: 9}},
		)
		s.mustRun()
		s.checkUsage()
		s.checkSecret(testKey, s.workspace)
		result := s.result()
		require.True(t, len(result.Repositories) == 1 && result.Repositories[0].Pushed, "result %+v: %s", result, s.output)
		require.Contains(t, result.Repositories[0].PullRequestURL, "/team/shop/pull/1")
		for want, args := range map[string][]string{
			"hello": {"show", "session/demo:a.txt"}, "Fixed the greeting.": {"log", "-1", "--format=%s", "session/demo"},
		} {
			got, err := server.Git(t.Context(), args...)
			require.True(t, err == nil && got == want, "git %v prints %q, error %v", args, got, err)
		}
		s.checkSecret(password, s.workspace, s.home, volume)
	})
}

// modelProxy is the container between an agent and its model, whose volumes survive its restarts.
type modelProxy struct {
	t         *testing.T
	directory string
	arguments []string
	command   *exec.Cmd
}

var modelProviders = map[string]string{"claude-code": "Anthropic", "codex": "OpenAI", "gemini": "Google", "opencode": "Anthropic"}

func startModelProxy(t *testing.T, agent, url string, limit int) *modelProxy {
	directory, provider := t.TempDir(), modelProviders[agent]
	// A response of 1000 tokens costs one dollar.
	price := "{input: 0.001, output: 1000, maxInputTokens: 100000, maxOutputTokens: 2000}"
	models := fmt.Sprintf("replace: true\nmodels: {claude-sonnet-4-5: %[1]s, claude-haiku-4-5: %[1]s, gpt-5.5: %[1]s, gemini-2.5-pro: %[1]s, gemini-2.5-flash: %[1]s}", price)
	for name, content := range map[string]string{"prices.yaml": models, modelproxy.KeyOf(provider): testKey} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
	}
	p := &modelProxy{t: t, directory: directory, arguments: []string{
		"model", "--provider=" + provider, "--base-url=" + url, "--keys=" + directory, "--prices=" + directory + "/prices.yaml",
		"--directory=" + directory, "--ledger=" + directory, "--message=" + directory + "/message", fmt.Sprintf("--limit-usd=%d", limit),
	}}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *modelProxy) start() {
	p.t.Helper()
	p.command = exec.Command(program, p.arguments...)
	p.command.Stderr = os.Stderr
	require.NoError(p.t, p.command.Start())
}

// kill ends the process in whatever it does.
func (p *modelProxy) kill() {
	_ = p.command.Process.Signal(syscall.SIGKILL)
	_ = p.command.Wait()
}

// Each response costs one dollar, and the agent would work for twenty. At most one response exceeds its budget, also after the proxy was
// killed, and no process of the agent has the key.
func TestAgentsKeepTheirBudget(t *testing.T) {
	const limit = 3
	forEachAgent(t, func(t *testing.T, a agentCase) {
		a.arguments, a.environment = nil, nil
		s := newAttempt(t, a)
		look := a.shell("cat /proc/self/environ; env; cat a.txt")
		for range 20 {
			s.server.Append(modelserver.Turn{ToolCalls: []modelserver.ToolCall{look}, Usage: modelserver.Usage{Input: 100, Output: 1000}})
		}
		proxy := startModelProxy(t, a.profile, s.server.URL, limit)
		s.variables["AGENTIC_MODEL"], s.variables["AGENTIC_MODEL_PROVIDER"] = proxy.directory, modelProviders[a.profile]
		code := s.run()
		usage, auxiliary := s.server.Usage()
		spent := float64(usage.Output+auxiliary.Output) / 1000
		raw, err := os.ReadFile(proxy.directory + "/message")
		require.NoError(t, err)
		t.Logf("code %d, the model charged %v dollars, the report is %s", code, spent, raw)
		require.True(t, code != 0 && spent >= limit && spent <= limit+1, "code %d, %v dollars: %s", code, spent, s.output)
		report, err := modelproxy.ParseReport(string(raw))
		require.True(t, err == nil && report.Refused > 0, "report %s, error %v", raw, err)
		require.Contains(t, string(s.output), "maxCostUSD")
		s.checkSecret(testKey, s.workspace)
		proxy.kill()
		proxy.start()
		s.run()
		after, _ := s.server.Usage()
		require.Equal(t, usage, after)
	})
}
