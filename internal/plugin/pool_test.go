package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/test/require"
)

// workerPool returns a WorkerPool in namespace a that is not autoscaled.
func manualPool(name string, replicas int32, changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", Generation: 1}}
	wp.Spec.Replicas = &replicas
	for _, change := range changes {
		change(wp)
	}
	return wp
}

func TestDrain(t *testing.T) {
	const mailers = "workerpool.yardmaster.dev/mailers"
	autoscaled := func(wp *v1alpha1.WorkerPool) {
		wp.Spec.Replicas, wp.Spec.Autoscaling = nil, &v1alpha1.Autoscaling{MinReplicas: 1, MaxReplicas: 9}
	}
	deleted := func(wp *v1alpha1.WorkerPool) {
		wp.Finalizers, wp.DeletionTimestamp = []string{v1alpha1.WorkerPoolFinalizer}, new(metav1.NewTime(testTime))
	}
	drains := func(action v1alpha1.DrainTimeoutAction) func(*v1alpha1.WorkerPool) {
		return func(wp *v1alpha1.WorkerPool) {
			timeout := v1alpha1.Duration{Duration: metav1.Duration{Duration: 10 * time.Minute}}
			wp.Status.Effective = &v1alpha1.WorkerPoolEffective{WorkerSettings: v1alpha1.WorkerSettings{Drain: &v1alpha1.Drain{Timeout: &timeout, OnTimeout: action}}}
		}
	}
	const finishes = "removed workers first finish their messages in flight"
	for title, row := range map[string]struct {
		pool        *v1alpha1.WorkerPool
		args        string
		code        int
		out, errOut string
		scaled      int32 // the replicas written to the scale subresource; -1 for none
	}{
		"all workers": {
			manualPool("mailers", 3), "", exitSuccess, mailers + " scaled from 3 to 0: " + finishes + "\n", "", 0,
		},
		"some workers, with the drain settings of Policies": {
			manualPool("mailers", 3, drains(v1alpha1.DrainWait)), "--replicas=2", exitSuccess,
			mailers + " scaled from 3 to 2: " + finishes + " (HTTP, for up to 10m0s); after that they keep draining, and Degraded is True\n", "", 2,
		},
		"a dry run changes nothing": {
			manualPool("mailers", 3, drains(v1alpha1.DrainRequeue)), "--dry-run", exitSuccess,
			mailers + " would be scaled from 3 to 0: " + finishes + " (HTTP, for up to 10m0s); after that the broker redelivers their messages\n", "", -1,
		},
		"an autoscaled pool is refused": {
			manualPool("mailers", 3, autoscaled), "", exitError, "",
			"error: " + mailers + ": cannot drain: it is autoscaled between 1 and 9 workers; lower spec.autoscaling.maxReplicas instead\n", -1,
		},
		"a pool that is being deleted is refused": {
			manualPool("mailers", 3, deleted), "", exitError, "", "error: " + mailers + ": cannot drain: it is being deleted, which drains all workers\n", -1,
		},
		"an unchanged number of replicas is refused": {
			manualPool("mailers", 3), "--replicas=3", exitError, "", "error: " + mailers + ": cannot drain: spec.replicas is already 3; --replicas must be lower\n", -1,
		},
	} {
		t.Run(title, func(t *testing.T) {
			scaled := int32(-1)
			// The fake client does not support the scale subresource of custom resources.
			c := interceptor.NewClient(newFakeClient(t, row.pool), interceptor.Funcs{
				SubResourceUpdate: func(_ context.Context, _ client.Client, name string, _ client.Object, options ...client.SubResourceUpdateOption) error {
					body := client.SubResourceUpdateOptions{}
					body.ApplyOptions(options)
					scale := scaleBody(t, name, &body)
					scaled = scale.Spec.Replicas
					return nil
				},
			})
			code, out, errOut := runPluginWith(t, strings.TrimSpace("pool drain mailers "+row.args), c)
			if code != row.code || out != row.out || errOut != row.errOut || scaled != row.scaled {
				t.Errorf("exit code %d, scaled to %d, stdout %q, stderr %q", code, scaled, out, errOut)
			}
		})
	}
}

