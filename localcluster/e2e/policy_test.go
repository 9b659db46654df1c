//go:build e2e

package e2e

import "testing"

// policies allow the Pods of the Job "confined" only DNS queries and the Service "web", and
// allow only the Pods of the Job "allowed" to reach the Pod "isolated".
const policies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: confined}
spec:
  podSelector: {matchLabels: {job-name: confined}}
  policyTypes: [Ingress, Egress]
  egress:
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{port: 53, protocol: UDP}]
  - to: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: isolated}
spec:
  podSelector: {matchLabels: {app: isolated}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {job-name: allowed}}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: isolated, labels: {app: isolated}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "busybox:1.37", command: [httpd, -f, -p, "8080"]}]
`

// connectivityScript tries the API server first, by address, so that the Pod's first packet is
// checked too.
const connectivityScript = `
try() { nc -w 2 $2 $3 < /dev/null 2> /dev/null && echo "reached $1" || echo "did not reach $1"; }
try 'the API server' 10.211.0.2 6443
try 'its Service' kubernetes.default 443
try 'the page' web 443
`

func egressPolicy(t *testing.T) {
	startWeb(t)
	startIsolatedPod(t)
	apply(t, jobManifest("confined", connectivityScript, ""))
	apply(t, jobManifest("unrestricted", connectivityScript, ""))
	waitJob(t, "confined", "complete")
	waitJob(t, "unrestricted", "complete")
	expectOutput(t, "reached the API server\nreached its Service\nreached the page", "logs", "job/unrestricted")
	expectOutput(t, "did not reach the API server\ndid not reach its Service\nreached the page", "logs", "job/confined")
}

func ingressPolicy(t *testing.T) {
	address := startIsolatedPod(t)
	script := "nc -w 2 " + address + " 8080 < /dev/null 2> /dev/null && echo reached || echo did not"
	apply(t, jobManifest("allowed", script, ""))
	apply(t, jobManifest("denied", script, ""))
	waitJob(t, "allowed", "complete")
	waitJob(t, "denied", "complete")
	expectOutput(t, "reached", "logs", "job/allowed")
	expectOutput(t, "did not", "logs", "job/denied")
}

// restartPolicies restarts network-policies while containerd is stopping a Pod and therefore
// reports nothing about other Pods.
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
		if _, err := kubectl(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	waitForOutput(t, "Killing", "get", "events", "--field-selector=involvedObject.name=slow-stop", "-o", "jsonpath={.items[*].reason}")
	if _, err := localcluster(t, "restart", "network-policies"); err != nil {
		t.Fatal(err)
	}
	expectOutput(t, "reached", "exec", "web", "--", "sh", "-c", "nc -w 5 10.211.0.2 6443 < /dev/null && echo reached")
	if _, err := kubectl(t, "wait", "--for=delete", "pod/slow-stop", "--timeout="+timeout.String()); err != nil {
		t.Fatal(err)
	}
}

// startIsolatedPod applies the policies and returns the address of the Pod "isolated".
func startIsolatedPod(t *testing.T) string {
	t.Helper()
	apply(t, policies)
	if _, err := kubectl(t, "wait", "--for=condition=ready", "pod/isolated", "--timeout="+timeout.String()); err != nil {
		t.Fatal(err)
	}
	address, err := kubectl(t, "get", "pod", "isolated", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	return address
}
