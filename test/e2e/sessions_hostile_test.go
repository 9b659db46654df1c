//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
	if after := r.packets(); after != r.before {
		r.t.Errorf("the receiver got %d packets", after-r.before)
	}
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
	require.NoError(t, createNamespace(t.Context(), hostileNamespace, "restricted"))
}
