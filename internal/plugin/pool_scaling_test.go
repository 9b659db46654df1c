package plugin

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestPoolScalingIsPausedAndResumed(t *testing.T) {
	autoscaled := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers", Namespace: "a"}, Spec: v1alpha1.WorkerPoolSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 3}}}
	manual := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "manual", Namespace: "a"}, Spec: v1alpha1.WorkerPoolSpec{Replicas: new(int32(3))}}
	c := newFakeClient(t, autoscaled, manual)
	run := func(args, want string) {
		t.Helper()
		if code, out, errOut := runPluginWith(t, args, c); code != exitSuccess || out != want {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", args, code, out, errOut, want)
		}
	}
	pausedUntil := func() *metav1.Time {
		wp := &v1alpha1.WorkerPool{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(autoscaled), wp); err != nil {
			t.Fatal(err)
		}
		return wp.Spec.Autoscaling.PausedUntil
	}
	run("pool pause-scaling mailers --for 2h", "workerpool.yardmaster.dev/mailers does not scale until 2026-03-01T14:00:00Z\n")
	if until := pausedUntil(); until == nil || !until.Time.Equal(testTime.Add(2*time.Hour)) {
		t.Errorf("pausedUntil is %v", until)
	}
	run("pool resume-scaling mailers", "workerpool.yardmaster.dev/mailers scales again\n")
	if until := pausedUntil(); until != nil {
		t.Errorf("pausedUntil is %v", until)
	}
	run("pool resume-scaling mailers", "workerpool.yardmaster.dev/mailers is not paused\n")
	run("pool pause-scaling manual", "workerpool.yardmaster.dev/manual is not autoscaled\n")
	if code, _, errOut := runPluginWith(t, "pool pause-scaling mailers --for 0s", c); code != exitError || errOut != "error: invalid --for 0s: must be greater than 0\n" {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
}
