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
	"github.com/yardmaster/yardmaster/test/gitserver"
	"github.com/yardmaster/yardmaster/test/modelserver"
	"github.com/yardmaster/yardmaster/test/poll"
)

const testKey = "sk-secret-key-of-the-agent"

// program is the session runner.
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

// agentCase is how an agent reaches the scripted server, and how it calls its tools.
type agentCase struct {
	profile, model string
	environment    func(url string) map[string]string
	arguments      func(url string) []string
	write          func(path, content string) modelserver.ToolCall
	shell          func(command string) modelserver.ToolCall
	// cacheWrites and cost are whether it reports these.
	cacheWrites, cost bool
	// failsIfInterrupted means that it does not repeat a request whose answer was cut off, and hidesInterruptions that it does
	// not report that it repeats one.
	failsIfInterrupted, hidesInterruptions bool
}

func noArguments(string) []string { return nil }

func call(name string, input ...string) modelserver.ToolCall {
	c := modelserver.ToolCall{Name: name, Input: map[string]any{}}
	for i := 0; i < len(input); i += 2 {
		c.Input[input[i]] = input[i+1]
	}
	return c
}

var agentCases = map[string]agentCase{
	"claude-code": {
		profile: "claude-code", model: "claude-sonnet-4-5", arguments: noArguments, cacheWrites: true, cost: true,
		environment: func(url string) map[string]string {
			return map[string]string{"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": testKey}
		},
		write: func(path, content string) modelserver.ToolCall {
			return call("Write", "file_path", path, "content", content)
		},
		shell: func(command string) modelserver.ToolCall {
			return call("Bash", "command", command, "description", "Run it")
		},
	},
	"codex": {
		profile: "codex", model: "gpt-5.5",
		arguments: func(url string) []string {
			provider := fmt.Sprintf(`model_providers.scripted={name="scripted",base_url="%s/v1",env_key="CODEX_API_KEY",wire_api="responses"}`, url)
			return []string{"-c", provider, "-c", `model_provider="scripted"`}
		},
		environment: func(string) map[string]string { return map[string]string{"CODEX_API_KEY": testKey} },
		write: func(path, content string) modelserver.ToolCall {
			return call("exec_command", "cmd", "printf '%s' '"+content+"' > "+path)
		},
		shell: func(command string) modelserver.ToolCall { return call("exec_command", "cmd", command) },
	},
	"gemini": {
		profile: "gemini", model: "gemini-2.5-pro", arguments: noArguments, failsIfInterrupted: true,
		environment: func(url string) map[string]string {
			return map[string]string{"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": testKey}
		},
		write: func(path, content string) modelserver.ToolCall {
			return call("write_file", "file_path", path, "content", content)
		},
		shell: func(command string) modelserver.ToolCall { return call("run_shell_command", "command", command) },
	},
	"opencode": {
		profile: "opencode", model: "anthropic/claude-sonnet-4-5", arguments: noArguments, cacheWrites: true, cost: true, hidesInterruptions: true,
		environment: func(url string) map[string]string {
			return map[string]string{
				"ANTHROPIC_API_KEY": testKey, "OPENCODE_CONFIG_CONTENT": `{"provider": {"anthropic": {"options": {"baseURL": "` + url + `/v1"}}}}`,
			}
		},
		write: func(path, content string) modelserver.ToolCall {
			return call("write", "filePath", path, "content", content)
		},
		shell: func(command string) modelserver.ToolCall {
			return call("bash", "command", command, "description", "Run it")
		},
	},
}

