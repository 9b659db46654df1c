package plugin

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/require"
)

// runDoctor runs the command for a cluster with these objects, whose API server has the time testTime.
func runDoctor(t *testing.T, args string, objects ...client.Object) (code int, out, errOut string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", testTime.Format(http.TimeFormat))
	}))
	t.Cleanup(server.Close)
	var stdout, stderr bytes.Buffer
	code = runCommand(t.Context(), append([]string{"doctor"}, strings.Fields(args)...), &environment{
		out: &stdout, errOut: &stderr, now: func() time.Time { return testTime },
		connect: func(clientcmd.ClientConfig) (*clusterConnection, error) {
			return &clusterConnection{WithWatch: newFakeClient(t, objects...), restConfig: &rest.Config{Host: server.URL}, namespace: "platform"}, nil
		},
	})
	return code, stdout.String(), stderr.String()
}

func operatorDeployment(replicas, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Namespace, d.Name, d.Labels = "platform", operatorName, map[string]string{"app.kubernetes.io/name": operatorName}
	d.Spec.Replicas, d.Status.ReadyReplicas = &replicas, ready
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: operatorName, Image: "registry.example/yardmaster:v1", Args: []string{"--controllers=*,-workerpool"},
		Env: []corev1.EnvVar{{Name: "YARDMASTER_NAMESPACES", Value: "team-a"}, {Name: "YARDMASTER_CONTROLLERS", Value: "queue"}},
	}}
	return d
}

func TestDoctorPrintsTheFixBelowEachFinding(t *testing.T) {
	code, out, errOut := runDoctor(t, "-n platform", operatorDeployment(3, 1))
	require.True(t, code == exitUnsuccessful && errOut == "", "exit code %d, stderr %q", code, errOut)
	want := `CHECK                STATUS    REASON
operator             WARNING   1 of 3 replicas are ready
  fix: kubectl describe pods --namespace platform --selector app.kubernetes.io/name=yardmaster,app.kubernetes.io/component=operator
leader               FAILED    no replica has ever led: the Lease platform/yardmaster.yardmaster.dev does not exist
  fix: kubectl rollout restart deployment yardmaster --namespace platform
definitions          FAILED    the CustomResourceDefinition agenticsessions.yardmaster.dev does not exist
  fix: make install deploy IMG=registry.example/yardmaster:v1 NAMESPACES='team-a' OPERATOR_NAMESPACE=platform CONTROLLERS='*,-workerpool'
`
	lines := strings.SplitAfter(out, "\n")
	require.True(t, cmp.Diff(want, strings.Join(lines[:7], "")) == "", "output:\n%s", out)
}

func TestDoctorRestoresReleasesOfTheChartWithHelm(t *testing.T) {
	deployment := operatorDeployment(2, 2)
	deployment.Annotations = map[string]string{"meta.helm.sh/release-name": "yard", "meta.helm.sh/release-namespace": "platform"}
	_, out, _ := runDoctor(t, "", deployment)
	if want := "fix: helm upgrade yard oci://ghcr.io/yardmaster/charts/yardmaster --namespace platform --reuse-values\n"; !strings.Contains(out, want) {
		t.Errorf("output:\n%s", out)
	}
}

func TestDifference(t *testing.T) {
	want := map[string]any{"a": "x  y", "list": []any{map[string]any{"b": int64(1)}}}
	for title, row := range map[string]struct {
		got  any
		want string
	}{
		"equal, with defaults":     {map[string]any{"a": "x\n y", "list": []any{map[string]any{"b": int64(1), "scope": "*"}}, "selector": map[string]any{}}, ""},
		"another value":            {map[string]any{"a": "x z", "list": []any{map[string]any{"b": int64(1)}}}, "spec.a"},
		"another value in a list":  {map[string]any{"a": "x y", "list": []any{map[string]any{"b": int64(2)}}}, "spec.list[0].b"},
		"a longer list":            {map[string]any{"a": "x y", "list": []any{map[string]any{"b": int64(1)}, "c"}}, "spec.list"},
		"a value that is missing":  {map[string]any{"a": "x y"}, "spec.list"},
		"a value that is too much": {map[string]any{"a": "x y", "list": []any{map[string]any{"b": int64(1)}}, "except": "team-a"}, "spec.except"},
		"nothing":                  {nil, "spec"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, difference("spec", want, row.got))
		})
	}
}

func TestDoctorAsksForTheQuotaThatTheDocumentationRecommends(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(strings.ReplaceAll(string(page), "\\\n", ""), "--hard="+RecommendedQuota+"\n"),
		"docs/security.md does not recommend %s", RecommendedQuota)
}
