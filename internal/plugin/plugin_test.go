package plugin

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/test/require"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newFakeClient returns a client for a cluster with these objects.
func newFakeClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := newClientScheme()
	require.NoError(t, err)
	byInvolvedObject := func(object client.Object) []string {
		return []string{string(object.(*corev1.Event).InvolvedObject.UID)}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().
		WithIndex(&corev1.Event{}, "involvedObject.uid", byInvolvedObject).Build()
}

// runPlugin runs the plugin for a cluster with these objects. Its kubeconfig selects
// namespace a.
func runPlugin(t *testing.T, args string, objects ...client.Object) (code int, out, errOut string) {
	t.Helper()
	return runPluginWith(t, args, newFakeClient(t, objects...))
}

func runPluginWith(t *testing.T, args string, c client.WithWatch) (code int, out, errOut string) {
	t.Helper()
	return runPluginArgs(t, strings.Fields(args), c)
}

func runPluginArgs(t *testing.T, words []string, c client.WithWatch) (code int, out, errOut string) {
	t.Helper()
	t.Setenv("KUBECONFIG", writeKubeconfig(t))
	var stdout, stderr bytes.Buffer
	code = runCommand(t.Context(), words, &environment{
		out: &stdout, errOut: &stderr,
		now: func() time.Time { return testTime },
		connect: func(config clientcmd.ClientConfig) (*clusterConnection, error) {
			namespace, _, err := config.Namespace()
			return &clusterConnection{WithWatch: c, namespace: namespace}, err
		},
	})
	return code, stdout.String(), stderr.String()
}

func writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", Namespace: "a"}
	config.CurrentContext = "c"
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func TestVersionNeedsNoCluster(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, 0, Run(t.Context(), []string{"version", "--kubeconfig", "missing"}, &out, io.Discard))
	require.True(t, strings.HasPrefix(out.String(), "kubectl-yardmaster ") && strings.Count(out.String(), "\n") == 1, "printed %q", out.String())
}