func TestDrainIsDoneWhenWorkersAreRemoved(t *testing.T) {
	status := func(observed int64, desired, replicas, draining int32) *v1alpha1.WorkerPool {
		return manualPool("mailers", 2, func(wp *v1alpha1.WorkerPool) {
			wp.Generation = 2
			wp.Status = v1alpha1.WorkerPoolStatus{ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: observed}, Desired: desired, WorkerCounts: v1alpha1.WorkerCounts{Replicas: replicas, Draining: draining}}
		})
	}
	d := drainPoolCommand{replicas: 2}
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want bool
	}{
		"not done before the operator has observed the request": {status(1, 2, 2, 0), false},
		"not done while a worker drains":                        {status(2, 2, 3, 1), false},
		"not done while a worker remains":                       {status(2, 2, 3, 0), false},
		"done when the workers are removed":                     {status(2, 2, 2, 0), true},
		"done when more workers are removed":                    {status(2, 1, 1, 0), true},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, d.isDrained(row.pool))
		})
	}
}

func TestPoolViewKeepsARecentBacklogHistory(t *testing.T) {
	v := newPoolListView(&environment{})
	update := func(backlog int64) follow.ObjectUpdate[*v1alpha1.WorkerPool] {
		return follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: manualPool("mailers", 3, func(wp *v1alpha1.WorkerPool) { wp.Status.Backlog = &backlog })}
	}
	for i := range int64(100) {
		if lines := v.applyUpdate(update(i)); len(lines) != 1 || !strings.HasPrefix(lines[0].Text, "mailers backlog ") {
			t.Fatalf("lines %q", lines)
		}
	}
	if lines := v.applyUpdate(update(99)); len(lines) > 0 {
		t.Errorf("lines without a change: %q", lines)
	}
	load := v.loads[client.ObjectKey{Namespace: "a", Name: "mailers"}]
	if len(load.Backlogs) != backlogHistoryLength || load.Backlogs[backlogHistoryLength-1] != 99 || load.Backlogs[0] != 77 {
		t.Errorf("backlogs %v", load.Backlogs)
	}
	deleted := update(99)
	deleted.Deleted = true
	if lines := v.applyUpdate(deleted); len(lines) != 1 || lines[0].Text != "mailers was deleted" || len(v.loads) > 0 {
		t.Errorf("lines %q, loads %v", lines, v.loads)
	}
	if finished, _ := v.isFinished(); finished {
		t.Error("watching a namespace has finished")
	}
}

func TestWatchingOnePoolEndsWhenItIsDeleted(t *testing.T) {
	v := newPoolListView(&environment{})
	v.singlePool = manualPool("mailers", 3)
	namesake := manualPool("mailers", 3, func(wp *v1alpha1.WorkerPool) { wp.UID = "2" })
	if lines := v.applyUpdate(follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: namesake}); len(lines) > 0 {
		t.Errorf("lines for another pool with the same name: %q", lines)
	}
	if finished, err := v.isFinished(); !finished || err == nil || err.Error() != "workerpool.yardmaster.dev/mailers was deleted" {
		t.Errorf("finished %t, %v", finished, err)
	}
	v.applyUpdate(follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: v.singlePool})
	if finished, err := v.isFinished(); finished || err != nil {
		t.Errorf("finished %t, %v", finished, err)
	}
}

// scaleBody returns the body of a request to the scale subresource.
func scaleBody(t *testing.T, name string, options *client.SubResourceUpdateOptions) *autoscalingv1.Scale {
	t.Helper()
	scale, ok := options.SubResourceBody.(*autoscalingv1.Scale)
	require.True(t, name == "scale" && ok && scale.ResourceVersion != "", "subresource %s, body %+v", name, options.SubResourceBody)
	return scale
}

func TestRestartRefusesADeletedPool(t *testing.T) {
	deleted := manualPool("mailers", 3, func(wp *v1alpha1.WorkerPool) {
		wp.Finalizers, wp.DeletionTimestamp = []string{v1alpha1.WorkerPoolFinalizer}, new(metav1.NewTime(testTime))
	})
	code, out, errOut := runPluginWith(t, "pool restart mailers", newFakeClient(t, deleted))
	const want = "error: workerpool.yardmaster.dev/mailers: cannot restart: it is being deleted\n"
	require.True(t, code == exitError && out == "" && errOut == want, "exit code %d, stdout %q, stderr %q", code, out, errOut)
}
