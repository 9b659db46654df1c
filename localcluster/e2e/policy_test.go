//go:build e2e

package e2e

import "testing"

// policies let the Pods of the Job "enclosed" look up names and reach the page,
// and let the Pods of the Job "friend" reach the hermit.
const policies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: enclosed}
spec:
  podSelector: {matchLabels: {job-name: enclosed}}
  policyTypes: [Ingress, Egress]
  egress:
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{port: 53, protocol: UDP}]
  - to: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: hermit}
spec:
  podSelector: {matchLabels: {app: hermit}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {job-name: friend}}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: hermit, labels: {app: hermit}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "busybox:1.37", command: [httpd, -f, -p, "8080"]}]
`

// look tries the API server first, by its address: with the first packet of the Pod.
const look = `
try() { nc -w 2 $2 $3 < /dev/null 2> /dev/null && echo "reached $1" || echo "did not reach $1"; }
try 'the API server' 10.211.0.2 6443
try 'its Service' kubernetes.default 443
try 'the page' web 443
`

func enclosed(t *testing.T) {
	startWeb(t)
	startHermit(t)
	apply(t, job("enclosed", look, ""))
	apply(t, job("free", look, ""))
	waitJob(t, "enclosed", "complete")
	waitJob(t, "free", "complete")
	want(t, "reached the API server\nreached its Service\nreached the page", "logs", "job/free")
	want(t, "did not reach the API server\ndid not reach its Service\nreached the page", "logs", "job/enclosed")
}

func hermit(t *testing.T) {
	address := startHermit(t)
	visit := "nc -w 2 " + address + " 8080 < /dev/null 2> /dev/null && echo reached || echo did not"
	apply(t, job("friend", visit, ""))
	apply(t, job("stranger", visit, ""))
	waitJob(t, "friend", "complete")
	waitJob(t, "stranger", "complete")
	want(t, "reached", "logs", "job/friend")
	want(t, "did not", "logs", "job/stranger")
}

// restartPolicies restarts network-policies while containerd is stopping a Pod and therefore
// reports nothing about other Pods.
func restartPolicies(t *testing.T) {
	startWeb(t)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 10
  containers: [{name: main, image: "busybox:1.37", command: [sleep, "100000"]}]
`)
	for _, args := range [][]string{
		{"wait", "--for=condition=ready", "pod/stubborn", "--timeout=" + patience.String()},
		{"delete", "pod", "stubborn", "--wait=false"},
	} {
		if _, err := kubectl(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "Killing", "get", "events", "--field-selector=involvedObject.name=stubborn", "-o", "jsonpath={.items[*].reason}")
	if _, err := localcluster(t, "restart", "network-policies"); err != nil {
		t.Fatal(err)
	}
	want(t, "reached", "exec", "web", "--", "sh", "-c", "nc -w 5 10.211.0.2 6443 < /dev/null && echo reached")
	if _, err := kubectl(t, "wait", "--for=delete", "pod/stubborn", "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
}

// startHermit returns the address of a Pod that few can reach.
func startHermit(t *testing.T) string {
	t.Helper()
	apply(t, policies)
	if _, err := kubectl(t, "wait", "--for=condition=ready", "pod/hermit", "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
	address, err := kubectl(t, "get", "pod", "hermit", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	return address
}
