//go:build agents

package agents

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
	"github.com/yardmaster/yardmaster/test/modelserver"
	"github.com/yardmaster/yardmaster/test/require"
)

// modelProxy is the container between an agent and its model, whose volumes survive its restarts.
type modelProxy struct {
	t         *testing.T
	directory string
	arguments []string
	command   *exec.Cmd
}

var modelProviders = map[string]string{"claude-code": "Anthropic", "codex": "OpenAI", "gemini": "Google", "opencode": "Anthropic"}

func startModelProxy(t *testing.T, agent, url string, limit int) *modelProxy {
	t.Helper()
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
		s.checkSecrets()
		proxy.kill()
		proxy.start()
		s.run()
		after, _ := s.server.Usage()
		require.Equal(t, usage, after)
	})
}
