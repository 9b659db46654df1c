//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
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

// createServerPod creates a Pod that serves two ports, and a Service of the same name for the first port. It waits until both are reachable.
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

func createProbePod(t *testing.T, name, command string, args ...string) *corev1.Pod {
	t.Helper()
	return createUntilEnd(t, newProbePod(name, command, args...))
}

func newProbePod(name, command string, args ...string) *corev1.Pod {
	return newPod(name, map[string]string{"probe": strings.TrimSuffix(name, "-")}, probeImage, append([]string{"/egressprobe", command}, args...)...)
}

// metadataAddress is where clouds serve credentials of the node.
const metadataAddress = "169.254.169.254:80"

// packetReceiver is a Pod that counts the packets that it receives, and what attackers of it try.
type packetReceiver struct {
	t       *testing.T
	pod     *corev1.Pod
	targets []string
	// before is the number of packets before the attacks.
	before int
}

// createPacketReceiver creates a receiver, and checks that it receives the packets of a Pod without a session.
func createPacketReceiver(t *testing.T) *packetReceiver {
	t.Helper()
	r := &packetReceiver{t: t, pod: createProbePod(t, "receiver-", "count", fmt.Sprintf(":%d", servicePort))}
	poll.Until(t, "the receiver to listen", func() bool {
		return objectExists(t, r.pod) && r.pod.Status.Phase == corev1.PodRunning && strings.Contains(r.log(), "listening")
	})
	for line := range strings.Lines(r.log()) {
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "address "); ok {
			for _, port := range []int{servicePort, otherPort} {
				to := net.JoinHostPort(address, strconv.Itoa(port))
				r.targets = append(r.targets, "tcp:"+to, "udp:"+to)
			}
		}
	}
	r.targets = append(r.targets, "tcp:"+egressAddress(&apiServerEgress(t)[1]), "tcp:"+metadataAddress)
	unused := r.packets()
	free := createProbePod(t, "free-", "try", r.targets...)
	waitForSuccess(t, free)
	wantProbed(t, free, []string{"tcp:" + podAddress(r.pod, servicePort)}, nil)
	poll.Until(t, "the packets of a Pod without a session", func() bool {
		r.before = r.packets()
		return r.before > unused
	})
	poll.Until(t, "its last packet", func() bool {
		last := r.before
		r.before = r.packets()
		return r.before == last
	})
	return r
}

func (r *packetReceiver) log() string {
	r.t.Helper()
	return readLog(r.t, r.pod.Namespace, r.pod.Name, "")
}

// packets returns the last number in the receiver's log.
func (r *packetReceiver) packets() int {
	r.t.Helper()
	log := r.log()
	_, last, _ := strings.Cut(log[max(strings.LastIndex(log, "packets"), 0):], " ")
	n, err := strconv.Atoi(strings.TrimSpace(last))
	require.True(r.t, err == nil, "the receiver reported no packets: %s", log)
	return n
}

// attackFrom starts a session that tries all targets all the time, and waits until it has.
func (r *packetReceiver) attackFrom(ns string) *sessionTest {
	r.t.Helper()
	runner := createRunnerIn(r.t, ns, "hostile-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command = probeImage, append([]string{"/egressprobe", "attack"}, r.targets...)
	})
	s := createSessionIn(r.t, ns, "hostile-", runner, "attack", nil)
	s.waitForPhase(v1alpha1.SessionRunning)
	s.waitForLogLine("round 3")
	return s
}

// wantNothing checks that no packet arrived since the receiver was created.
func (r *packetReceiver) wantNothing() {
	r.t.Helper()
	after := r.packets()
	require.True(r.t, after == r.before, "the receiver got %d packets", after-r.before)
}

// waitForAttacks waits until the session has tried everything at least twice more.
func (s *sessionTest) waitForAttacks() {
	s.t.Helper()
	pod := s.currentPod()
	rounds := func() int {
		log := readLog(s.t, pod.Namespace, pod.Name, v1alpha1.RunnerContainer)
		require.True(s.t, !strings.Contains(log, "reached"), "session %s reached a target: %s", s.s.Name, log)
		return strings.Count(log, "round ")
	}
	before := rounds()
	poll.Until(s.t, "the session to attack", func() bool { return rounds() >= before+2 })
}

func (s *sessionTest) deletePolicy() {
	s.t.Helper()
	require.NoError(s.t, cluster.Delete(s.t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.s.Namespace, Name: agenticsession.NetworkPolicyName(s.s.Name)},
	}))
}

func testHostileSessions(t *testing.T) {
	receiver := createPacketReceiver(t)
	running, stopped, deleted := receiver.attackFrom(sessionsNamespace), receiver.attackFrom(sessionsNamespace), receiver.attackFrom(sessionsNamespace)
	ending := []*corev1.Pod{stopped.currentPod(), deleted.currentPod()}

	running.deletePolicy()
	stopped.patchSpec(`{"suspend": true}`)
	deleted.deleteSession()
	running.waitForAttacks()
	for _, pod := range ending {
		waitUntilDeleted(t, pod)
	}
	running.waitForAttacks()
	receiver.wantNothing()
}

func testHostileSessionsWithoutOperator(t *testing.T) {
	receiver := createPacketReceiver(t)
	running, deleted := receiver.attackFrom(sessionsNamespace), receiver.attackFrom(sessionsNamespace)
	pod := deleted.currentPod()
	scaleOperatorToZero(t)
	running.deletePolicy()
	deleted.deleteSession()
	running.waitForAttacks()
	waitUntilDeleted(t, pod)
	poll.Until(t, "the other objects of the session to be deleted", func() bool {
		return len(countChildObjects(t, sessionsNamespace)[deleted.s.UID]) == 0
	})
	running.waitForAttacks()
	receiver.wantNothing()
}

// Since Kubernetes 1.33, the Pods of a namespace are deleted before its NetworkPolicies. While the namespace is missing, no other test
// may deploy the operator, which has Roles there. The operator that runs continues without them.
func testHostileSessionInDeletedNamespace(t *testing.T) {
	receiver := createPacketReceiver(t)
	pod := receiver.attackFrom(hostileNamespace).currentPod()
	deployments.Lock()
	defer deployments.Unlock()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostileNamespace}}
	require.NoError(t, cluster.Delete(t.Context(), ns))
	waitUntilDeleted(t, pod)
	receiver.wantNothing()
	waitUntilDeleted(t, ns)
	require.NoError(t, createNamespace(t.Context(), hostileNamespace))
}
