//go:build e2e

package e2e

import "testing"

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
