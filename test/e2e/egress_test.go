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
)

const (
	// front and back are ports of an inn.
	front, back = 8080, 9090
	// hasty is how many sessions try the network at once, each with its first packet.
	hasty = 10
)

// serve answers on both ports of an inn.
const serve = "httpd -p 9090 -h /tmp; exec httpd -f -p 8080 -h /tmp"

func sessionEgress(t *testing.T) {
	inn, other := createServerPod(t, "inn"), createServerPod(t, "other-inn")
	apiServer := apiServerEgress(t)
	service, endpoint := egressAddress(&apiServer[0]), egressAddress(&apiServer[1])
	named := fmt.Sprintf("%s.%s.svc:%d", inn.Name, sessionsNamespace, front)
	prompt := []string{endpoint, service, podAddress(inn, front), podAddress(inn, back), podAddress(other, front), named}

	// Without the closing all of it answers, so that the other session's says something.
	free := createSession(t, createRunnerWithEgress(t, "free-", v1alpha1.SessionEgress{
		CIDR: "0.0.0.0/0", Ports: []v1alpha1.SessionPort{{Port: 1, EndPort: new(int32(65535))}},
	}), connectPrompt(prompt), nil)
	enclosed := createSession(t, createRunnerWithEgress(t, "enclosed-", v1alpha1.SessionEgress{
		CIDR: inn.Status.PodIP + "/32", Ports: []v1alpha1.SessionPort{{Port: front}},
	}), connectPrompt(prompt), nil)
	free.waitForPhase(v1alpha1.SessionCompleted)
	free.wantReached(prompt, prompt)
	enclosed.waitForPhase(v1alpha1.SessionCompleted)
	// A name is looked up at the cluster's DNS.
	enclosed.wantReached(prompt, []string{podAddress(inn, front), named})
}

func sessionFirstPacket(t *testing.T) {
	endpoint := []string{egressAddress(&apiServerEgress(t)[1])}
	runner := createRunnerWithEgress(t, "closed-")
	var stories []*sessionTest
	for range hasty {
		stories = append(stories, createSession(t, runner, connectPrompt(endpoint), nil))
	}
	for _, s := range stories {
		s.waitForPhase(v1alpha1.SessionCompleted)
		s.wantReached(endpoint, nil)
	}
}

func sessionIngress(t *testing.T) {
	guarded := createSession(t, interactiveRunner, "", func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true })
	// One that is not interactive is reached by nobody, though it listens.
	private := createSession(t, shellRunner, "httpd -p 8080 -h /tmp; nc 127.0.0.1 8080 < /dev/null && echo listening; sleep 3600", nil)
	inn := createServerPod(t, "open-inn") // no policy closes it
	guarded.waitForPhase(v1alpha1.SessionRunning)
	private.waitForPhase(v1alpha1.SessionRunning)
	private.waitForLogLine("listening")
	for _, visit := range []struct {
		who    string
		labels map[string]string
		to     *corev1.Pod
		want   bool
	}{
		{"a visitor whom ingressFrom names", visitor, guarded.currentPod(), true},
		{"a stranger", nil, guarded.currentPod(), false},
		{"a visitor whom ingressFrom names", visitor, private.currentPod(), false},
		{"a stranger", nil, inn, true},
	} {
		if got := canConnect(t, visit.labels, podAddress(visit.to, front)); got != visit.want {
			t.Errorf("%s reaches %s: %t, want %t", visit.who, visit.to.Name, got, visit.want)
		}
	}
}

// createRunnerWithEgress makes a SessionRunner of the reference runner, which may reach this and nothing else.
func createRunnerWithEgress(t *testing.T, name string, egress ...v1alpha1.SessionEgress) string {
	t.Helper()
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: sessionsNamespace}}
	r.Spec.Image, r.Spec.RunAsUser, r.Spec.Egress = runnerImage, new(int64(65532)), egress
	// Many of them have room on the node.
	r.Spec.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
	}
	must(t, cluster.Create(t.Context(), r))
	deleteAtEnd(t, r)
	return r.Name
}

// connectPrompt is the prompt that has the reference runner try addresses.
func connectPrompt(addresses []string) string {
	return "/connect " + strings.Join(addresses, "\n/connect ")
}

// wantReached checks which of the addresses that the session has tried it did reach.
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

// egressAddress is the first of those that an egress allows.
func egressAddress(egress *v1alpha1.SessionEgress) string {
	return fmt.Sprintf("%s:%d", strings.TrimSuffix(egress.CIDR, "/32"), egress.Ports[0].Port)
}

func podAddress(pod *corev1.Pod, port int32) string {
	return fmt.Sprintf("%s:%d", pod.Status.PodIP, port)
}

// createServerPod runs a Pod that answers on two ports, and a Service of the same name for the first.
func createServerPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": name}
	inn := createScriptPod(t, name+"-", labels, serve)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: inn.Name, Namespace: inn.Namespace}}
	service.Spec.Selector, service.Spec.Ports = labels, []corev1.ServicePort{{Port: front, TargetPort: intstr.FromInt32(front)}}
	must(t, cluster.Create(t.Context(), service))
	deleteAtEnd(t, service)
	eventually(t, name+" to have an address", func() bool { return exists(t, inn) && inn.Status.PodIP != "" })
	// The node's proxy learns of a Service a moment later.
	waitForDeletion(t, createScriptPod(t, "guest-", nil, fmt.Sprintf(
		"until nc -w 1 %s %d < /dev/null && nc -w 1 %s %d < /dev/null; do sleep 0.1; done", inn.Name, front, inn.Status.PodIP, back)))
	return inn
}

// canConnect tells whether a Pod with these labels reaches an address.
func canConnect(t *testing.T, labels map[string]string, address string) bool {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	script := fmt.Sprintf("nc -w 3 %s %s < /dev/null && printf reached > /dev/termination-log || true", host, port)
	pod := createScriptPod(t, "guest-", labels, script)
	waitForDeletion(t, pod)
	return pod.Status.ContainerStatuses[0].State.Terminated.Message == "reached"
}

// waitForDeletion waits until a guest has done what it came for.
func waitForDeletion(t *testing.T, guest *corev1.Pod) {
	t.Helper()
	eventually(t, guest.Name+" to go", func() bool { return exists(t, guest) && guest.Status.Phase == corev1.PodSucceeded })
}

// createScriptPod makes a Pod that runs a script.
func createScriptPod(t *testing.T, name string, labels map[string]string, script string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: sessionsNamespace, Labels: labels}}
	pod.Spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(1)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "main", Image: busybox, Command: []string{"sh", "-c", script}, SecurityContext: restricted()}},
	}
	must(t, cluster.Create(t.Context(), pod))
	deleteAtEnd(t, pod)
	return pod
}

func deleteAtEnd(t *testing.T, object client.Object) {
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(cluster.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}
