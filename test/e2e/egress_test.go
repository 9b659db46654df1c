//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	// servicePort and otherPort are the ports of a server Pod; its Service has only the first.
	servicePort, otherPort = 8080, 9090
)

// serverScript serves both ports of a server Pod.
const serverScript = "httpd -p 9090 -h /tmp; exec httpd -f -p 8080 -h /tmp"

func testSessionEgress(t *testing.T) {
	server, other := createServerPod(t, "server"), createServerPod(t, "other-server")
	apiServer := apiServerEgress(t)
	service, endpoint := egressAddress(&apiServer[0]), egressAddress(&apiServer[1])
	named := fmt.Sprintf("%s.%s.svc:%d", server.Name, sessionsNamespace, servicePort)
	prompt := []string{endpoint, service, podAddress(server, servicePort), podAddress(server, otherPort), podAddress(other, servicePort), named}

	// Without restrictions all addresses must answer, or the test proves nothing.
	unrestricted := createSession(t, createRunnerWithEgress(t, "unrestricted-", v1alpha1.SessionEgress{
		To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(1, 65535),
	}), connectPrompt(prompt), nil)
	restrictedSession := createSession(t, createRunnerWithEgress(t, "restricted-", v1alpha1.SessionEgress{
		To: testbuilder.Block(server.Status.PodIP + "/32"), Ports: testbuilder.Ports(servicePort),
	}), connectPrompt(prompt), nil)
	unrestricted.waitForPhase(v1alpha1.SessionCompleted)
	unrestricted.wantReached(prompt, prompt)
	restrictedSession.waitForPhase(v1alpha1.SessionCompleted)
	// The cluster's DNS resolves the name.
	restrictedSession.wantReached(prompt, []string{podAddress(server, servicePort), named})
}

func testSessionIngress(t *testing.T) {
	interactive := createSession(t, interactiveRunner, "", func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true })
	// A session that is not interactive is not reachable, although it listens.
	noninteractive := createSession(t, shellRunner, "httpd -p 8080 -h /tmp; nc 127.0.0.1 8080 < /dev/null && echo listening; sleep 3600", nil)
	server := createServerPod(t, "unrestricted-server") // without a NetworkPolicy
	interactive.waitForPhase(v1alpha1.SessionRunning)
	noninteractive.waitForPhase(v1alpha1.SessionRunning)
	noninteractive.waitForLogLine("listening")
	for _, visit := range []struct {
		source string
		labels map[string]string
		to     *corev1.Pod
		want   bool
	}{
		{"a Pod in ingressFrom", visitorLabels, interactive.currentPod(), true},
		{"another Pod", nil, interactive.currentPod(), false},
		{"a Pod in ingressFrom", visitorLabels, noninteractive.currentPod(), false},
		{"another Pod", nil, server, true},
	} {
		if got := canConnect(t, visit.labels, podAddress(visit.to, servicePort)); got != visit.want {
			t.Errorf("%s reaches %s: %t, want %t", visit.source, visit.to.Name, got, visit.want)
		}
	}
}

// createRunnerWithEgress creates a SessionRunner for the reference runner with these egress rules.
func createRunnerWithEgress(t *testing.T, name string, egress ...v1alpha1.SessionEgress) string {
	t.Helper()
	return createRunnerIn(t, sessionsNamespace, name, func(spec *v1alpha1.SessionRunnerSpec) { spec.Network.Egress = egress })
}

// createRunnerIn creates a SessionRunner for the reference runner.
func createRunnerIn(t *testing.T, ns, name string, change func(spec *v1alpha1.SessionRunnerSpec)) string {
	t.Helper()
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: ns}}
	r.Spec.Image, testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsUser = runnerImage, new(int64(65532))
	change(&r.Spec)
	// Low requests, so that many Pods fit on the node.
	testbuilder.RunnerContainer(&r.Spec).Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
	}
	createUntilEnd(t, r)
	return r.Name
}

// connectPrompt returns a prompt with which the reference runner connects to the addresses.
func connectPrompt(addresses []string) string {
	return "/connect " + strings.Join(addresses, "\n/connect ")
}

// wantReached checks which of the tried addresses the session reached.
func (s *sessionTest) wantReached(tried, reached []string) {
	s.t.Helper()
	want := "Echoed 0 lines"
	for _, address := range tried {
		verb := "did not reach"
		for _, other := range reached {
			if other == address {
				verb = "reached"
			}
		}
		want += ", " + verb + " " + address
	}
	s.wantSummary(want)
}

// egressAddress returns the first address and port of a rule.
func egressAddress(egress *v1alpha1.SessionEgress) string {
	return fmt.Sprintf("%s:%d", strings.TrimSuffix(egress.To.IPBlock.CIDR, "/32"), egress.Ports[0].Port.IntVal)
}

func podAddress(pod *corev1.Pod, port int32) string {
	return fmt.Sprintf("%s:%d", pod.Status.PodIP, port)
}

// createServerPod creates a Pod that serves two ports, and a Service of the same name for the first
// port. It waits until both are reachable.
func createServerPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": name}
	server := createScriptPod(t, name+"-", labels, serverScript)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: server.Name, Namespace: server.Namespace}}
	service.Spec.Selector, service.Spec.Ports = labels, []corev1.ServicePort{{Port: servicePort, TargetPort: intstr.FromInt32(servicePort)}}
	createUntilEnd(t, service)
	poll.Until(t, name+" to have an address", func() bool { return objectExists(t, server) && server.Status.PodIP != "" })
	// The node's proxy programs the Service a moment later.
	waitForSuccess(t, createScriptPod(t, "client-", nil, fmt.Sprintf(
		"until nc -w 1 %s %d < /dev/null && nc -w 1 %s %d < /dev/null; do sleep 0.1; done", server.Name, servicePort, server.Status.PodIP, otherPort)))
	return server
}

// canConnect reports whether a Pod with these labels can connect to an address.
func canConnect(t *testing.T, labels map[string]string, address string) bool {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	script := fmt.Sprintf("nc -w 3 %s %s < /dev/null && printf reached > /dev/termination-log || true", host, port)
	pod := createScriptPod(t, "client-", labels, script)
	waitForSuccess(t, pod)
	return pod.Status.ContainerStatuses[0].State.Terminated.Message == "reached"
}

// waitForSuccess waits until a Pod has succeeded.
func waitForSuccess(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	poll.Until(t, pod.Name+" to succeed", func() bool { return objectExists(t, pod) && pod.Status.Phase == corev1.PodSucceeded })
}

// createScriptPod creates a Pod that runs a script.
func createScriptPod(t *testing.T, name string, labels map[string]string, script string) *corev1.Pod {
	t.Helper()
	return createUntilEnd(t, newPod(name, labels, busyboxImage, "sh", "-c", script))
}

// newPod returns a Pod without a session, which runs a command once.
func newPod(name string, labels map[string]string, image string, command ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: sessionsNamespace, Labels: labels}}
	pod.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)), SecurityContext: restrictedPodSecurityContext(),
		Containers: []corev1.Container{{Name: "main", Image: image, Command: command, SecurityContext: restrictedSecurityContext()}},
	}
	return pod
}

// createUntilEnd creates an object until the end of the test.
func createUntilEnd[T client.Object](t *testing.T, object T) T {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	deleteAtEnd(t, object)
	return object
}

func deleteAtEnd(t *testing.T, object client.Object) {
	t.Cleanup(func() {
		if t.Failed() {
			return // hack/with-cluster keeps a description of what exists after a failure
		}
		require.NoError(t, client.IgnoreNotFound(cluster.Delete(context.Background(), object)))
	})
}
