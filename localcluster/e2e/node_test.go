//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

// The tests in test/e2e run Jobs, claims, images, webhooks, Services and NetworkPolicies on the same node. These scenarios are about what they do
// not use.
func TestOnARealNode(t *testing.T) {
	needsRoot(t)
	startCluster(t)
	for _, test := range []struct {
		title string
		run   func(*testing.T)
	}{
		{"Pods have a network immediately after network-policies restarts", restartPolicies},
		{"a killed component restarts and the cluster keeps working", restartComponents},
		{"a second up reports that the cluster already runs, and changes nothing", upAgain},
	} {
		t.Run(test.title, test.run)
	}
}

// webManifest serves the file "page" behind the Service "web".
const webManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox:1.37
    command: [sh, -c, "mkdir /www && echo served > /www/page && exec httpd -f -p 8080 -h /www"]
    readinessProbe: {httpGet: {path: /page, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 443, targetPort: 8080}]}
`

func startWeb(t *testing.T) {
	t.Helper()
	apply(t, webManifest)
	mustKubectl(t, "wait", "--for=condition=ready", "pod/web", "--timeout="+timeout.String())
	waitForOutput(t, "10.244.", "get", "endpointslices", "-l", "kubernetes.io/service-name=web")
}

func restartComponents(t *testing.T) {
	startWeb(t)
	for _, component := range []string{"network-policies", "kubelet", "containerd", "kube-proxy", "coredns", "control-plane"} {
		mustLocalcluster(t, "restart", component)
	}
	waitForOutput(t, "ok", "get", "--raw", "/readyz")
	waitForOutput(t, " Ready ", "get", "nodes")
	apply(t, jobManifest("after", "nc -w 5 kubernetes.default 443 < /dev/null && echo after", ""))
	waitJob(t, "after", "complete")
	expectOutput(t, "after", "logs", "job/after")
	expectOutput(t, "0", "get", "pod", "web", "-o", "jsonpath={.status.containerStatuses[0].restartCount}") // containers keep running
}

func upAgain(t *testing.T) {
	before := mustKubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	output, err := localcluster(t, "up")
	require.True(t, err == nil && strings.Contains(output, "already runs"), "up prints %q, %v", output, err)
	expectOutput(t, before, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
}

// clusterDir is the directory above pki/admin.kubeconfig.
func clusterDir(t *testing.T) string {
	t.Helper()
	kubeconfig := mustLocalcluster(t, "kubeconfig")
	return filepath.Dir(filepath.Dir(strings.TrimSpace(kubeconfig)))
}

// restartPolicies restarts network-policies while containerd is stopping a Pod and therefore reports nothing about other Pods.
func restartPolicies(t *testing.T) {
	startWeb(t)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: slow-stop}
spec:
  terminationGracePeriodSeconds: 10
  containers: [{name: main, image: "busybox:1.37", command: [sleep, "100000"]}]
`)
	for _, args := range [][]string{
		{"wait", "--for=condition=ready", "pod/slow-stop", "--timeout=" + timeout.String()},
		{"delete", "pod", "slow-stop", "--wait=false"},
	} {
		mustKubectl(t, args...)
	}
	waitForOutput(t, "Killing", "get", "events", "--field-selector=involvedObject.name=slow-stop", "-o", "jsonpath={.items[*].reason}")
	mustLocalcluster(t, "restart", "network-policies")
	expectOutput(t, "reached", "exec", "web", "--", "sh", "-c", "nc -w 5 10.211.0.2 6443 < /dev/null && echo reached")
	mustKubectl(t, "wait", "--for=delete", "pod/slow-stop", "--timeout="+timeout.String())
}
