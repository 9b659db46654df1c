//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestOnARealNode(t *testing.T) {
	needsRoot(t)
	startCluster(t)
	for _, test := range []struct {
		title string
		run   func(*testing.T)
	}{
		{"a Job runs to completion and its logs can be read", readJobLogs},
		{"a Job reads what another Job wrote to the same claim", shareClaim},
		{"a claim's directory is deleted with the claim", deleteClaim},
		{"a missing image fails immediately", runMissingImage},
		{"a container over its memory limit is OOMKilled", exceedMemoryLimit},
		{"a Job over its deadline fails with DeadlineExceeded", exceedDeadline},
		{"kubectl exec passes input, output and exit codes", execInPod},
		{"kubectl port-forward reaches a Pod from the host", portForward},
		{"the API server calls webhooks in the cluster", callWebhook},
		{"Pods find Services by name, and the API server", lookUpServices},
		{"a Pod reaches only what its NetworkPolicy allows, from its first packet on", egressPolicy},
		{"a Pod is reached only from Pods that its NetworkPolicy allows", ingressPolicy},
		{"Pods have a network immediately after network-policies restarts", restartPolicies},
		{"a Pod under the restricted profile writes to its volume", runRestrictedPod},
		{"an image built by build-image runs after load-image", runBuiltImage},
		{"a killed component restarts and the cluster keeps working", restartComponents},
		{"a second up reports that the cluster already runs, and changes nothing", upAgain},
	} {
		t.Run(test.title, test.run)
	}
}

func readJobLogs(t *testing.T) {
	apply(t, jobManifest("hello", "echo hello", ""))
	waitJob(t, "hello", "complete")
	expectOutput(t, "hello", "logs", "job/hello")
}

const claimTemplate = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
`

func claimManifest(name string) string { return strings.Replace(claimTemplate, "NAME", name, 1) }

// withClaim returns the fields of a Pod that mounts a claim at /data and does not run as root.
func withClaim(claim string) string {
	return `
  volumeMounts: [{name: data, mountPath: /data}]
securityContext: {runAsUser: 65532, runAsGroup: 65532}
volumes: [{name: data, persistentVolumeClaim: {claimName: ` + claim + `}}]`
}

func shareClaim(t *testing.T) {
	apply(t, claimManifest("shared")+jobManifest("writer", "echo written > /data/file", withClaim("shared")))
	waitJob(t, "writer", "complete")
	apply(t, jobManifest("reader", "cat /data/file", withClaim("shared")))
	waitJob(t, "reader", "complete")
	expectOutput(t, "written", "logs", "job/reader")
}

func deleteClaim(t *testing.T) {
	apply(t, claimManifest("brief"))
	waitForOutput(t, "Bound", "get", "pvc", "brief")
	volume, err := kubectl(t, "get", "pvc", "brief", "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(clusterDir(t), "volumes", volume)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(t, "delete", "pvc", "brief"); err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(t, "wait", "--for=delete", "pv/"+volume, "--timeout="+timeout.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory still exists: %v", err)
	}
}

func runMissingImage(t *testing.T) {
	apply(t, strings.Replace(jobManifest("nosuch", "true", ""), "busybox:1.37", "registry.example.com/nosuch:1", 1))
	waitForOutput(t, "ErrImagePull", "get", "events", "--field-selector=reason=Failed", "-o", "jsonpath={.items[*].message}")
	if _, err := kubectl(t, "delete", "job", "nosuch"); err != nil {
		t.Fatal(err)
	}
}

func exceedMemoryLimit(t *testing.T) {
	apply(t, jobManifest("greedy", "exec tail /dev/zero", "  resources: {limits: {memory: 32Mi}}"))
	waitJob(t, "greedy", "failed")
	expectOutput(t, "OOMKilled 137", "get", "pods", "-l", "job-name=greedy",
		"-o", "jsonpath={.items[0].status.containerStatuses[0].state.terminated['reason','exitCode']}")
}

func exceedDeadline(t *testing.T) {
	apply(t, strings.Replace(jobManifest("late", "sleep 1000", ""), "backoffLimit: 0", "activeDeadlineSeconds: 2", 1))
	waitJob(t, "late", "failed")
	expectOutput(t, "DeadlineExceeded", "get", "job", "late", "-o", "jsonpath={.status.conditions[?(@.type=='Failed')].reason}")
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
	if _, err := kubectl(t, "wait", "--for=condition=ready", "pod/web", "--timeout="+timeout.String()); err != nil {
		t.Fatal(err)
	}
	waitForOutput(t, "10.244.", "get", "endpointslices", "-l", "kubernetes.io/service-name=web")
}

func execInPod(t *testing.T) {
	startWeb(t)
	command := exec.CommandContext(t.Context(), program, "kubectl", "--name", clusterName, "--", "exec", "-i", "web", "--", "sh", "-c", "cat; exit 3")
	command.Stdin = strings.NewReader("input")
	output, err := command.Output()
	if string(output) != "input" || command.ProcessState.ExitCode() != 3 {
		t.Errorf("printed %q, exit code %d, %v", output, command.ProcessState.ExitCode(), err)
	}
}

func portForward(t *testing.T) {
	startWeb(t)
	command := exec.CommandContext(t.Context(), program, "kubectl", "--name", clusterName, "--", "port-forward", "pod/web", ":8080")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Process.Kill(); _ = command.Wait() }()
	line := make([]byte, 1000)
	n, err := output.Read(line) // "Forwarding from 127.0.0.1:PORT -> 8080"
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(line[:n]))
	response, err := http.Get("http://" + address + "/page")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "served\n" {
		t.Errorf("got %q, %v", body, err)
	}
}

// callWebhook needs no server with certificates: the API server's error about an answer in plain
// HTTP shows that it reached the Service.
func callWebhook(t *testing.T) {
	startWeb(t)
	apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: web}
webhooks:
- name: web.example.com
  clientConfig: {service: {namespace: default, name: web}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  timeoutSeconds: 5
`)
	defer func() {
		if _, err := kubectl(t, "delete", "validatingwebhookconfiguration", "web"); err != nil {
			t.Error(err)
		}
	}()
	for range 100 { // until the API server calls the webhook
		_, err := kubectl(t, "create", "configmap", "a", "--dry-run=server")
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
			t.Error(err)
		}
		return
	}
	t.Error("the webhook was never called")
}

