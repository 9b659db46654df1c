//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The times of a lost node, from the moment at which its kubelet stops. The control plane requests the deletion of its Pods after
// the grace period of nodes, 40 to 50 seconds, which no Pod learns before the kubelet returns.
const (
	endsBeforeRequest = 15 * time.Second
	endsAfterRequest  = 90 * time.Second
	kubeletReturns    = 105 * time.Second
)

// TestNodeLoss stops the kubelet of the only node while steps run, until the control plane has requested the deletion of their Pods.
// A step whose program ended by itself before the request is done. Each other step is interrupted, whatever its exit code, and runs
// again.
func TestNodeLoss(t *testing.T) {
	if os.Getenv("NODE_LOSS") == "" {
		t.Skip("this test stops the kubelet: use make soak SOAK_PARTS=node-loss")
	}
	// Time for all Pods to start.
	lost := time.Now().Add(2 * time.Minute).Truncate(time.Second)
	programs := map[string]struct {
		script string
		lasts  time.Duration // until it ends by itself
		again  bool          // it runs again
	}{
		"it ends with 0 before the request":  {lasts: endsBeforeRequest},
		"it ends with 0 after the request":   {lasts: endsAfterRequest, again: true},
		"SIGTERM ends it, with the code 0":   {script: "trap 'exit 0' TERM", lasts: time.Hour, again: true},
		"SIGTERM ends it, with the code 143": {script: "trap 'exit 143' TERM", lasts: time.Hour, again: true},
		"it ignores SIGTERM":                 {script: "trap '' TERM", lasts: time.Hour, again: true},
	}
	type cell struct {
		name  string
		s     *sequenceTest
		again bool
	}
	var cells []cell
	for name, program := range programs {
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: new(int64(5))}}
			for _, taint := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
				template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{
					Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1)),
				})
			}
			script := fmt.Sprintf(`echo started >> /workspace/runs
[ "$(wc -l < /workspace/runs)" -gt 1 ] && exit 0
%s
while [ "$(date +%%s)" -lt %d ]; do sleep 1 & wait $! || true; done`, program.script, lost.Add(program.lasts).Unix())
			s := createSequence(t, testbuilder.SequentialJob("lost", "").Workspace(v1alpha1.WorkspaceDelete).Template(template).
				Step("work", shellScript(script)).Step("count", shellScript(`printf %s "$(wc -l < /workspace/runs)" > /dev/termination-log`), testbuilder.RecordOutput()).Obj())
			cells = append(cells, cell{name + ", with the restart policy " + string(policy), s, program.again})
		}
	}
	for _, c := range cells {
		c.s.waitForRunningPod("work")
	}
	kubelet := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubelet-", Namespace: privilegedNamespace}}
	kubelet.Spec = corev1.PodSpec{
		HostPID: true, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "stop", Image: busyboxImage, Command: []string{"sh", "-ec", fmt.Sprintf(`
for p in /proc/[0-9]*; do # one program has all parts of Kubernetes
	[ "$(cat $p/comm)" = kubernetes ] && tr '\0' ' ' < $p/cmdline | grep -q '^[^ ]* kubelet ' && pid=${p#/proc/}
done
while [ "$(date +%%s)" -lt %d ]; do sleep 0.2; done
kill -STOP $pid
sleep %s
kill -CONT $pid`, lost.Unix(), strconv.Itoa(int(kubeletReturns.Seconds())))}}},
	}
	require.NoError(t, cluster.Create(t.Context(), kubelet))
	poll.Until(t, "the Pod that stops the kubelet", func() bool { return objectExists(t, kubelet) && kubelet.Status.Phase == corev1.PodRunning })
	now := time.Now()
	require.True(t, !now.After(lost), "the Pods took %v longer than this test expects to start", now.Sub(lost))
	deletionRequested := func(s *sequenceTest) bool {
		for _, job := range s.listJobs() {
			for _, pod := range s.listPods(&job) {
				if !pod.DeletionTimestamp.IsZero() {
					return true
				}
			}
		}
		return false
	}
	poll.Until(t, "the control plane to request the deletion of the Pods", func() bool {
		for _, c := range cells {
			if !deletionRequested(c.s) {
				return false
			}
		}
		return true
	})
	after := time.Since(lost)
	t.Logf("the deletion of all Pods was requested %v after the kubelet stopped", after.Round(time.Second))
	if after > endsAfterRequest || after < endsBeforeRequest {
		t.Fatalf("this test expects the request %v to %v after the kubelet stopped", endsBeforeRequest, endsAfterRequest)
	}
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			c.s.t = t
			c.s.waitForPhase(v1alpha1.PhaseCompleted)
			// The second Pod can start while the node still has its taint, and is then interrupted too.
			if runs := c.s.stepStatus("count").Output; (runs != "1") != c.again {
				t.Errorf("the program ran %s times, want more than one: %v: %+v", runs, c.again, c.s.sj.Status.Steps)
			}
		})
	}
}