// forEachAgent runs a test with each agent.
func forEachAgent(t *testing.T, test func(t *testing.T, a agentCase)) {
	for name, a := range agentCases {
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
	if err != nil {
		s.t.Fatal(err)
	}
	for name, content := range map[string]string{"prompt": "Write the file, and test it.", "session.json": string(raw), "result": ""} {
		if err := os.WriteFile(filepath.Join(s.directory, name), []byte(content), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	agents, err := filepath.Abs("../../dist/agents/node_modules/.bin")
	if err != nil {
		s.t.Fatal(err)
	}
	environment := map[string]string{
		"PATH": agents + ":" + os.Getenv("PATH"), "HOME": s.home, "TMPDIR": s.t.TempDir(), "NO_PROXY": "127.0.0.1",
		"AGENTIC_SESSION": "demo", "AGENTIC_NAMESPACE": "a", "AGENTIC_JOB": "demo-r1-a1", "AGENTIC_RUN": "1", "AGENTIC_ATTEMPT": "1",
		"AGENTIC_PROMPT_FILE": s.directory + "/prompt", "AGENTIC_SESSION_FILE": s.directory + "/session.json",
		"AGENTIC_RESULT_FILE": s.directory + "/result", "AGENTIC_RESULT_MAX_BYTES": "2048", "AGENTIC_WORKSPACE": s.workspace,
	}
	command := exec.Command(program, append([]string{"--profile", s.agent.profile, "--"}, s.agent.arguments(s.server.URL)...)...)
	for _, variables := range []map[string]string{environment, s.agent.environment(s.server.URL), s.variables} {
		for name, value := range variables {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	return command
}

// run runs the attempt, and returns its exit code.
func (s *attempt) run() int {
	s.t.Helper()
	command := s.command()
	s.output, _ = command.CombinedOutput()
	return command.ProcessState.ExitCode()
}

func (s *attempt) result() *sessions.RunnerResult {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.directory, "result"))
	if err != nil {
		s.t.Fatal(err)
	}
	result, err := sessions.ParseResult(string(raw))
	if err != nil {
		s.t.Fatalf("result %q: %v", raw, err)
	}
	return result
}

// reportedUsage is the usage of a result.
type reportedUsage struct {
	InputTokens, CacheReadTokens, CacheWriteTokens, OutputTokens int64
	Complete                                                     bool
}

func (s *attempt) usage() reportedUsage {
	s.t.Helper()
	got := reportedUsage{}
	result := s.result()
	if result.Usage == nil {
		s.t.Fatalf("no usage: %s", s.output)
	}
	if err := json.Unmarshal(result.Usage.Raw, &got); err != nil {
		s.t.Fatal(err)
	}
	return got
}

// checkUsage compares the tokens of the result with those that the server counted.
func (s *attempt) checkUsage() {
	s.t.Helper()
	got := s.usage()
	want, auxiliary := s.server.Usage()
	if !s.agent.cacheWrites {
		want.CacheWrite = 0
	}
	if got.InputTokens != want.Input || got.CacheReadTokens != want.CacheRead || got.CacheWriteTokens != want.CacheWrite ||
		got.OutputTokens != want.Output || !got.Complete || auxiliary != (modelserver.Usage{}) {
		s.t.Errorf("the result has %+v, the server counted %+v and for other requests %+v", got, want, auxiliary)
	}
	if cost := s.result().CostUSD; (cost != nil) != s.agent.cost {
		s.t.Errorf("cost %v", cost)
	}
}

func (s *attempt) checkFile(want string) {
	s.t.Helper()
	if raw, err := os.ReadFile(filepath.Join(s.workspace, "a.txt")); err != nil || strings.TrimSpace(string(raw)) != want {
		s.t.Errorf("the file has %q, error %v: %s", raw, err, s.output)
	}
}

// checkSecrets searches for the agent's key.
func (s *attempt) checkSecrets() {
	s.t.Helper()
	if strings.Contains(string(s.output), testKey) || strings.Contains(s.result().Summary, testKey) {
		s.t.Errorf("the output contains the key: %s", s.output)
	}
	if out, err := exec.Command("grep", "-rl", testKey, s.workspace).CombinedOutput(); err == nil {
		s.t.Errorf("files of the workspace contain the key: %s", out)
	}
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
		if code := s.run(); code != 0 {
			t.Fatalf("code %d: %s", code, s.output)
		}
		s.checkFile("hello")
		s.checkUsage()
		s.checkSecrets()
		if got := s.result(); got.Summary != "The file is there." || got.SDKSessionID == "" {
			t.Errorf("result %+v", got)
		}
		for _, want := range []string{`"type":"toolCall"`, `"type":"toolResult"`, `"text":"I write it."`} {
			if !strings.Contains(string(s.output), want) {
				t.Errorf("no event with %s: %s", want, s.output)
			}
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
	if code := s.run(); code != 0 {
		s.t.Fatalf("code %d: %s", code, s.output)
	}
	s.checkFile("hello")
}

// The server counts the tokens of an answer that is cut off, but reports its output only at the end. So what the agent reports
// is not exact.
func TestAgentsRepeatRequestsWhoseAnswerIsCutOff(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		interrupted := modelserver.Turn{Text: strings.Repeat("Half of ", 50), Usage: modelserver.Usage{Input: 1000, Output: 300}, Interrupted: true}
		s := newAttempt(t, a, interrupted)
		if a.failsIfInterrupted {
			if code := s.run(); code == 0 || s.result().CostUSD != nil {
				t.Errorf("code %d: %s", code, s.output)
			}
			return
		}
		s.finishWork()
		if got := s.usage(); got.Complete != a.hidesInterruptions || got.OutputTokens < 39 {
			t.Errorf("usage %+v: %s", got, s.output)
		}
		if cost := s.result().CostUSD; cost != nil && !a.hidesInterruptions {
			t.Errorf("cost %s: %s", *cost, s.output)
		}
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
		command := s.command()
		output := &strings.Builder{}
		command.Stdout, command.Stderr = output, output
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		<-s.server.Hanging()
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = command.Wait()
		if code := command.ProcessState.ExitCode(); code != 143 {
			t.Fatalf("code %d: %s", code, output)
		}
		if got := s.result(); got.CostUSD != nil {
			t.Errorf("the cost of an unfinished attempt is %s", *got.CostUSD)
		}
		s.checkFile("hello")

		s.variables = map[string]string{"AGENTIC_ATTEMPT": "2", "AGENTIC_JOB": "demo-r1-a2", "AGENTIC_SDK_SESSION_ID": s.result().SDKSessionID}
		s.server.Append(modelserver.Turn{Text: "It was there already.", Usage: modelserver.Usage{Input: 7, Output: 9}})
		if code := s.run(); code != 0 {
			t.Fatalf("code %d: %s", code, s.output)
		}
		requests := s.server.Requests()
		last := requests[len(requests)-1].Body
		if !strings.Contains(last, "walrus") || !strings.Contains(last, "The work was interrupted") {
			t.Errorf("the conversation was not resumed: %s", last[max(0, len(last)-3000):])
		}
		s.checkFile("hello")
	})
}

func TestAgentsFailIfTheirKeyIsWrong(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		if a.profile == "claude-code" {
			s := newAttempt(t, a)
			s.variables = map[string]string{"CLAUDE_CODE_MAX_RETRIES": "0"} // it repeats such requests for minutes
			s.checkWrongKey()
			return
		}
		newAttempt(t, a).checkWrongKey()
	})
}

