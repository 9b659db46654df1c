package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestPluginWatchContinuesWhenTheAPIServerIsAvailableAgain(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	var isUnavailable atomic.Bool
	server, kubeconfig := cluster.StartProxy(t, s.sj.Namespace, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if isUnavailable.Load() {
			http.Error(w, "the API server is unavailable", http.StatusServiceUnavailable)
			return
		}
		api.ServeHTTP(w, r)
	}, nil)
	var out output.Buffer
	code := make(chan int, 1)
	arguments := []string{"seq", "watch", "etl", "--kubeconfig=" + kubeconfig}
	go func() { code <- plugin.Run(t.Context(), arguments, &out, &out) }()
	waitForOutput := func(text string) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("the plugin to print %q", text), func() bool { return strings.Contains(out.String(), text) })
	}
	s.succeedStep("extract")
	waitForOutput("step extract: Succeeded")
	isUnavailable.Store(true)
	server.CloseClientConnections()
	waitForOutput("connection lost")
	s.succeedStep("load")
	isUnavailable.Store(false)
	waitForOutput("connection restored")
	waitForOutput("Completed, 2/2 steps")
	require.Equal(t, 0, <-code)
}

// pluginCommands are all commands of the plugin that need a cluster. Those with an X need an object of this name.
func pluginCommands(t *testing.T) []string {
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

func TestWebhookCAInstallsTheCertificateOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		namespace  string // instead of that of the Service
		annotation map[string]string
		secret     map[string][]byte
		isEmpty    bool // the controllers that run have no webhooks
		want       string
	}{
		"no webhooks":                          {isEmpty: true, want: "created the certificate authority"},
		"another namespace than the Service's": {namespace: "default", want: "use --namespace "},
		"cert-manager":                         {annotation: map[string]string{"cert-manager.io/inject-ca-from": "a/b"}, want: "from cert-manager"},
		"an incomplete Secret":                 {secret: map[string][]byte{"path": []byte("a")}, want: "lacks ca.crt: delete the Secret"},
	} {
		t.Run(title, func(t *testing.T) {
			ns := namespace(t)
			configuration, stored := objectOf(t, uncalledWebhook, ns), &admissionregistrationv1.ValidatingWebhookConfiguration{}
			configuration.SetAnnotations(row.annotation)
			wantCode := 2
			if row.isEmpty {
				delete(configuration.Object, "webhooks")
				wantCode = 0
			}
			mustCreate(t, configuration)
			if row.secret != nil {
				mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "yardmaster-webhook-ca"}, Data: row.secret})
			}
			var out bytes.Buffer
			arguments := []string{"webhook-ca", "--kubeconfig", cluster.Kubeconfig, "--namespace", cmp.Or(row.namespace, ns)}
			code := plugin.Run(t.Context(), arguments, &out, &out)
			require.True(t, code == wantCode && strings.Contains(out.String(), row.want), "exit code %d, output %q, want %q", code, out.String(), row.want)
			mustGet(t, client.ObjectKeyFromObject(configuration), stored)
			require.True(t, row.isEmpty || stored.Webhooks[0].ClientConfig.CABundle == nil, "the configuration was changed")
		})
	}
}

// uncalledWebhook is the configuration of an installation in this namespace whose webhook matches no object.
const uncalledWebhook = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
	metadata: {name: $NS, labels: {app.kubernetes.io/name: yardmaster}}, webhooks: [{
		name: first.yardmaster.dev, clientConfig: {service: {name: webhook, namespace: $NS}}, sideEffects: None, admissionReviewVersions: [v1],
		rules: [{operations: [CONNECT], apiGroups: [none.yardmaster.dev], apiVersions: [v1], resources: [none]}]}]}`
