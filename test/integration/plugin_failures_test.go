package integration

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/require"
)

// pluginCommands are all commands of the plugin that need a cluster. Those with an X need an object of this name.
func pluginCommands(t *testing.T) []string {
	t.Helper()
	prompt := filepath.Join(t.TempDir(), "prompt.md")
	require.NoError(t, os.WriteFile(prompt, []byte("Fix the tests"), 0o600))
	commands := []string{
		"report", "report -o json", "report --from-cluster", "report --group-by owner", "report explain X",
		"seq create new --image busybox:1.37 --step load=true", "seq watch", "seq watch X", "seq logs X", "seq logs X -f", "seq rerun X",
		"seq suspend X", "seq resume X", "seq approve X",
		"queue suspend X", "queue resume X", "queue dead list X", "queue dead requeue X --all", "queue dead purge X --all",
		"pool watch", "pool watch X", "pool explain X", "pool drain X", "pool restart X", "pool suspend-scaling X", "pool resume-scaling X",
		"session create new --prompt-file " + prompt, "session watch", "session watch X", "session logs X", "session result X", "session stop X", "session restart X",
	}
	for _, kind := range []string{"seq", "queue", "pool", "session"} {
		for _, output := range []string{"table", "wide", "name", "json", "yaml"} {
			commands = append(commands, kind+" list -o "+output, kind+" get X -o "+output)
		}
	}
	return commands
}

func TestPluginFailsWithOneLineThatSaysWhy(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, nil)
	_, kubeconfig := cluster.StartProxy(t, ns, func(w http.ResponseWriter, r *http.Request, api http.Handler) { api.ServeHTTP(w, r) }, nil)
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	config.Clusters["proxy"].Server = "http://127.0.0.1:1"
	require.NoError(t, clientcmd.WriteToFile(*config, unreachable))
	for title, failure := range map[string]struct {
		flags string
		// named is whether only commands with the name of an object fail.
		named bool
		want  string
	}{
		"no cluster":    {"--kubeconfig=" + unreachable, false, "connection refused"},
		"no permission": {"--as=jane", false, "forbidden"},
		"no context":    {"--context=no-such-context", false, "no-such-context"},
		"unknown name":  {"", true, "not found"},
	} {
		t.Run(title, func(t *testing.T) {
			for _, command := range pluginCommands(t) {
				named := strings.Contains(command, " X")
				if failure.named && !named {
					continue
				}
				var out, errOut bytes.Buffer
				arguments := "--kubeconfig=" + kubeconfig + " " + strings.ReplaceAll(command, " X", " no-such-object") + " " + failure.flags
				code := plugin.Run(t.Context(), strings.Fields(arguments), &out, &errOut)
				line := errOut.String()
				isOneLine := strings.Count(line, "\n") == 1 && strings.HasPrefix(line, "error: ") && strings.Contains(line, failure.want)
				require.True(t, code == 2 && out.Len() == 0 && isOneLine, "%s: exit code %d, stdout %q, stderr %q", command, code, out.String(), line)
			}
		})
	}
}