func (s *attempt) checkWrongKey() {
	s.t.Helper()
	s.server.APIKey = "another"
	if code := s.run(); code == 0 {
		s.t.Errorf("the session is successful: %s", s.output)
	}
	if got := s.result(); !strings.Contains(got.Summary, "401") {
		s.t.Errorf("summary %q: %s", got.Summary, s.output)
	}
}

// The whole path of a session: clone, edit, test, commit, push, pull request, and the cost in the result.
func TestAgentsFixABugAndOpenAPullRequest(t *testing.T) {
	forEachAgent(t, func(t *testing.T, a agentCase) {
		const password = "token-of-the-forge"
		server, err := gitserver.New(t.Context(), t.TempDir(), "x-access-token", password)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		s := newAttempt(t, a)
		s.inputs.Repos = []sessions.RunnerRepo{{
			SessionRepo: v1alpha1.SessionRepo{GitSource: v1alpha1.GitSource{URL: v1alpha1.GitURL(server.CloneURL()), Branch: "main"}, AutoPush: true}, Directory: "shop",
		}}
		volume, credentials := t.TempDir(), t.TempDir()
		if err := os.WriteFile(credentials+"/password", []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
		s.variables = map[string]string{"AGENTIC_GIT": volume}
		s.command() // writes the inputs
		git := exec.Command(program, "git", "--directory", volume, "--credentials", credentials, "--repositories", server.Host+"/team/*", "--forge", "GitHub")
		git.Env = append(os.Environ(), "GIT_SSL_CAINFO="+server.CAFile, "AGENTIC_SESSION=demo", "AGENTIC_SESSION_FILE="+s.directory+"/session.json")
		if err := git.Start(); err != nil {
			t.Fatal(err)
		}
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
		if code := s.run(); code != 0 {
			t.Fatalf("code %d: %s", code, s.output)
		}
		s.checkUsage()
		s.checkSecrets()
		result := s.result()
		if len(result.Repositories) != 1 || !result.Repositories[0].Pushed || !strings.HasSuffix(result.Repositories[0].PullRequestURL, "/team/shop/pull/1") {
			t.Fatalf("result %+v: %s", result, s.output)
		}
		if got, err := server.Git(t.Context(), "show", "session/demo:a.txt"); err != nil || got != "hello" {
			t.Errorf("content %q, error %v", got, err)
		}
		if got, _ := server.Git(t.Context(), "log", "-1", "--format=%s", "session/demo"); got != "Fixed the greeting." {
			t.Errorf("commit %q", got)
		}
		if strings.Contains(string(s.output), password) {
			t.Errorf("the output contains the password of git: %s", s.output)
		}
		if out, err := exec.Command("grep", "-rl", password, s.workspace, s.home, volume).CombinedOutput(); err == nil {
			t.Errorf("files contain the password of git: %s", out)
		}
	})
}
