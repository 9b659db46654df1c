//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	probeImage = "egress-probe:v1"
	// tlsPort is the port of a TLS server.
	tlsPort = 8443
)

func testSessionHosts(t *testing.T) {
	allowed, other := createTLSServer(t, newTLSServer("allowed-")), createTLSServer(t, newTLSServer("other-"))
	// A Pod in the network of the node has no address in the networks that the operator allows.
	private := newTLSServer("private-")
	private.Namespace, private.Spec.HostNetwork = privilegedNamespace, true
	private = createTLSServer(t, private)
	address := func(host string) string { return fmt.Sprintf("%s:%d", host, tlsPort) }
	reachable := []string{"https://" + address(hostName(allowed))}
	unreachable := []string{
		"https://" + address(hostName(other)), "https://" + address(hostName(private)),
		"https://" + address(allowed.Status.PodIP), "name:other.example.com@" + address(hostName(allowed)),
		"tcp:" + address(allowed.Status.PodIP), "tcp:" + address(hostName(allowed)), "tcp:" + egressAddress(&apiServerEgress(t)[1]),
		"dns:" + hostName(allowed), "dns:kubernetes.default.svc.cluster.local",
	}
	targets := slices.Concat(reachable, unreachable)

	// A Pod without a session reaches all of them, or the test proves nothing.
	free := createProbePod(t, "free-", "try", targets...)
	waitForSuccess(t, free)
	wantProbed(t, free, targets, nil)

	runner := createRunnerIn(t, sessionsNamespace, "hosts-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command = probeImage, append([]string{"/egressprobe", "try"}, targets...)
		spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{
			v1alpha1.EgressHost(address(hostName(allowed))), v1alpha1.EgressHost(address(hostName(private))),
		}}}
	})
	s := createSession(t, runner, "probe", nil)
	s.waitForPhase(v1alpha1.SessionCompleted)
	// The session has completed, so its status names no Job.
	pods := podsWith(t, sessionsNamespace, map[string]string{agenticsession.LabelSession: s.s.Name})
	require.Equal(t, 1, len(pods))
	wantProbed(t, &pods[0], reachable, unreachable)
	s.wantRefusalsLogged("HostNotAllowed", "AddressNotAllowed", "ServerNameMismatch")
}

// wantRefusalsLogged checks that the proxies logged refusals of the session for these reasons.
func (s *sessionTest) wantRefusalsLogged(reasons ...string) {
	s.t.Helper()
	proxies := podsWith(s.t, sessionsNamespace, workload.Selector().MatchLabels)
	log := ""
	for i := range proxies {
		log += readLog(s.t, sessionsNamespace, proxies[i].Name, "")
	}
	for _, reason := range reasons {
		isLogged := slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
			return strings.Contains(line, `"reason":"`+reason+`"`) && strings.Contains(line, `"session":"`+s.s.Name+`"`)
		})
		require.True(s.t, isLogged, "no refusal with the reason %s is logged for session %s:\n%s", reason, s.s.Name, log)
	}
}

// wantProbed checks what a Pod with the probe reached.
func wantProbed(t *testing.T, pod *corev1.Pod, reached, notReached []string) {
	t.Helper()
	log := readLog(t, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name)
	lines := strings.Split(log, "\n")
	for _, target := range reached {
		require.True(t, slices.Contains(lines, "reached "+target), "%s did not reach %s:\n%s", pod.Name, target, log)
	}
	for _, target := range notReached {
		require.True(t, slices.Contains(lines, "did not reach "+target), "%s reached %s:\n%s", pod.Name, target, log)
	}
}

// hostName returns the name by which the cluster's DNS knows a server with a headless Service.
func hostName(server *corev1.Pod) string {
	return server.Name + "." + server.Namespace + ".svc.cluster.local"
}

func newTLSServer(name string) *corev1.Pod {
	return newProbePod(name, "serve", fmt.Sprintf(":%d", tlsPort))
}

// createTLSServer creates a Pod that serves TLS, and a headless Service with its name.
func createTLSServer(t *testing.T, server *corev1.Pod) *corev1.Pod {
	t.Helper()
	createUntilEnd(t, server)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: server.Name, Namespace: server.Namespace}}
	service.Spec.ClusterIP, service.Spec.Selector = corev1.ClusterIPNone, server.Labels
	service.Spec.Ports = []corev1.ServicePort{{Port: tlsPort}}
	createUntilEnd(t, service)
	poll.Until(t, server.Name+" to have an address", func() bool { return objectExists(t, server) && server.Status.PodIP != "" })
	waitForSuccess(t, createScriptPod(t, "client-", nil, fmt.Sprintf("until nc -w 1 %s %d < /dev/null; do sleep 0.1; done", hostName(server), tlsPort)))
	return server
}

// createProbePod creates a Pod that runs the probe.
func createProbePod(t *testing.T, name, command string, args ...string) *corev1.Pod {
	t.Helper()
	return createUntilEnd(t, newProbePod(name, command, args...))
}

func newProbePod(name, command string, args ...string) *corev1.Pod {
	return newPod(name, map[string]string{"probe": strings.TrimSuffix(name, "-")}, probeImage, append([]string{"/egressprobe", command}, args...)...)
}
