package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// poolOf the namespace a with so many replicas, by hand.
func poolOf(name string, replicas int32, changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
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
		wp.Finalizers, wp.DeletionTimestamp = []string{v1alpha1.WorkerPoolFinalizer}, new(metav1.NewTime(noon))
	}
	drains := func(action v1alpha1.DrainTimeoutAction) func(*v1alpha1.WorkerPool) {
		return func(wp *v1alpha1.WorkerPool) {
			timeout := v1alpha1.Duration{Duration: metav1.Duration{Duration: 10 * time.Minute}}
			wp.Status.Effective = &v1alpha1.WorkerPoolEffective{Drain: &v1alpha1.Drain{Timeout: &timeout, OnTimeout: action}}
		}
	}
	const finishes = "each worker that goes first finishes what it has in flight"
	for title, row := range map[string]struct {
		pool      *v1alpha1.WorkerPool
		args      string
		code      int
		out, said string
		asked     int32 // of the scale subresource; -1: nothing
	}{
		"all": {
			poolOf("mailers", 3), "", exitSuccess, mailers + " scaled from 3 to 0: " + finishes + "\n", "", 0,
		},
		"some, as the Policies say": {
			poolOf("mailers", 3, drains(v1alpha1.DrainWait)), "--replicas=2", exitSuccess,
			mailers + " scaled from 3 to 2: " + finishes + " (HTTP), for 10m0s; then it says so in DrainTimedOut and waits on\n", "", 2,
		},
		"a dry run writes nothing": {
			poolOf("mailers", 3, drains(v1alpha1.DrainRequeue)), "--dry-run", exitSuccess,
			mailers + " would be scaled from 3 to 0: " + finishes + " (HTTP), for 10m0s; then it goes, and the broker gives to others what it had\n", "", -1,
		},
		"not one that is autoscaled": {
			poolOf("mailers", 3, autoscaled), "", exitError, "",
			"error: " + mailers + ": cannot drain: it is autoscaled between 1 and 9 workers; lower spec.autoscaling.maxReplicas instead\n", -1,
		},
		"not one that is being deleted": {
			poolOf("mailers", 3, deleted), "", exitError, "", "error: " + mailers + ": cannot drain: it is being deleted, and all its workers are drained\n", -1,
		},
		"not upwards": {
			poolOf("mailers", 3), "--replicas=3", exitError, "", "error: " + mailers + ": cannot drain: spec.replicas is 3 already, --replicas must be less\n", -1,
		},
	} {
		t.Run(title, func(t *testing.T) {
			asked := int32(-1)
			// No client for tests knows the scale subresource of such a kind.
			c := interceptor.NewClient(cluster(t, row.pool), interceptor.Funcs{
				SubResourceUpdate: func(_ context.Context, _ client.Client, name string, _ client.Object, options ...client.SubResourceUpdateOption) error {
					body := client.SubResourceUpdateOptions{}
					body.ApplyOptions(options)
					scale := scaleOf(t, name, &body)
					asked = scale.Spec.Replicas
					return nil
				},
			})
			code, out, errOut := callWith(t, strings.TrimSpace("pool drain mailers "+row.args), c)
			if code != row.code || out != row.out || errOut != row.said || asked != row.asked {
				t.Errorf("code %d, asked for %d, out %q, says %q", code, asked, out, errOut)
			}
		})
	}
}

func TestADrainIsOverWhenTheWorkersAreGone(t *testing.T) {
	status := func(observed int64, desired, replicas, draining int32) *v1alpha1.WorkerPool {
		return poolOf("mailers", 2, func(wp *v1alpha1.WorkerPool) {
			wp.Generation = 2
			wp.Status = v1alpha1.WorkerPoolStatus{ObservedGeneration: observed, Desired: desired, Replicas: replicas, Draining: draining}
		})
	}
	d := drainPoolCommand{replicas: 2}
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want bool
	}{
		"not before the operator has seen it": {status(1, 2, 2, 0), false},
		"not while workers finish":            {status(2, 2, 3, 1), false},
		"not while they are still there":      {status(2, 2, 3, 0), false},
		"when they are gone":                  {status(2, 2, 2, 0), true},
		"when others are gone, too":           {status(2, 1, 1, 0), true},
	} {
		t.Run(title, func(t *testing.T) {
			if got := d.isDrained(row.pool); got != row.want {
				t.Errorf("drained %t, want %t", got, row.want)
			}
		})
	}
}

func TestExplainTellsWhyOnStandardOutput(t *testing.T) {
	code, out, errOut := call(t, "pool explain mailers", poolOf("mailers", 3))
	want := "mailers   0 workers, 0 ready\n  Manual: spec.replicas is 3, and nothing else changes the number\n"
	if diff := cmp.Diff(want, out); diff != "" || code != exitSuccess || errOut != "" {
		t.Errorf("code %d, says %q, out (-want +got):\n%s", code, errOut, diff)
	}
}

func TestAPoolsBacklogIsRemembered(t *testing.T) {
	v := newPoolListView(&environment{})
	sight := func(backlog int64) follow.ObjectUpdate[*v1alpha1.WorkerPool] {
		return follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: poolOf("mailers", 3, func(wp *v1alpha1.WorkerPool) { wp.Status.Backlog = &backlog })}
	}
	for i := range int64(100) {
		if lines := v.applyUpdate(sight(i)); len(lines) != 1 || !strings.HasPrefix(lines[0], "mailers backlog ") {
			t.Fatalf("lines %q", lines)
		}
	}
	if lines := v.applyUpdate(sight(99)); len(lines) > 0 {
		t.Errorf("nothing new, but told: %q", lines)
	}
	load := v.loads[client.ObjectKey{Namespace: "a", Name: "mailers"}]
	if len(load.Backlogs) != backlogHistoryLength || load.Backlogs[backlogHistoryLength-1] != 99 || load.Backlogs[0] != 77 {
		t.Errorf("backlogs %v", load.Backlogs)
	}
	gone := sight(99)
	gone.Deleted = true
	if lines := v.applyUpdate(gone); len(lines) != 1 || lines[0] != "mailers was deleted" || len(v.loads) > 0 {
		t.Errorf("lines %q, seen %v", lines, v.loads)
	}
	if over, _ := v.isFinished(); over {
		t.Error("the watch of a namespace has no end")
	}
}

func TestTheWatchOfOnePoolEndsWithIt(t *testing.T) {
	v := newPoolListView(&environment{})
	v.singlePool = poolOf("mailers", 3)
	namesake := poolOf("mailers", 3, func(wp *v1alpha1.WorkerPool) { wp.UID = "2" })
	if lines := v.applyUpdate(follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: namesake}); len(lines) > 0 {
		t.Errorf("it tells of a namesake: %q", lines)
	}
	if over, err := v.isFinished(); !over || err == nil || err.Error() != "workerpool.yardmaster.dev/mailers was deleted" {
		t.Errorf("over %t, %v", over, err)
	}
	v.applyUpdate(follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: v.singlePool})
	if over, err := v.isFinished(); over || err != nil {
		t.Errorf("over %t, %v", over, err)
	}
}

// scaleOf is what is written to the scale subresource.
func scaleOf(t *testing.T, name string, options *client.SubResourceUpdateOptions) *autoscalingv1.Scale {
	t.Helper()
	scale, is := options.SubResourceBody.(*autoscalingv1.Scale)
	if name != "scale" || !is || scale.ResourceVersion == "" {
		t.Fatalf("subresource %s, body %+v", name, options.SubResourceBody)
	}
	return scale
}