func lookUpServices(t *testing.T) {
	startWeb(t)
	const get = `printf 'GET /page HTTP/1.0\r\n\r\n' | nc -w 5 %s 443 | tail -n 1; `
	script := fmt.Sprintf(get, "web.default.svc.cluster.local") + fmt.Sprintf(get, "web") + "nc -w 5 kubernetes.default 443 < /dev/null && echo reached"
	apply(t, jobManifest("client", script, ""))
	waitJob(t, "client", "complete")
	expectOutput(t, strings.Repeat("served\n", 2)+"reached", "logs", "job/client")
}

func runRestrictedPod(t *testing.T) {
	if _, err := kubectl(t, "label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := kubectl(t, "label", "namespace", "default", "pod-security.kubernetes.io/enforce-"); err != nil {
			t.Error(err)
		}
	}()
	apply(t, claimManifest("kept")+jobManifest("careful", "touch /data/file && ! touch /file && grep Seccomp: /proc/self/status", `
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumeMounts: [{name: data, mountPath: /data}]
securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
volumes: [{name: data, persistentVolumeClaim: {claimName: kept}}]`))
	waitJob(t, "careful", "complete")
	waitForOutput(t, "Seccomp:\t2", "logs", "job/careful")
}

func runBuiltImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	build := exec.CommandContext(t.Context(), program, "build-image", "--tag", "example.com/own:1", "--file", "/bin/busybox:/bin/sh", "--user", "65532:65532", "--output", file)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if _, err := localcluster(t, "load-image", file); err != nil {
		t.Fatal(err)
	}
	apply(t, strings.Replace(jobManifest("own", "echo own", ""), "busybox:1.37", "example.com/own:1", 1))
	waitJob(t, "own", "complete")
	expectOutput(t, "own", "logs", "job/own")
}

func restartComponents(t *testing.T) {
	startWeb(t)
	for _, component := range []string{"network-policies", "kubelet", "containerd", "kube-proxy", "coredns", "control-plane"} {
		if _, err := localcluster(t, "restart", component); err != nil {
			t.Fatal(err)
		}
	}
	waitForOutput(t, "ok", "get", "--raw", "/readyz")
	waitForOutput(t, " Ready ", "get", "nodes")
	apply(t, jobManifest("after", "nc -w 5 kubernetes.default 443 < /dev/null && echo after", ""))
	waitJob(t, "after", "complete")
	expectOutput(t, "after", "logs", "job/after")
	expectOutput(t, "0", "get", "pod", "web", "-o", "jsonpath={.status.containerStatuses[0].restartCount}") // containers keep running
}

func upAgain(t *testing.T) {
	before, err := kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	output, err := localcluster(t, "up")
	if err != nil || !strings.Contains(output, "already runs") {
		t.Errorf("up prints %q, %v", output, err)
	}
	expectOutput(t, before, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
}

// clusterDir is the directory above pki/admin.kubeconfig.
func clusterDir(t *testing.T) string {
	t.Helper()
	kubeconfig, err := localcluster(t, "kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(filepath.Dir(strings.TrimSpace(kubeconfig)))
}
